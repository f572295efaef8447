//! One request and its answer, without knowledge of issues or pull requests.

use http::{HeaderMap, Method, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::error::{Error, ErrorKind};

/// A request to be made.
pub(super) struct Ask {
    pub method: Method,
    /// Absolute URL.
    pub url: String,
    pub body: Option<Value>,
    pub etag: Option<String>,
    /// What for, in words.
    pub doing: String,
    /// The permission it needs, as GitHub names it.
    pub needs: &'static str,
    /// Whether sending it twice is the same as once.
    pub repeatable: bool,
    /// The primary budget it is counted on, unless the answer says otherwise.
    pub resource: &'static str,
    /// Whether a redirect is the answer, and not followed.
    pub unfollowed: bool,
    /// The media type of the answer, where it is not the usual one.
    pub accept: Option<&'static str>,
}

impl Ask {
    pub fn get(url: String, doing: impl Into<String>, needs: &'static str) -> Self {
        Self {
            method: Method::GET,
            url,
            body: None,
            etag: None,
            doing: doing.into(),
            needs,
            repeatable: true,
            resource: "core",
            unfollowed: false,
            accept: None,
        }
    }

    /// A write. `PATCH`, `PUT` and `DELETE` are the same when sent twice; a `POST` is not, unless [`Ask::repeatable`] says so.
    pub fn write(
        method: Method,
        url: String,
        body: Option<Value>,
        doing: impl Into<String>,
        needs: &'static str,
    ) -> Self {
        let repeatable = method != Method::POST;
        Self { body, repeatable, method, ..Self::get(url, doing, needs) }
    }

    pub fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    pub fn unfollowed(self) -> Self {
        Self { unfollowed: true, ..self }
    }

    pub fn etag(self, etag: Option<&str>) -> Self {
        Self { etag: etag.map(str::to_owned), ..self }
    }

    pub fn is_read(&self) -> bool {
        self.method == Method::GET
    }
}

/// An answer that is not an error.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
    pub doing: String,
}

impl Reply {
    /// The body as JSON of our own lenient shapes.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(&self.body).map_err(|error| Error::malformed(&self.doing, error))
    }

    /// An answer to a read, which is JSON of some shape if it is GitHub's.
    pub fn of_read(self) -> Result<Self, Error> {
        if self.status != StatusCode::OK || serde_json::from_str::<IgnoredAny>(&self.body).is_ok() {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::Foreign, self.doing, "the body is no JSON"))
    }

    pub fn unchanged(&self) -> bool {
        self.status == StatusCode::NOT_MODIFIED
    }

    pub fn etag(&self) -> Option<String> {
        self.header("etag").map(str::to_owned)
    }

    /// The next page's URL, as the `Link` header says; never built by ourselves.
    pub fn next(&self) -> Option<String> {
        self.header("link")?.split(',').find_map(|link| {
            let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
            rest.split(';')
                .any(|part| matches!(part.trim(), "rel=\"next\"" | "rel=next"))
                .then(|| url.to_owned())
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// GitHub's message and errors, for logs and to distinguish refusals.
    pub fn message(&self) -> String {
        let Ok(body) = serde_json::from_str::<Value>(&self.body) else { return self.body.clone() };
        let mut text = body["message"].as_str().unwrap_or_default().to_owned();
        for error in body["errors"].as_array().into_iter().flatten() {
            let said = error.as_str().or_else(|| error["message"].as_str()).map(str::to_owned);
            let said = said.unwrap_or_else(|| {
                let part = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
                format!("{} {} {}", part("resource"), part("field"), part("code"))
            });
            text = format!("{text}: {}", said.trim());
        }
        text
    }

    /// The reply, or the error that its status is.
    pub fn check(self, needs: &str) -> Result<Self, Error> {
        if self.status.is_success() || self.unchanged() {
            return Ok(self);
        }
        let message = self.message();
        let kind = match self.status.as_u16() {
            401 => ErrorKind::Unauthorized,
            // GitHub hides what a token may not see or change behind either status.
            403 | 451 => ErrorKind::Forbidden { needs: self.accepted(needs) },
            404 => ErrorKind::NotFound,
            410 => ErrorKind::Gone,
            409 => ErrorKind::Conflict,
            422 if message.contains("already exists") || message.contains("already_exists") => {
                ErrorKind::AlreadyExists
            }
            422 if message.contains("No commits between") => ErrorKind::NoCommits,
            422 if message.contains("PullRequest base invalid") => ErrorKind::NoBase,
            400 | 405 | 413 | 415 | 422 => ErrorKind::Validation,
            status @ 500.. => ErrorKind::Unavailable { status },
            _ => ErrorKind::Malformed,
        };
        let id = self.header("x-github-request-id").map(|id| format!(" (request {id})")).unwrap_or_default();
        let detail = format!("{}: {message}{id}", self.status.as_u16());
        Err(Error::new(kind, self.doing, detail))
    }

    /// The permission that GitHub itself names as missing, else the one we know the request needs.
    fn accepted(&self, needs: &str) -> String {
        if let Some(accepted) = self.header("x-accepted-github-permissions").filter(|text| !text.is_empty()) {
            return accepted.replace('=', ": ");
        }
        let scopes = self.header("x-accepted-oauth-scopes").filter(|text| !text.is_empty());
        match scopes.filter(|_| self.headers.contains_key("x-oauth-scopes")) {
            Some(scopes) => format!("{needs} (scope {scopes})"),
            None => needs.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &str)], body: &str) -> Reply {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            doing: "reading".into(),
        }
    }

    #[test]
    fn the_next_page_is_taken_from_the_link_header_whatever_its_order() {
        let link = "<https://x/repositories/1/issues?page=1>; rel=\"prev\", <https://x/repositories/1/issues?page=3>; rel=\"next\"";
        assert_eq!(
            reply(200, &[("link", link)], "").next().unwrap(),
            "https://x/repositories/1/issues?page=3"
        );
        assert_eq!(reply(200, &[("link", "<https://x?page=1>; rel=\"first\"")], "").next(), None);
    }

    #[test]
    fn a_refusal_names_the_permission_and_no_upstream_text() {
        let headers = [("x-accepted-github-permissions", "issues=write; pull_requests=write")];
        let body = r#"{"message":"Resource not accessible by personal access token /secret/path"}"#;
        let error = reply(403, &headers, body).check("issues: write").unwrap_err();
        assert!(error.to_string().contains("issues: write; pull_requests: write"), "{error}");
        assert!(!error.to_string().contains("/secret/path"), "{error}");
        assert!(error.technical().contains("/secret/path"));
    }

    #[test]
    fn refusals_with_422_are_told_apart() {
        let kind = |body: &str| reply(422, &[], body).check("").unwrap_err().kind;
        let with = |message: &str| {
            format!(r#"{{"message":"Validation Failed","errors":[{{"message":"{message}"}}]}}"#)
        };
        assert_eq!(kind(&with("A pull request already exists for o:b.")), ErrorKind::AlreadyExists);
        assert_eq!(kind(&with("No commits between a and b")), ErrorKind::NoCommits);
        assert_eq!(
            kind(
                r#"{"message":"Validation Failed","errors":[{"resource":"Label","code":"already_exists","field":"name"}]}"#
            ),
            ErrorKind::AlreadyExists
        );
        assert_eq!(kind("<html>"), ErrorKind::Validation);
    }
}
