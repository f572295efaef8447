//! The agent program of a run behind the engine's seam: one tool, `exec_agent__<backend>`, and git's word on its work.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::enclosure::Enclosure;
use super::run::Run;
use super::site::Site;
use crate::agents::doorway::{Doorway, Entry, Way};
use crate::agents::launch::{AgentError, Launch};
use crate::agents::wish;
use crate::domain::agent_program::{AgentProgram, Backend, Permissions};
use crate::domain::flow::StepId;
use crate::domain::message::ToolSpec;
use crate::domain::model_traffic::ModelTraffic;
use crate::domain::name::CommitId;
use crate::domain::policy::Risk;
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::agent_task::{AgentBackend, AgentTask};
use crate::engine::agent_visit::POLICY_DENIED;
use crate::engine::gate::Permission;
use crate::engine::queue::AGENT_QUEUE;
use crate::engine::tool::{CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::git::GitError;
use crate::git::caged::Taken;
use crate::git::worktree::Worktree;
use crate::proxy::meter::Meter;
use crate::sys::cage::{self, Caged};
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// What a program inherits of agentd's environment without being asked; nothing secret is among it.
const INHERITED: [&str; 7] = ["PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL"];

/// The programs that work on steps, by step; every other step is agentd's own session's.
pub fn backends(
    run: &Run<'_>,
    site: &Site,
    worktree: &Worktree,
    enclosure: &Arc<Enclosure>,
) -> Result<BTreeMap<StepId, AgentBackend>, Stop> {
    let opened = Arc::new(AtomicU32::new(0));
    let mut made = Vec::new();
    for place in 0..run.plan.executors.programs().len() {
        made.push(backend(run, site, worktree, enclosure, (place, &opened))?);
    }
    let steps = run.plan.executors.steps();
    Ok(steps.filter_map(|(step, place)| Some((step.clone(), made.get(place)?.clone()))).collect())
}

/// One program, `place` its own among the run's; `opened` counts the launches of all.
fn backend(
    run: &Run<'_>,
    site: &Site,
    worktree: &Worktree,
    enclosure: &Arc<Enclosure>,
    (place, opened): (usize, &Arc<AtomicU32>),
) -> Result<AgentBackend, Stop> {
    let program = &run.plan.executors.programs()[place];
    if let Err(error) = enclosure.furnish(place, program, &site.env) {
        let message = format!("The program's private home cannot be made: {error}.");
        return Err(Stop::new(StopDetail::ConfigInvalid, message));
    }
    let (door, caged) = door(run, enclosure.caged_agent(place, program, site), program, (site, enclosure))?;
    let launch = Launch {
        cwd: worktree.path().clone(),
        environment: environment(run, site, program, (enclosure.agent_home(place), caged.is_some())),
        home: enclosure.agent_home(place),
        caged,
        counted: Arc::new(std::sync::Mutex::new(BTreeMap::new())),
        program: program.clone(),
    };
    let shared = Arc::new(Shared {
        spec: spec(program),
        launch,
        door,
        opened: Arc::clone(opened),
        meter: enclosure.meter(place),
        run_id: run.lease.run_id,
        worktree: worktree.clone(),
        enclosure: Arc::clone(enclosure),
    });
    Ok(AgentBackend {
        name: program.backend.as_str().to_owned(),
        resumes: program.backend.resumes(),
        asks_again: program.backend != Backend::Command,
        serves_tools: shared.door.is_some(),
        time_limit: program.time_limit,
        model: program.model.clone(),
        conversations: Arc::default(),
        launch: Arc::new(move |task| Arc::new(ExecAgent { shared: Arc::clone(&shared), task })),
    })
}

/// Where agentd's own tools are served to the program, and its cage with a way there. A program that goes without them
/// is told about.
fn door(
    run: &Run<'_>,
    mut caged: Option<Caged>,
    program: &AgentProgram,
    (site, enclosure): (&Site, &Enclosure),
) -> Result<(Option<Door>, Option<Caged>), Stop> {
    if !program.tools {
        return Ok((None, caged));
    }
    let agentd = site.env.program().and_then(|path| AbsPath::new(path).ok());
    let (true, Some(agentd)) = (cfg!(unix), agentd) else {
        run.warn(
            "no_tools_for_agent",
            "agentd's own tools cannot be served to the agent program here.".to_owned(),
        );
        return Ok((None, caged));
    };
    let unusable = |error: String| {
        let message = format!("The way to agentd's tools cannot be made: {error}.");
        Stop::new(StopDetail::Internal, message)
    };
    let folder = enclosure.door();
    files::create_private_dir(folder.as_path()).map_err(|error| unusable(error.to_string()))?;
    let (mut shown, mut way) = (folder.clone(), Way::Socket);
    if let Some(caged) = &mut caged {
        caged.walls.readable.push(agentd.clone());
        if caged.cage.has_sockets() {
            shown = AbsPath::new(DOOR_INSIDE).map_err(|error| unusable(error.to_string()))?;
            caged.walls.shown_read_only.push((folder.clone(), shown.clone()));
        } else {
            // Landlock cannot tell one socket from another, so that there are none: pipes are files like others.
            way = Way::Pipes;
            caged.walls.writable.push(folder.clone());
            caged.walls.pipes.push(folder.clone());
        }
    }
    Ok((Some(Door { folder, shown, way, agentd }), caged))
}

/// What the program is given: an allow-list, its own home, and the variables that the definition names.
fn environment(
    run: &Run<'_>,
    site: &Site,
    program: &AgentProgram,
    (home, is_caged): (AbsPath, bool),
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    let named = program.environment.iter().map(String::as_str);
    for name in INHERITED.into_iter().chain(named) {
        if let Some(value) = site.env.get(name) {
            all.push((name.into(), value.into()));
        }
    }
    all.extend(super::toolchains::homes(&site.env));
    all.push(("HOME".into(), home.as_path().into()));
    all.push(("TERM".into(), "dumb".into()));
    all.push(("NO_COLOR".into(), "1".into()));
    all.push(("CI".into(), "1".into()));
    if is_caged {
        // Claude Code lets root skip its own questions only where it is told that it stands in a cage.
        all.push(("IS_SANDBOX".into(), "1".into()));
    }
    all.push(run.mark());
    all
}

fn spec(program: &AgentProgram) -> ToolSpec {
    ToolSpec {
        name: program.tool_name(),
        description: format!("Starts the agent program {} on a step's prompt.", program.backend.as_str()),
        parameters: json!({
            "type": "object",
            "properties": {
                "step": {"type": "string"},
                "prompt_sha256": {"type": "string"},
                "goes_on": {"type": "boolean"},
            },
            "required": ["step", "prompt_sha256", "goes_on"],
            "additionalProperties": false,
        }),
    }
}

/// Longest time of one launch where nothing else says: the run's wall time comes first.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Refused paths that people are told.
const LONGEST_LIST: usize = 10;

/// Where the folder of the sockets is in the cage.
const DOOR_INSIDE: &str = "/run/agentd";

/// Where agentd's own tools are served.
struct Door {
    /// Holds a socket a launch.
    folder: AbsPath,
    /// The folder as the program sees it.
    shown: AbsPath,
    /// What the program can open there.
    way: Way,
    /// agentd itself, whose `mcp` command is the other end.
    agentd: AbsPath,
}

/// What all launches of a run share.
struct Shared {
    spec: ToolSpec,
    launch: Launch,
    door: Option<Door>,
    /// Launches of the run so far.
    opened: Arc<AtomicU32>,
    /// What it asks of models, where agentd sees it.
    meter: Option<Meter>,
    run_id: RunId,
    worktree: Worktree,
    enclosure: Arc<Enclosure>,
}

/// One launch.
struct ExecAgent {
    shared: Arc<Shared>,
    task: AgentTask,
}

impl Tool for ExecAgent {
    fn spec(&self) -> &ToolSpec {
        &self.shared.spec
    }

    fn source(&self) -> &str {
        self.shared.launch.program.backend.as_str()
    }

    fn risk(&self) -> Risk {
        Risk::Exec
    }

    fn queue(&self) -> Option<&str> {
        Some(AGENT_QUEUE)
    }

    fn call<'a>(&'a self, _permit: Permit, _arguments: &'a Value, _limits: CallLimits) -> ToolCalled<'a> {
        Box::pin(self.launched())
    }
}

/// What git says of the worktree.
#[derive(PartialEq)]
struct State {
    head: String,
    tree: String,
}

impl ExecAgent {
    async fn launched(&self) -> Result<ToolOutput, ToolError> {
        let shared = &self.shared;
        let before = self.state().await.map_err(|error| git_failed(&error))?;
        let number = shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let began = format!("refs/agentd/launches/{}", shared.run_id);
        let base = shared
            .worktree
            .checkpoint(&began, "Before an agent program\n")
            .await
            .map_err(|error| git_failed(&error))?;
        let open = self.open_door(number)?;
        let traffic = shared.meter.as_ref().map(Meter::begin);
        let mut launch = shared.launch.clone();
        if self.task.read_only {
            launch.caged = launch.caged.map(|caged| shared.enclosure.reading(caged));
        }
        let running = launch.run(&self.task, open.as_ref().map(|(entry, _)| entry));
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            why = self.beyond_its_limits(traffic.clone()) => Err(AgentError::Itself(why)),
        };
        if let Some(traffic) = traffic {
            self.task.progress.tell(|said| said.seen = traffic.borrow().clone());
        }
        let refused = self.refused_edits(&base).await.map_err(|error| git_failed(&error))?;
        if !refused.is_empty() {
            return Err(self.put_aside(&base, number, &refused).await);
        }
        let taken = shared.enclosure.take_commits().await.map_err(|error| git_failed(&error))?;
        let after = self.state().await.map_err(|error| git_failed(&error))?;
        let changed = after != before;
        match ended {
            Ok(exit_code) => {
                let said = self.task.progress.so_far();
                let facts = json!({
                    "opaque": true,
                    "agent": shared.launch.program.backend.as_str(),
                    "sandbox": cage::name(shared.launch.caged.as_ref()),
                    "conversation": said.conversation,
                    "turns": said.turns,
                    "changed": changed,
                    "committed_itself": before.head != after.head,
                    "commits_left": match &taken { Taken::Left(why) => Some(why), _ => None },
                    "tree_before": before.tree,
                    "tree_after": after.tree,
                });
                Ok(ToolOutput { text: said.text, exit_code, facts: Some(facts) })
            }
            Err(error) => {
                let left = if changed { "it changed the worktree before" } else { "it changed nothing" };
                Err(ToolError::for_model(format!("{error}; {left}")))
            }
        }
    }

    /// Passes on what the program asks of models, and ends with the limit of its own that it passed.
    async fn beyond_its_limits(&self, mut traffic: Option<watch::Receiver<ModelTraffic>>) -> String {
        let program = &self.shared.launch.program;
        let mut said = self.task.progress.changes();
        let over = tokio::time::sleep(program.time_limit.unwrap_or(FAR));
        tokio::pin!(over);
        loop {
            let seen = traffic.as_mut().map(|traffic| traffic.borrow_and_update().clone());
            if let Some(seen) = seen.filter(|seen| *seen != self.task.progress.so_far().seen) {
                if seen.refused > 0 {
                    let most = program.max_requests.unwrap_or_default();
                    return format!(
                        "it made the {most} requests to models that program.maxRequests lets it, and was ended"
                    );
                }
                self.task.progress.tell(|said| said.seen = seen);
            }
            let used = said.borrow_and_update().tokens().map_or(0, |used| used.total_tokens);
            if let Some(most) = program.max_tokens.filter(|most| used > *most) {
                return format!(
                    "it used {used} tokens, more than the {most} of program.maxTokens, and was ended"
                );
            }
            let asked = async {
                match traffic.as_mut().map(watch::Receiver::changed) {
                    Some(changed) => changed.await.is_ok(),
                    None => false,
                }
            };
            tokio::select! {
                () = &mut over => {
                    let limit = program.time_limit.unwrap_or_default().as_secs();
                    return format!("it took longer than its {limit} s and was ended");
                }
                true = asked => {}
                Ok(()) = said.changed() => {}
                else => return std::future::pending().await,
            }
        }
    }

    /// A way to agentd's tools for this launch, open until it is dropped.
    fn open_door(&self, launch: u32) -> Result<Option<(Entry, Doorway)>, ToolError> {
        let Some(door) = &self.shared.door else { return Ok(None) };
        let name = format!("mcp-{launch}");
        let program = &self.shared.launch.program;
        let permissions =
            program.backend == Backend::ClaudeCode && program.permissions == Permissions::Policy;
        let doorway = Doorway::open(&door.folder, (&name, door.way), &self.task.tools, permissions).map_err(
            |error| ToolError::for_model(format!("the way to agentd's tools cannot be opened: {error}")),
        )?;
        let entry = Entry {
            agentd: door.agentd.to_string(),
            socket: door.shown.join(&name).to_string(),
            home: self.shared.launch.home.clone(),
        };
        Ok(Some((entry, doorway)))
    }

    /// What it changed although the policy denies it: its own tools ask nobody, so the rules of `write_file` are held
    /// against what git sees. What no rule speaks of is covered by the rule that let it start. A step that only plans may
    /// change nothing at all.
    async fn refused_edits(&self, base: &CommitId) -> Result<Vec<String>, GitError> {
        let changes = self.shared.worktree.changes(base).await?;
        let mut refused = Vec::new();
        for change in changes {
            if self.task.read_only {
                refused.push(format!("{} (the step only plans)", change.path));
                continue;
            }
            for path in [Some(change.path), change.from].into_iter().flatten() {
                if let Permission::Denied(why) = self.task.tools.permit(wish::edit(&path)).await {
                    refused.push(format!("{path} ({why})"));
                }
            }
        }
        Ok(refused)
    }

    /// Takes the whole launch back: nothing of it stays on the branch, all of it on a ref that is never pushed.
    async fn put_aside(&self, base: &CommitId, launch: u32, refused: &[String]) -> ToolError {
        let shared = &self.shared;
        shared.enclosure.refuse_commits();
        let kept = format!("refs/agentd/refused/{}/{launch}", shared.run_id);
        let told = match shared.worktree.restore(base, &kept, true).await {
            Ok(_) => format!("all its changes were taken back and are kept on {kept}"),
            Err(error) => format!("its changes could not be taken back ({error})"),
        };
        let shown = refused.iter().take(LONGEST_LIST).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = refused.len().saturating_sub(LONGEST_LIST);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        ToolError::ForModel {
            error_type: POLICY_DENIED.to_owned(),
            message: format!("it changed what the policy does not let it change: {shown}{more}; {told}"),
        }
    }

    async fn state(&self) -> Result<State, GitError> {
        let worktree = &self.shared.worktree;
        let head = worktree.head().await?.map(|head| head.to_string()).unwrap_or_default();
        Ok(State { head, tree: worktree.tree().await? })
    }
}

fn git_failed(error: &GitError) -> ToolError {
    ToolError::for_model(format!("git could not say what the program did: {error}"))
}
