//! Makes the configuration of a repository harmless: it runs no program and redirects no transfer.
//!
//! An agent that can write to the common git directory can set keys for which git runs programs. Only the operator's
//! (global) configuration may name programs (D56). Each dangerous key of the repository is overridden with the
//! operator's value or with a harmless one.

use super::error::GitError;

/// What git's configuration says: what of the repository's part is made harmless, and what people set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardening {
    /// Entries that override it.
    pub overrides: Vec<(String, String)>,
    /// A key that redirects transfers and cannot be overridden. Network calls are then refused.
    pub redirect: Option<String>,
    /// The names of the filter drivers that the repository itself defines. They do not run.
    pub disarmed_filters: Vec<String>,
    /// Whether a file includes others. Then the times of the files do not show a change.
    pub includes: bool,
    /// Whether the repository is a partial clone, for which git fetches missing objects when they are needed.
    pub partial: bool,
    /// Whether agentd made the clone without the contents of files, and brings them itself.
    pub blobless: bool,
    /// Whether commits are to be signed, whoever says so.
    pub signs: bool,
    /// What the operator's own configuration rewrites addresses to.
    pub rewritten_to: Vec<String>,
    /// Whether the user's own configuration includes other files.
    pub user_includes: bool,
    /// `user.name`, empty where there is none.
    pub user_name: String,
    /// `user.email`, empty where there is none.
    pub user_email: String,
    /// `core.excludesFile`, as it is written.
    pub ignore_file: Option<String>,
}

/// The key in the configuration of a clone that agentd made without the contents of files. Clones that a person made are left to git.
pub(super) const BLOBLESS: &str = "agentd.blobless";

/// Keys that name a program. They are set for every call, because the repository could set them after its configuration
/// was read.
const ALWAYS_SET: &[&str] =
    &["core.sshcommand", "core.alternaterefscommand", "gpg.program", "gpg.ssh.program", "gpg.x509.program"];

impl Hardening {
    /// Refuses a network call that would go somewhere else.
    pub(super) fn check_network(&self) -> Result<(), GitError> {
        self.redirect.as_ref().map_or(Ok(()), |key| Err(GitError::Redirected { key: key.clone() }))
    }
}

/// Reads the output of `git config --list --includes --show-scope -z`: scope, NUL, key, line feed, value, NUL.
#[doc(hidden)]
pub fn judge(listing: &[u8]) -> Hardening {
    let text = String::from_utf8_lossy(listing);
    let mut fields = text.split('\0');
    let mut own = Vec::new();
    let mut operators = Vec::new();
    // Of these the last one counts, whoever says so.
    let mut hardening = Hardening::default();
    while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        match key {
            "commit.gpgsign" => {
                let off = matches!(value.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0" | "");
                hardening.signs = !off;
            }
            "user.name" => value.trim().clone_into(&mut hardening.user_name),
            "user.email" => value.trim().clone_into(&mut hardening.user_email),
            "core.excludesfile" => hardening.ignore_file = Some(value.to_owned()),
            _ => {}
        }
        match scope {
            "local" | "worktree" => own.push(key),
            "global" => operators.push((key, value)),
            _ => {}
        }
    }
    for (key, _) in &operators {
        let parts = Key::of(key);
        hardening.user_includes |= matches!(parts.section, "include" | "includeif");
        if parts.section == "url" && matches!(parts.name, "insteadof" | "pushinsteadof") {
            hardening.rewritten_to.extend(parts.subsection.map(str::to_owned));
        }
    }
    own.extend(ALWAYS_SET);
    own.sort_unstable();
    own.dedup();
    for key in own {
        let parts = Key::of(key);
        hardening.includes |= matches!(parts.section, "include" | "includeif");
        hardening.partial |=
            matches!((parts.section, parts.name), ("remote", "promisor") | ("extensions", "partialclone"));
        hardening.blobless |= key == BLOBLESS;
        if parts.redirects() {
            hardening.redirect.get_or_insert_with(|| key.to_owned());
        }
        let Some(harmless) = parts.harmless() else { continue };
        // An empty value first, where values add up; then the operator's.
        let given = operators.iter().filter(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned());
        let mut values: Vec<String> = given.collect();
        if parts.section == "filter" && parts.name != "required" && values.is_empty() {
            hardening.disarmed_filters.push(parts.subsection.unwrap_or_default().to_owned());
        }
        if values.is_empty() || parts.adds_up() {
            values.insert(0, harmless.to_owned());
        }
        hardening.overrides.extend(values.into_iter().map(|value| (key.to_owned(), value)));
    }
    hardening.disarmed_filters.dedup();
    hardening
}

struct Key<'a> {
    section: &'a str,
    subsection: Option<&'a str>,
    name: &'a str,
}

impl<'a> Key<'a> {
    /// Git prints section and name in lower case; a subsection may hold dots.
    fn of(key: &'a str) -> Self {
        let (section, rest) = key.split_once('.').unwrap_or((key, ""));
        match rest.rsplit_once('.') {
            Some((subsection, name)) => Self { section, subsection: Some(subsection), name },
            None => Self { section, subsection: None, name: rest },
        }
    }

    /// Whether it decides where a transfer goes, or what carries it out, and no command line overrides it.
    fn redirects(&self) -> bool {
        match (self.section, self.name) {
            ("url", "insteadof" | "pushinsteadof") => true,
            // The first value counts, and the value of the repository comes before the value of a call.
            ("core", "gitproxy") => true,
            // A remote whose name is an address speaks for that address.
            ("remote", "url" | "pushurl" | "vcs" | "uploadpack" | "receivepack" | "proxy") => {
                self.subsection.is_some_and(|name| name.contains(['/', ':', '\\']))
            }
            _ => false,
        }
    }

    /// The value that makes the key harmless. `None`: the key is not dangerous.
    fn harmless(&self) -> Option<&'static str> {
        Some(match (self.section, self.name) {
            ("core", "sshcommand") => "ssh",
            ("core", "alternaterefscommand") | ("sequence", "editor") => "",
            ("credential", "helper") => "",
            ("filter", "clean" | "smudge" | "process") => "",
            ("filter", "required") => "false",
            ("gpg", "program") => match self.subsection {
                Some("ssh") => "ssh-keygen",
                Some("x509") => "gpgsm",
                _ => "gpg",
            },
            ("gpg", "defaultkeycommand") => "",
            ("submodule", "update") => "checkout",
            ("http", "sslverify") => "true",
            ("http", "proxy" | "curloptresolve" | "extraheader" | "cookiefile") => "",
            ("trailer", "command" | "cmd") => "true",
            ("diff", "external" | "command" | "textconv") | ("uploadpack", "packobjectshook") => "",
            ("merge", "driver") => "false",
            _ => return None,
        })
    }

    fn adds_up(&self) -> bool {
        matches!(
            (self.section, self.name),
            ("credential", "helper") | ("http", "extraheader" | "curloptresolve")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(entries: &[(&str, &str, &str)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(scope, key, value)| format!("{scope}\0{key}\n{value}\0").into_bytes())
            .collect()
    }

    #[test]
    fn what_the_repository_sets_is_replaced_by_what_the_operator_set() {
        let judged = judge(&listing(&[
            ("global", "credential.helper", "store"),
            ("global", "filter.lfs.clean", "git-lfs clean -- %f"),
            ("local", "core.autocrlf", "input"),
            ("local", "credential.helper", "!evil"),
            ("local", "filter.lfs.clean", "evil"),
            ("worktree", "filter.a.b.smudge", "evil"),
            ("local", "core.sshcommand", "evil"),
        ]));
        let overrides: Vec<_> = judged.overrides.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            overrides,
            [
                ("core.alternaterefscommand", ""),
                ("core.sshcommand", "ssh"),
                ("credential.helper", ""),
                ("credential.helper", "store"),
                ("filter.a.b.smudge", ""),
                ("filter.lfs.clean", "git-lfs clean -- %f"),
                ("gpg.program", "gpg"),
                ("gpg.ssh.program", "ssh-keygen"),
                ("gpg.x509.program", "gpgsm"),
            ]
        );
        assert_eq!(judged.disarmed_filters, ["a.b"]);
        assert!(judged.check_network().is_ok());
    }

    #[test]
    fn a_redirection_stops_network_calls() {
        let judged = judge(&listing(&[("local", "url.http://evil/.insteadof", "https://github.com/")]));
        assert!(judged.check_network().unwrap_err().to_string().contains("url.http://evil/.insteadof"));
        let operators = judge(&listing(&[("global", "url.git@h:.insteadof", "https://h/")]));
        assert!(operators.check_network().is_ok());
        assert_eq!(operators.rewritten_to, ["git@h:"]);
        for key in [
            "core.gitproxy",
            "remote./srv/n.git.uploadpack",
            "remote.https://h/o/n.git.url",
            "remote.h:n.vcs",
        ] {
            assert!(judge(&listing(&[("local", key, "evil")])).check_network().is_err(), "{key}");
        }
        for key in ["remote.origin.url", "remote.origin.uploadpack", "remote.origin.fetch"] {
            assert!(judge(&listing(&[("local", key, "x")])).check_network().is_ok(), "{key}");
        }
    }
}
