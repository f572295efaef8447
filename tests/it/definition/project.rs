//! A fixture's project in a folder of its own, to be changed at will; changes that many tests make.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agentd::definition::{Diagnostic, Loaded, Refused, Severity, load};
use agentd::prompt::template::Values;
use serde_json::Value;

/// A fixture's project in a folder of its own, to be changed at will.
pub struct Project {
    pub root: PathBuf,
    pub agent: PathBuf,
    _own: Option<tempfile::TempDir>,
}

impl Project {
    pub fn new(fixture: &str, agent: &str) -> Self {
        let own = tempfile::tempdir().unwrap();
        let project = Self::within(own.path(), fixture, agent);
        Self { _own: Some(own), ..project }
    }

    /// The fixture's files laid over a folder that is there.
    #[expect(clippy::disallowed_methods, reason = "fixtures in a temporary folder")]
    pub fn within(root: &Path, fixture: &str, agent: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agents").join(fixture);
        let folder = root.join(".agent").join(agent);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        copy(&from, root);
        Self { root: root.to_owned(), agent: folder, _own: None }
    }

    pub fn f0() -> Self {
        Self::new("f0", "f0")
    }

    pub fn json(&self, file: &str, change: impl FnOnce(&mut Value)) -> &Self {
        let path = self.agent.join(file);
        let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut value);
        put(&path, &serde_json::to_string_pretty(&value).unwrap());
        self
    }

    pub fn agent_json(&self, change: impl FnOnce(&mut Value)) -> &Self {
        self.json("agent.json", change)
    }

    pub fn registry(&self, change: impl FnOnce(&mut Value)) -> &Self {
        self.json("steps_registry.json", change)
    }

    pub fn write(&self, file: &str, text: &str) -> &Self {
        put(&self.agent.join(file), text);
        self
    }

    /// A program of the agent's own.
    pub fn program(&self, file: &str, text: &str) -> &Self {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(file, text);
        std::fs::set_permissions(self.agent.join(file), std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    pub fn remove(&self, file: &str) -> &Self {
        std::fs::remove_file(self.agent.join(file)).unwrap();
        self
    }

    pub fn load(&self) -> Result<Loaded, Refused> {
        load(&self.root, &self.agent, &BTreeSet::new())
    }

    pub fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|refused| panic!("refused:\n{refused}"))
    }

    /// Every finding, whether it loads or not.
    pub fn findings(&self) -> Vec<Diagnostic> {
        match self.load() {
            Ok(loaded) => loaded.diagnostics,
            Err(Refused(findings)) => findings,
        }
    }

    /// The finding of that code; it must carry a file, and a line where the file has lines.
    pub fn finds(&self, code: &str, severity: Severity) -> Diagnostic {
        let findings = self.findings();
        let all = || findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let found = findings
            .iter()
            .find(|found| found.code == code && found.severity == severity)
            .unwrap_or_else(|| panic!("no {severity:?} {code} in:\n{}", all()));
        assert_eq!(self.load().is_err(), findings.iter().any(|found| found.severity == Severity::Error));
        assert!(found.file.starts_with(".agent/") || found.file.contains(".yml"), "{found}");
        found.clone()
    }

    pub fn refused_for(&self, code: &str) -> Diagnostic {
        self.finds(code, Severity::Error)
    }
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "fixtures in a temporary folder")]
pub fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub fn codes(findings: &[Diagnostic]) -> Vec<&'static str> {
    findings.iter().map(|found| found.code).collect()
}

pub fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().copied().collect()
}
/// Ends a change whose project nobody needs any more.
pub fn done(_: &Project) {}

pub fn step(project: &Project, id: &str, change: impl FnOnce(&mut Value)) {
    project.registry(|registry| change(&mut registry["steps"][id]));
}

pub fn verdict(project: &Project, value: Value) {
    project.agent_json(|agent| agent["runner"]["verdict"] = value);
}

pub fn parameter(project: &Project, value: Value) {
    project.agent_json(|agent| agent["parameters"]["extra"] = value);
}

pub fn without(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().shift_remove(key);
}
