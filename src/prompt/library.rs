//! The prompt files of one root, read once and kept in memory, so that a run never reads them again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::PromptError;
use super::address::PromptAddress;
use super::template::{Template, Values};
use crate::domain::canonical::sha256_hex;

/// Largest prompt file, in bytes.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// Every `f_*.md` below a prompt root.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptLibrary {
    /// How people know the root, e.g. `.agent/resolver/prompts/steps`.
    pub shown_root: String,
    files: BTreeMap<String, PromptFile>,
}

/// One file, parsed; one that is broken keeps its error until somebody asks for it.
#[derive(Debug, Clone, PartialEq)]
struct PromptFile {
    template: Result<Template, PromptError>,
    sha256: String,
}

/// A template that was found for an address.
#[derive(Debug, Clone, Copy)]
pub struct FoundTemplate<'a> {
    /// The template.
    pub template: &'a Template,
    /// File relative to the prompt root.
    pub path: &'a str,
    /// The adaptation asked for was absent and the edition's file is used (T06).
    pub fell_back: bool,
}

/// What happens when the adaptation asked for has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentAdaptation {
    /// Error: an adaptation asked for by name in a closure step (T07, D64).
    Fail,
    /// The edition's file, and the result says so.
    FallBack,
}

/// A resolved prompt and what it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPrompt {
    /// For the model; never blank.
    pub text: String,
    /// File used, as people know it.
    pub path: String,
    /// See [`FoundTemplate::fell_back`].
    pub fell_back: bool,
    /// SHA-256 of the file.
    pub template_sha256: String,
    /// The id that git gives the file.
    pub template_blob: String,
    /// SHA-256 of the text.
    pub text_sha256: String,
    /// The variables that the template names, without `uv-`.
    pub variables: BTreeSet<String>,
}

impl ResolvedPrompt {
    /// Which template in which version: its path and git's id of its bytes (P-026).
    pub fn version(&self) -> String {
        format!("{}@{}", self.path, self.template_blob)
    }
}

impl PromptLibrary {
    /// Reads the root's files. A root that does not exist is a library without files. Blocks on disk.
    pub fn read(root: &Path, shown_root: &str) -> std::io::Result<Self> {
        let mut library = Self { shown_root: shown_root.to_owned(), files: BTreeMap::new() };
        let Ok(real_root) = root.canonicalize() else { return Ok(library) };
        let mut folders = vec![(real_root.clone(), String::new())];
        while let Some((folder, below)) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    // C3L knows two levels below a root.
                    if path.matches('/').count() < 2 {
                        folders.push((entry.path(), path));
                    }
                } else if name.starts_with("f_") && name.ends_with(".md") {
                    let file = library.read_file(&real_root, &entry.path(), &path);
                    library.files.insert(path, file);
                } else if kind.is_symlink()
                    && entry.path().is_dir()
                    && entry.path().canonicalize().is_ok_and(|real| real.starts_with(&real_root))
                {
                    folders.push((entry.path(), path));
                }
            }
        }
        Ok(library)
    }

    /// Files below a symlink are read only when they really lie below the root (T15).
    fn read_file(&self, real_root: &Path, file: &Path, path: &str) -> PromptFile {
        let shown = self.shown(path);
        let read = || -> Result<(String, Vec<u8>), PromptError> {
            let wrong = |message: String| PromptError::new("PR-FILE-001", message).in_file(&shown);
            let real: PathBuf =
                file.canonicalize().map_err(|error| wrong(format!("cannot be read: {error}")))?;
            if !real.starts_with(real_root) {
                return Err(PromptError::new(
                    "PR-C3L-002",
                    "the file is a link that leaves the prompt root; put the file itself there",
                )
                .in_file(&shown));
            }
            let about = real.metadata().map_err(|error| wrong(format!("cannot be read: {error}")))?;
            if !about.is_file() {
                return Err(wrong("is no file".into()));
            }
            let size = about.len();
            if size > LARGEST_FILE {
                return Err(wrong(format!("has {size} bytes; a prompt may have {LARGEST_FILE}")));
            }
            let bytes = std::fs::read(&real).map_err(|error| wrong(format!("cannot be read: {error}")))?;
            let text = String::from_utf8(bytes.clone()).map_err(|_| wrong("is not UTF-8".into()))?;
            Ok((text, bytes))
        };
        match read() {
            Ok((text, bytes)) => PromptFile {
                template: Template::parse(&text).map_err(|error| error.in_file(&shown)),
                sha256: sha256_hex(&bytes),
            },
            Err(error) => PromptFile { template: Err(error), sha256: String::new() },
        }
    }

    /// Finds the template of an address.
    pub fn find(
        &self,
        address: &PromptAddress,
        absent: AbsentAdaptation,
    ) -> Result<FoundTemplate<'_>, PromptError> {
        address.check()?;
        let candidates = address.candidates();
        for (index, candidate) in candidates.iter().enumerate() {
            if index > 0 && absent == AbsentAdaptation::Fail {
                break;
            }
            if let Some((path, file)) = self.files.get_key_value(candidate) {
                let template = file.template.as_ref().map_err(Clone::clone)?;
                return Ok(FoundTemplate { template, path, fell_back: index > 0 });
            }
        }
        let tried = if absent == AbsentAdaptation::Fail { &candidates[..1] } else { &candidates[..] };
        let tried = tried.iter().map(|path| self.shown(path)).collect::<Vec<_>>().join(", ");
        let hint = match (
            &address.adaptation,
            self.files.contains_key(&format!("{}/f_{}.md", address.folder(), address.edition)),
        ) {
            (Some(adaptation), true) => format!(
                "; f_{}.md exists, but closing under the adaptation \"{adaptation}\" with another prompt could do something else",
                address.edition
            ),
            _ => self.neighbours(address),
        };
        Err(PromptError::new(
            "PR-C3L-004",
            format!("there is no prompt for {address}; looked for {tried}{hint}"),
        ))
    }

    /// Every template that can be used.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.files.values().filter_map(|file| file.template.as_ref().ok())
    }

    /// Finds, renders, and tells what was used.
    pub fn resolve(
        &self,
        address: &PromptAddress,
        absent: AbsentAdaptation,
        values: &Values,
    ) -> Result<ResolvedPrompt, PromptError> {
        let found = self.find(address, absent)?;
        self.render(&found, values)
    }

    /// Renders a template that was found.
    pub fn render(&self, found: &FoundTemplate<'_>, values: &Values) -> Result<ResolvedPrompt, PromptError> {
        let shown = self.shown(found.path);
        let text = found.template.render(values).map_err(|error| error.in_file(&shown))?;
        if text.trim().is_empty() {
            return Err(PromptError::new(
                "PR-C3L-004",
                "the prompt is empty once its values are put in; write text around them",
            )
            .in_file(&shown));
        }
        Ok(ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: shown,
            fell_back: found.fell_back,
            template_sha256: found.template.sha256.clone(),
            template_blob: found.template.blob.clone(),
            variables: found.template.variable_names(),
        })
    }

    /// A file as people know it.
    pub fn shown(&self, path: &str) -> String {
        format!("{}/{path}", self.shown_root)
    }

    /// Path and SHA-256 of every file read.
    pub fn hashes(&self) -> impl Iterator<Item = (String, &str)> {
        self.files.iter().map(|(path, file)| (self.shown(path), file.sha256.as_str()))
    }

    /// The folders that have files, `c2/c3`; some more than once.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.files.keys().filter_map(|path| Some(path.rsplit_once('/')?.0))
    }

    fn neighbours(&self, address: &PromptAddress) -> String {
        let folder = format!("{}/", address.folder());
        let names: Vec<&str> = self.files.keys().filter_map(|path| path.strip_prefix(&folder)).collect();
        if names.is_empty() { String::new() } else { format!("; that folder has {}", names.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::address::PromptAddress;

    fn library(files: &[(&str, &str)]) -> (tempfile::TempDir, PromptLibrary) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            put(&path, text);
        }
        let library = PromptLibrary::read(folder.path(), "prompts/steps").unwrap();
        (folder, library)
    }

    #[expect(clippy::disallowed_methods, reason = "a fixture in a temporary folder")]
    fn put(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
    }

    fn address(adaptation: Option<&str>) -> PromptAddress {
        PromptAddress {
            adaptation: adaptation.map(str::to_owned),
            ..PromptAddress::parse("steps/initial/a").unwrap()
        }
    }

    #[test]
    fn t06_an_adaptation_is_used_or_its_absence_is_told() {
        let (_folder, library) =
            library(&[("initial/a/f_default.md", "plain"), ("initial/a/f_default_soft.md", "soft")]);
        let resolve = |adaptation| {
            library.resolve(&address(adaptation), AbsentAdaptation::FallBack, &Values::default()).unwrap()
        };
        let soft = resolve(Some("soft"));
        assert_eq!((soft.text.as_str(), soft.fell_back), ("soft", false));
        let hard = resolve(Some("hard"));
        assert_eq!((hard.text.as_str(), hard.fell_back), ("plain", true));
        assert_eq!(hard.path, "prompts/steps/initial/a/f_default.md");
        assert_eq!(hard.text_sha256, sha256_hex(b"plain"));
        assert_eq!(hard.version(), format!("{}@{}", hard.path, hard.template_blob));
    }

    #[test]
    fn t07_an_explicit_closure_adaptation_never_falls_back() {
        let (_folder, library) = library(&[("initial/a/f_default.md", "plain")]);
        let error = library.find(&address(Some("label-only")), AbsentAdaptation::Fail).unwrap_err();
        assert_eq!(error.code, "PR-C3L-004");
        assert!(error.message.contains("f_default_label-only.md"), "{error}");
    }

    #[test]
    fn t08_an_absent_edition_lists_every_path_tried() {
        let (_folder, library) = library(&[("initial/a/f_default.md", "plain")]);
        let wanted = PromptAddress { edition: "again".into(), ..address(Some("x")) };
        let error = library.find(&wanted, AbsentAdaptation::FallBack).unwrap_err();
        assert_eq!(error.code, "PR-C3L-004");
        assert!(error.message.contains("f_again_x.md") && error.message.contains("f_again.md"), "{error}");
        assert!(error.message.contains("that folder has f_default.md"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn t15_a_link_that_leaves_the_root_is_refused() {
        let outside = tempfile::tempdir().unwrap();
        put(&outside.path().join("secret.md"), "secret");
        let (folder, _) = library(&[("initial/b/f_default.md", "inside")]);
        std::fs::create_dir_all(folder.path().join("initial/a")).unwrap();
        std::os::unix::fs::symlink(
            outside.path().join("secret.md"),
            folder.path().join("initial/a/f_default.md"),
        )
        .unwrap();
        std::os::unix::fs::symlink("../b/f_default.md", folder.path().join("initial/a/f_near.md")).unwrap();
        let library = PromptLibrary::read(folder.path(), "p").unwrap();
        let error = library.find(&address(None), AbsentAdaptation::FallBack).unwrap_err();
        assert_eq!(error.code, "PR-C3L-002");
        let near = PromptAddress { edition: "near".into(), ..address(None) };
        assert_eq!(
            library.find(&near, AbsentAdaptation::FallBack).unwrap().template.body(),
            "inside",
            "a link inside the root is a file like any other"
        );
    }

    #[test]
    fn a_prompt_that_is_blank_with_its_values_is_an_error() {
        let (_folder, library) = library(&[("initial/a/f_default.md", "{uv-x}\n")]);
        let values = [("x", " ")].into_iter().collect();
        let error = library.resolve(&address(None), AbsentAdaptation::FallBack, &values).unwrap_err();
        assert_eq!(error.code, "PR-C3L-004");
    }
}
