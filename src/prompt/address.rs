//! C3L addresses: `c1/c2/c3`, an edition and an adaptation, and the file names they stand for.

use std::fmt;

use super::PromptError;

/// Where a prompt is: `{c1 root}/{c2}/{c3}/f_{edition}[_{adaptation}].md`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PromptAddress {
    /// First level: selects the prompt root.
    pub c1: String,
    /// Second level.
    pub c2: String,
    /// Third level.
    pub c3: String,
    /// Edition.
    pub edition: String,
    /// Adaptation.
    pub adaptation: Option<String>,
}

impl PromptAddress {
    /// Reads `c1/c2/c3[:edition]`; no edition = `default`.
    pub fn parse(text: &str) -> Result<Self, PromptError> {
        let wrong = || {
            PromptError::new(
                "PR-C3L-001",
                format!("\"{text}\" is no prompt address; write it as c1/c2/c3 or c1/c2/c3:edition"),
            )
        };
        let (path, edition) = text.split_once(':').unwrap_or((text, "default"));
        let mut parts = path.split('/');
        let (Some(c1), Some(c2), Some(c3), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        if [c1, c2, c3, edition].iter().any(|part| part.is_empty()) {
            return Err(wrong());
        }
        let address =
            Self { c1: c1.into(), c2: c2.into(), c3: c3.into(), edition: edition.into(), adaptation: None };
        address.check()?;
        Ok(address)
    }

    /// Refuses parts that could leave the prompt root or name another file (T14): only letters, digits, `-` and `_`,
    /// and dots inside.
    pub fn check(&self) -> Result<(), PromptError> {
        let parts = [("c1", &self.c1), ("c2", &self.c2), ("c3", &self.c3), ("edition", &self.edition)];
        for (what, part) in
            parts.into_iter().chain(self.adaptation.iter().map(|adaptation| ("adaptation", adaptation)))
        {
            if !is_plain(part) {
                return Err(PromptError::new(
                    "PR-C3L-002",
                    format!(
                        "{what} \"{part}\" of a prompt address may hold letters, digits, \"-\" and \"_\" only"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Folder below the prompt root.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.c2, self.c3)
    }

    /// Files looked for, best first, relative to the prompt root.
    pub fn candidates(&self) -> Vec<String> {
        let folder = self.folder();
        let plain = format!("{folder}/f_{}.md", self.edition);
        match &self.adaptation {
            Some(adaptation) => vec![format!("{folder}/f_{}_{adaptation}.md", self.edition), plain],
            None => vec![plain],
        }
    }
}

impl fmt::Display for PromptAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}:{}", self.c1, self.c2, self.c3, self.edition)?;
        match &self.adaptation {
            Some(adaptation) => write!(f, "_{adaptation}"),
            None => Ok(()),
        }
    }
}

fn is_plain(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty()
        && part.chars().all(plain)
        && !part.starts_with('.')
        && !part.ends_with('.')
        && !part.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_names_its_files() {
        let mut address = PromptAddress::parse("steps/initial/issue").unwrap();
        assert_eq!(address.candidates(), ["initial/issue/f_default.md"]);
        address.adaptation = Some("label-only".into());
        assert_eq!(
            address.candidates(),
            ["initial/issue/f_default_label-only.md", "initial/issue/f_default.md"]
        );
        assert_eq!(PromptAddress::parse("a/b/c:again").unwrap().edition, "again");
        for bad in ["a/b", "a/b/c/d", "a//c", "", "a/b/c:"] {
            assert_eq!(PromptAddress::parse(bad).unwrap_err().code, "PR-C3L-001", "{bad}");
        }
    }

    #[test]
    fn t14_a_part_that_leaves_the_root_is_refused() {
        for bad in ["a/b/..", "a/../c", "a/b/c:../../x", "a/b/.hidden", "a/b/c\\d", "a/b/c d"] {
            assert!(PromptAddress::parse(bad).is_err(), "{bad}");
        }
        let mut address = PromptAddress::parse("a/b/c").unwrap();
        address.adaptation = Some("../x".into());
        assert_eq!(address.check().unwrap_err().code, "PR-C3L-002");
    }
}
