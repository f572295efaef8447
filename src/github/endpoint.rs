//! Where a GitHub lives: the REST root, the GraphQL address derived from it, and which remotes belong to it.

use http::Uri;

use super::error::{Error, ErrorKind};

/// The addresses of one GitHub, public or Enterprise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    rest: String,
    graphql: String,
    origin: String,
}

impl Endpoint {
    /// Takes `github.api_url` and, where set, `github.graphql_url`. Without the latter it is derived:
    /// `https://HOST/api/v3` gives `https://HOST/api/graphql`, everything else `…/graphql`.
    pub fn new(api_url: &str, graphql_url: Option<&str>) -> Result<Self, Error> {
        let rest = api_url.trim().trim_end_matches('/').to_owned();
        let origin = origin("github.api_url", &rest)?;
        let graphql = match graphql_url.map(str::trim).filter(|url| !url.is_empty()) {
            Some(url) => url.to_owned(),
            None => format!("{}/graphql", rest.strip_suffix("/v3").unwrap_or(&rest)),
        };
        // The token goes to both addresses, so both have to be meant.
        self::origin("github.graphql_url", &graphql)?;
        Ok(Self { rest, graphql, origin })
    }

    /// Scheme and host, `https://api.github.com`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The GraphQL address.
    pub fn graphql(&self) -> &str {
        &self.graphql
    }

    /// The absolute URL of a path below the REST root (`/repos/o/n`).
    pub(super) fn rest(&self, path: &str) -> String {
        format!("{}{path}", self.rest)
    }

    /// Whether an absolute URL (a `Link`, a `Location`) stays on the REST API's own host, so that it may get the token.
    pub(super) fn is_own(&self, url: &str) -> bool {
        origin("", url).is_ok_and(|other| other == self.origin)
    }

    /// Whether a git remote's HTTP URL is on this GitHub's host (D28): `github.com` for `api.github.com`. What is encrypted for the API
    /// is sent nowhere in the clear.
    pub fn serves_remote(&self, remote_url: &str) -> bool {
        let is_safe = remote_url.starts_with("https://")
            || (remote_url.starts_with("http://") && self.origin.starts_with("http://"));
        is_safe && self.hosts(remote_url)
    }

    /// The same for a URL of any kind, `git@github.com:owner/name` too.
    pub fn hosts(&self, remote_url: &str) -> bool {
        let (authority, _) = match remote_url.split_once("://") {
            Some((_, rest)) => rest.split_once('/').unwrap_or((rest, "")),
            None => remote_url.split_once(':').unwrap_or_default(),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let Some(own) = self.origin.parse::<Uri>().ok().and_then(|own| own.host().map(str::to_owned)) else {
            return false;
        };
        !host.is_empty()
            && (host.eq_ignore_ascii_case(&own)
                || own.strip_prefix("api.").is_some_and(|rest| host.eq_ignore_ascii_case(rest)))
    }
}

fn origin(key: &str, url: &str) -> Result<String, Error> {
    let problem = |why: &str| {
        Error::new(
            ErrorKind::Setup { problem: format!("{key} = \"{url}\" {why}") },
            "reading the configuration",
            "",
        )
    };
    let uri: Uri = url.parse().map_err(|_| problem("is not a URL; write it like https://api.github.com"))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(problem("is not an http or https URL; write it like https://api.github.com"));
    };
    if authority.as_str().contains('@') {
        return Err(Error::new(
            ErrorKind::Setup {
                problem: format!("{key} carries credentials in the URL; put the token into github.token"),
            },
            "reading the configuration",
            "",
        ));
    }
    Ok(format!("{scheme}://{}", authority.as_str().to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i48_the_graphql_address_is_derived_for_github_and_for_enterprise() {
        for (api, graphql) in [
            ("https://api.github.com", "https://api.github.com/graphql"),
            ("https://api.github.com/", "https://api.github.com/graphql"),
            ("https://ghe.example.com/api/v3", "https://ghe.example.com/api/graphql"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/graphql"),
        ] {
            assert_eq!(Endpoint::new(api, None).unwrap().graphql(), graphql, "{api}");
        }
        let set = Endpoint::new("https://a.example", Some("https://b.example/gql")).unwrap();
        assert_eq!(set.graphql(), "https://b.example/gql");
    }

    #[test]
    fn an_address_that_is_no_url_is_refused_by_its_key() {
        for bad in ["api.github.com", "ftp://x/y", ""] {
            let error = Endpoint::new(bad, None).unwrap_err().to_string();
            assert!(error.contains("github.api_url"), "{error}");
        }
        let error = Endpoint::new("https://me:hunter2@ghe.example", None).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn d28_only_http_remotes_on_the_same_host_get_the_token() {
        let public = Endpoint::new("https://api.github.com", None).unwrap();
        assert!(public.serves_remote("https://github.com/o/n.git"));
        assert!(!public.serves_remote("https://evil.example/github.com/o/n.git"));
        assert!(!public.serves_remote("git@github.com:o/n.git"));
        assert!(!public.serves_remote("https://notgithub.com/o/n.git"));
        let own = Endpoint::new("https://ghe.example.com/api/v3", None).unwrap();
        assert!(own.serves_remote("https://ghe.example.com/o/n.git"));
        assert!(own.serves_remote("https://me@ghe.example.com:8443/o/n.git"));
        assert!(!own.serves_remote("http://ghe.example.com/o/n.git"), "not in the clear");
        let plain = Endpoint::new("http://127.0.0.1:4500", None).unwrap();
        assert!(plain.serves_remote("http://127.0.0.1:4500/git/o/n.git"));
        assert!(!plain.serves_remote("http://localhost:4500/o/n.git"));
    }
}
