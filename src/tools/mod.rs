//! The built-in worktree tools that a session may propose to call.

mod arguments;
mod page;
mod files_below;
mod read_file;
mod list_files;
mod search;
mod write_file;
mod run_command;
pub mod rest;
mod rest_template;

use std::ffi::OsString;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::domain::denied_files::DeniedFiles;
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::{CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::sandbox::ProcessSandbox;
use crate::sys::worktree_path::{PathError, WorktreePath, WorktreeRoot};

/// What the tools of one run work in.
#[derive(Debug, Clone)]
pub struct ToolWorld {
    /// The worktree; nothing outside it is named, read or written by a tool.
    pub root: WorktreeRoot,
    /// The whole environment of commands: an allow-list, without credentials.
    pub environment: Vec<(OsString, OsString)>,
    /// Where time comes from.
    pub clock: Clock,
    /// Ends running commands.
    pub cancel: CancellationToken,
    /// What commands run in; `None` = as they are.
    pub sandbox: Option<ProcessSandbox>,
    /// Most lines of one page.
    pub page_lines: u32,
}

/// The tools for files and commands, in the order they are offered (D16, D27). `git_status` and `git_diff` are git's.
pub fn worktree_tools(world: ToolWorld) -> Vec<Arc<dyn Tool>> {
    let world = Arc::new(world);
    [
        read_file::tool(&world),
        list_files::tool(&world),
        search::tool(&world),
        write_file::write_tool(&world),
        write_file::edit_tool(&world),
        run_command::tool(&world),
    ]
    .into_iter()
    .map(|tool| Arc::new(tool) as Arc<dyn Tool>)
    .collect()
}

type Action = fn(Arc<ToolWorld>, Value, Allowed) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;

/// What a call may use and show.
struct Allowed {
    limits: CallLimits,
    /// Files that it must not show, whatever folder it names.
    denied: DeniedFiles,
    /// The paths that it is allowed for.
    judged: JudgedPaths,
}

/// A built-in: what it looks like, and what it does.
struct BuiltIn {
    spec: ToolSpec,
    risk: Risk,
    world: Arc<ToolWorld>,
    action: Action,
}

impl BuiltIn {
    fn new(
        world: &Arc<ToolWorld>,
        risk: Risk,
        action: Action,
        name: &str,
        about: impl Into<String>,
        parameters: Value,
    ) -> Self {
        let spec = ToolSpec { name: name.to_owned(), description: about.into(), parameters };
        Self { spec, risk, world: Arc::clone(world), action }
    }
}

impl Tool for BuiltIn {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn only_file(&self, arguments: &Value) -> Option<String> {
        let named = arguments.get("path").filter(|_| self.risk == Risk::Write)?.as_str()?;
        Some(self.world.root.resolve(named).ok()?.relative())
    }

    fn call<'a>(&'a self, permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        let (denied, judged) = permit.into_files();
        let allowed = Allowed { limits, denied, judged };
        (self.action)(Arc::clone(&self.world), arguments.clone(), allowed)
    }
}

impl ToolWorld {
    /// The place a model names, or the refusal: also of a link that was put there since the policy allowed the call.
    fn resolve(&self, named: &str, judged: &JudgedPaths) -> Result<WorktreePath, ToolError> {
        let place = self.root.resolve(named).map_err(path_error)?;
        match judged.has(&place.relative()) {
            true => Ok(place),
            false => Err(path_error(place.changed())),
        }
    }
}

/// A path error as the model hears it; none of them names anything outside the worktree.
fn path_error(error: PathError) -> ToolError {
    match (&error, error.code()) {
        (_, Some(code)) => ToolError::Refused { code: code.to_owned(), message: error.to_string() },
        (PathError::Io { source, .. }, _) if source.kind() == std::io::ErrorKind::NotFound => {
            ToolError::ForModel {
                error_type: "ResourceNotFound".into(),
                message: format!("{error}; list_files shows what is there"),
            }
        }
        (PathError::Io { source, .. }, _) if files::is_for_want_of_room(source) => {
            ToolError::NoRoom(error.to_string())
        }
        _ => ToolError::for_model(error.to_string()),
    }
}

/// Runs disk work off the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::Fatal(format!("a tool's task was lost: {error}")))?
}

#[cfg(test)]
mod world_for_tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::paths::AbsPath;

    pub(super) struct World {
        pub dir: tempfile::TempDir,
        pub world: Arc<ToolWorld>,
        pub tools: Vec<BuiltIn>,
    }

    /// A worktree in a folder, with a secret beside it.
    pub(super) fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let home = AbsPath::new(dir.path()).unwrap();
        files::create_dir(home.join("tree").as_path()).unwrap();
        files::write_public(home.join("secret").as_path(), b"the secret\n").unwrap();
        let world = Arc::new(ToolWorld {
            page_lines: 500,
            root: WorktreeRoot::open(&home.join("tree")).unwrap(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            clock: Clock::system(),
            cancel: CancellationToken::new(),
            sandbox: None,
        });
        let tools = vec![
            read_file::tool(&world),
            list_files::tool(&world),
            search::tool(&world),
            write_file::write_tool(&world),
            write_file::edit_tool(&world),
            run_command::tool(&world),
        ];
        World { dir, world, tools }
    }

    impl World {
        pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
            let path = self.world.root.path().join(path);
            files::create_dir(path.parent().unwrap().as_path()).unwrap();
            files::write_public(path.as_path(), content.as_ref()).unwrap();
        }

        pub(super) fn read(&self, path: &str) -> Vec<u8> {
            std::fs::read(self.world.root.path().join(path).as_path()).unwrap()
        }

        /// A call as the gate would make it, schema included.
        pub(super) async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
            self.call_within(name, arguments, Duration::from_secs(20)).await
        }

        pub(super) async fn call_within(
            &self,
            name: &str,
            arguments: Value,
            timeout: Duration,
        ) -> Result<ToolOutput, ToolError> {
            let tool = self.tools.iter().find(|tool| tool.spec.name == name).unwrap();
            let schema = jsonschema::validator_for(&tool.spec.parameters).unwrap();
            assert!(schema.is_valid(&arguments), "{name} {arguments}");
            let limits = CallLimits { timeout, max_inline_bytes: 12_288 };
            let (denied, judged) = (DeniedFiles::default(), JudgedPaths::default());
            let allowed = Allowed { limits, denied, judged };
            (tool.action)(Arc::clone(&self.world), arguments, allowed).await
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn s_055_no_tool_takes_a_path_out_of_the_worktree() {
        let place = world_for_tests::world();
        place.write("a.txt", "a");
        #[cfg(unix)]
        std::os::unix::fs::symlink(place.dir.path(), place.world.root.path().join("out").as_path()).unwrap();
        let absolute = place.dir.path().join("secret").display().to_string();
        for path in
            ["../secret", "out/secret", "/etc/passwd", absolute.as_str(), ".git/config", "a.txt/../../secret"]
        {
            for (tool, arguments) in [
                ("read_file", json!({"path": path})),
                ("list_files", json!({"path": path})),
                ("search", json!({"pattern": "x", "path": path})),
                ("write_file", json!({"path": path, "content": "x"})),
                ("edit_file", json!({"path": path, "old": "secret", "new": "x"})),
            ] {
                let error = place.call(tool, arguments).await.expect_err(path);
                let refused =
                    matches!(&error, ToolError::Refused { code, .. } if code == "path_outside_worktree");
                assert!(refused, "{tool} {path}: {error:?}");
            }
        }
        assert_eq!(std::fs::read(place.dir.path().join("secret")).unwrap(), b"the secret\n");
    }

    #[test]
    fn a_full_disk_or_quota_is_no_answer_for_the_model() {
        for (kind, is_no_room) in [
            (std::io::ErrorKind::StorageFull, true),
            (std::io::ErrorKind::QuotaExceeded, true),
            (std::io::ErrorKind::FileTooLarge, false),
        ] {
            let error = path_error(PathError::Io { named: "a.txt".into(), source: kind.into() });
            assert_eq!(matches!(error, ToolError::NoRoom(_)), is_no_room, "{error:?}");
        }
    }

    #[test]
    fn s_051_every_schema_is_closed_and_every_name_is_short() {
        let place = world_for_tests::world();
        for tool in &place.tools {
            assert_eq!(tool.spec.parameters["type"], "object");
            assert_eq!(tool.spec.parameters["additionalProperties"], false, "{}", tool.spec.name);
            assert!(tool.spec.name.len() <= 64);
            jsonschema::meta::validate(&tool.spec.parameters).unwrap();
        }
        let names: Vec<_> = place.tools.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, ["read_file", "list_files", "search", "write_file", "edit_file", "run_command"]);
    }
}
