//! The agent program of a run behind the engine's seam: one tool, `exec_agent__<backend>`, and git's word on its work.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::run_sandbox::RunSandbox;
use crate::agents::launch::{AgentError, Launch};
use crate::agents::permission_request;
use crate::agents::tool_bridge::{Entry, ToolBridge, Transport};
use crate::domain::agent_program::{AgentProgram, Asks, Permissions};
use crate::domain::call_scope::judged_name;
use crate::domain::egress::Egress;
use crate::domain::flow::StepId;
use crate::domain::message::ToolSpec;
use crate::domain::model_traffic::ModelTraffic;
use crate::domain::name::CommitId;
use crate::domain::policy::Risk;
use crate::domain::run::RunId;
use crate::domain::step_executors::StepExecutors;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::agent_output::AgentProgress;
use crate::engine::agent_task::{AgentBackend, AgentTask};
use crate::engine::agent_tools::PermissionRequest;
use crate::engine::agent_visit::POLICY_DENIED;
use crate::engine::model_orders::SetAside;
use crate::engine::queue::AGENT_QUEUE;
use crate::engine::ruling::Permission;
use crate::engine::tool::{CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::git::inside_git::InsideGit;
use crate::git::sandbox_git::Taken;
use crate::git::worktree::{Standing, Worktree};
use crate::git::{self, GitError};
use crate::proxy::meter::{Meter, Paid, Purse};
use crate::record::run_journal::RunJournal;
use crate::record::summary_text::ONLY_PLANS;
use crate::repository::context::RepositoryContext;
use crate::repository::resources::run_mark;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::sandbox::{self, ProcessSandbox};

/// Variables of agentd's environment that every program inherits. None of them is secret.
const INHERITED: [&str; 7] = ["PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL"];

/// Variable that names the folder with what the run was told.
const BRIEFING: &str = "AGENTD_BRIEFING";

/// What the agent programs of a run are started with.
#[derive(Clone, Copy)]
pub struct Workplace<'a> {
    /// Who works on which step.
    pub executors: &'a StepExecutors,
    /// The run.
    pub run_id: RunId,
    /// Its journal, for notes.
    pub journal: &'a RunJournal,
    /// Its repository.
    pub context: &'a RepositoryContext,
    /// Its worktree.
    pub worktree: &'a Worktree,
    /// The commit that its work started from.
    pub origin: &'a CommitId,
    /// What holds the programs.
    pub sandbox: &'a Arc<RunSandbox>,
}

/// The programs that work on steps, by step. agentd's own session works on every other step.
pub fn backends(at: Workplace<'_>) -> Result<BTreeMap<StepId, AgentBackend>, Stop> {
    let opened = Arc::new(AtomicU32::new(0));
    let mut made = Vec::new();
    for place in 0..at.executors.programs().len() {
        made.push(backend(at, (place, &opened))?);
    }
    let steps = at.executors.steps();
    Ok(steps.filter_map(|(step, place)| Some((step.clone(), made.get(place)?.clone()))).collect())
}

/// One program. `place` is its number in the run; `opened` counts the launches of all programs.
fn backend(at: Workplace<'_>, (place, opened): (usize, &Arc<AtomicU32>)) -> Result<AgentBackend, Stop> {
    let Workplace { context, sandbox, .. } = at;
    let program = &at.executors.programs()[place];
    if let Err(error) = sandbox.fill_home(place, program, &context.env) {
        let message = format!("The program's private home cannot be made: {error}.");
        return Err(Stop::new(StopDetail::ConfigInvalid, message));
    }
    let (door, confined) = door(at, sandbox.of_agent(place, program, context), program)?;
    let launch = Launch {
        cwd: at.worktree.path().clone(),
        environment: environment(at, program, (sandbox.agent_home(place), confined.is_some())),
        home: sandbox.agent_home(place),
        sandbox: confined,
        counted: Arc::new(std::sync::Mutex::new(BTreeMap::new())),
        paid: Arc::default(),
        program: program.clone(),
    };
    let stand_ins = stand_ins(at, &launch);
    let seen_whole = launch.sandbox.is_some() && program.network == Egress::Nothing;
    let shared = Arc::new(Shared {
        spec: spec(program),
        launch,
        door,
        opened: Arc::clone(opened),
        meter: sandbox.meter(place),
        run_id: at.run_id,
        worktree: at.worktree.clone(),
        sandbox: Arc::clone(sandbox),
    });
    Ok(AgentBackend {
        name: program.backend.as_str().to_owned(),
        resumes: program.backend.facts().resumes,
        asks_again: program.backend.facts().tells,
        serves_tools: shared.door.is_some(),
        time_limit: program.time_limit,
        model: program.model.clone(),
        seen_whole,
        conversations: Arc::default(),
        stand_ins,
        launch: Arc::new(move |task| Arc::new(ExecAgent { shared: Arc::clone(&shared), task })),
    })
}

/// A program in a sandbox has git look from there.
fn stand_ins(at: Workplace<'_>, launch: &Launch) -> Vec<Arc<dyn Tool>> {
    let Some(sandbox) = launch.sandbox.clone() else { return Vec::new() };
    let (root, environment) = (launch.cwd.clone(), launch.environment.clone());
    let inside = InsideGit { root, sandbox, environment };
    git::tools::tools_inside((at.worktree, inside), at.origin, at.context.config.page_lines())
}

/// Where agentd's own tools are served to the program, and its sandbox with a way there. A note says if a program works
/// without them.
fn door(
    at: Workplace<'_>,
    mut confined: Option<ProcessSandbox>,
    program: &AgentProgram,
) -> Result<(Option<Door>, Option<ProcessSandbox>), Stop> {
    if !program.tools {
        return Ok((None, confined));
    }
    let agentd = at.context.env.program().and_then(|path| AbsPath::new(path).ok());
    let (true, Some(agentd)) = (cfg!(unix), agentd) else {
        at.journal.warn(
            "no_tools_for_agent",
            "agentd's own tools cannot be served to the agent program here.".to_owned(),
        );
        return Ok((None, confined));
    };
    let unusable = |error: String| {
        let message = format!("The way to agentd's tools cannot be made: {error}.");
        Stop::new(StopDetail::Internal, message)
    };
    let folder = at.sandbox.door();
    files::create_private_dir(folder.as_path()).map_err(|error| unusable(error.to_string()))?;
    let (mut shown, mut way) = (folder.clone(), Transport::Socket);
    if let Some(confined) = &mut confined {
        confined.walls.readable.push(agentd.clone());
        if confined.mechanism.has_sockets() {
            shown = AbsPath::new(DOOR_INSIDE).map_err(|error| unusable(error.to_string()))?;
            confined.walls.shown_read_only.push((folder.clone(), shown.clone()));
        } else {
            // Landlock cannot tell one socket from another, so none are allowed. Pipes are files and can be allowed.
            way = Transport::Pipes;
            confined.walls.writable.push(folder.clone());
            confined.walls.pipes.push(folder.clone());
        }
    }
    Ok((Some(Door { folder, shown, way, agentd }), confined))
}

/// The environment of the program: an allow-list, its own home, and the variables that the definition names.
fn environment(
    at: Workplace<'_>,
    program: &AgentProgram,
    (home, is_confined): (AbsPath, bool),
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    let named = program.environment.iter().map(String::as_str);
    for name in INHERITED.into_iter().chain(named) {
        if let Some(value) = at.context.env.get(name) {
            all.push((name.into(), value.into()));
        }
    }
    all.extend(super::toolchains::homes(&at.context.env));
    all.push(("HOME".into(), home.as_path().into()));
    all.push(("TERM".into(), "dumb".into()));
    all.push(("NO_COLOR".into(), "1".into()));
    all.push(("CI".into(), "1".into()));
    if is_confined {
        // Claude Code lets root skip its permission requests only if it is told that it is in a sandbox.
        all.push(("IS_SANDBOX".into(), "1".into()));
    }
    all.push((BRIEFING.into(), at.sandbox.briefing().as_path().into()));
    all.push(run_mark(at.run_id));
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
                "goes_on": {"type": "boolean"},
            },
            "required": ["step", "goes_on"],
            "additionalProperties": false,
        }),
    }
}

/// The longest time of one launch by default. The wall time of the run may end it earlier.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long replies to a program that has ended may take to end.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// Refused paths that people are told.
const LONGEST_LIST: usize = 10;

/// The path of the socket folder inside the sandbox.
const DOOR_INSIDE: &str = "/run/agentd";

/// Where agentd's own tools are served.
struct Door {
    /// Holds a socket a launch.
    folder: AbsPath,
    /// The folder as the program sees it.
    shown: AbsPath,
    /// What the program can open there.
    way: Transport,
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
    sandbox: Arc<RunSandbox>,
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

/// Money of a request, which is given back behind what its reply counts.
struct Told {
    progress: AgentProgress,
    traffic: watch::Receiver<ModelTraffic>,
    _set_aside: SetAside,
}

impl Drop for Told {
    fn drop(&mut self) {
        tell_seen(&self.progress, Some(&self.traffic));
    }
}

/// Tells what is counted by now. It is read while it is told, so that nothing older comes behind something newer.
fn tell_seen(progress: &AgentProgress, traffic: Option<&watch::Receiver<ModelTraffic>>) {
    if let Some(traffic) = traffic {
        progress.tell(|said| said.seen = traffic.borrow().clone());
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
        let stood = shared.worktree.standing().await.map_err(|error| git_failed(&error))?;
        let number = shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let began = format!("refs/agentd/launches/{}", shared.run_id);
        let base = shared
            .worktree
            .checkpoint(&began, "Before an agent program\n")
            .await
            .map_err(|error| git_failed(&error))?;
        let open = self.open_door(number)?;
        let traffic =
            shared.meter.as_ref().map(|meter| meter.begin(self.task.earlier.requests, self.purse()));
        let mut launch = shared.launch.clone();
        if self.task.read_only {
            launch.sandbox = launch.sandbox.map(|confined| shared.sandbox.reading(confined));
        }
        let running = launch.run(&self.task, open.as_ref().map(|(entry, _)| entry));
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            why = self.beyond_its_limits(traffic.clone()) => Err(AgentError::Itself(why)),
        };
        if let Some(mut traffic) = traffic {
            // Replies that the program left are closed a moment after it.
            drop(
                tokio::time::timeout(LAST_REPLIES, traffic.wait_for(|traffic| traffic.under_way == 0)).await,
            );
            tell_seen(&self.task.progress, Some(&traffic));
        }
        let mut refused = self.refused_edits(&base).await.map_err(|error| git_failed(&error))?;
        let kept = self.taken_back(&stood, number).await.map_err(|error| git_failed(&error))?;
        if kept.is_some() {
            refused.push(format!("the branch {} {ONLY_PLANS}", shared.worktree.branch()));
        }
        if !refused.is_empty() {
            return Err(self.put_aside((&base, kept.unwrap_or_default()), number, &refused).await);
        }
        if shared.launch.sandbox.is_none() {
            // It committed on the branch itself, and what other programs see of the branch follows it.
            shared.sandbox.follow_branch_from(&before.head).await.map_err(|error| git_failed(&error))?;
        }
        let taken = shared.sandbox.take_commits().await.map_err(|error| git_failed(&error))?;
        let after = self.state().await.map_err(|error| git_failed(&error))?;
        let changed = after != before;
        match ended {
            Ok(exit_code) => {
                let said = self.task.progress.so_far();
                let facts = json!({
                    "opaque": true,
                    "agent": shared.launch.program.backend.as_str(),
                    "sandbox": sandbox::name(shared.launch.sandbox.as_ref()),
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
                let left = match changed {
                    true => "it changed the worktree before",
                    false if shared.sandbox.holds_more() => {
                        "it changed no file, and left work in a stash or on a branch of its own"
                    }
                    false => "it changed nothing",
                };
                Err(ToolError::for_model(format!("{error}; {left}")))
            }
        }
    }

    /// What its requests to models are paid from. A reply is told before its money is given back, so that it is always counted as the
    /// one or the other.
    fn purse(&self) -> Option<Purse> {
        let orders = self.task.orders.clone()?;
        let progress = self.task.progress.clone();
        Some(Arc::new(move |asked, traffic| {
            let (orders, progress) = (orders.clone(), progress.clone());
            Box::pin(async move {
                let set_aside = orders.set_aside(asked).await?;
                let longest = set_aside.longest;
                let told = Told { progress, traffic, _set_aside: set_aside };
                Ok(Paid { set_aside: Box::new(told), longest })
            })
        }))
    }

    /// Passes on what the program reports about its requests to models. Ends when the program exceeds one of its own
    /// limits.
    async fn beyond_its_limits(&self, mut traffic: Option<watch::Receiver<ModelTraffic>>) -> String {
        let program = &self.shared.launch.program;
        let mut said = self.task.progress.changes();
        let earlier = self.task.earlier;
        let over = program.time_limit.map_or(FAR, |limit| limit.saturating_sub(earlier.time));
        let over = tokio::time::sleep(over);
        tokio::pin!(over);
        loop {
            let seen = traffic.as_mut().map(|traffic| traffic.borrow_and_update().clone());
            if let Some(seen) = seen {
                // That may be told already: whoever gives money back tells what is counted by then.
                if seen.refused > 0 {
                    let most = program.max_requests.unwrap_or_default();
                    return format!(
                        "it made the {most} requests to models that program.maxRequests lets it, and was ended"
                    );
                }
                if seen != self.task.progress.so_far().seen {
                    tell_seen(&self.task.progress, traffic.as_ref());
                }
            }
            let used = said.borrow_and_update().tokens().map_or(0, |used| used.total_tokens);
            let used = earlier.tokens.saturating_add(used);
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
                    return format!("it took longer than its {limit} s (program.timeLimit) and was ended");
                }
                true = asked => {}
                Ok(()) = said.changed() => {}
                else => return std::future::pending().await,
            }
        }
    }

    /// A way to agentd's tools for this launch, open until it is dropped.
    fn open_door(&self, launch: u32) -> Result<Option<(Entry, ToolBridge)>, ToolError> {
        let Some(door) = &self.shared.door else { return Ok(None) };
        let name = format!("mcp-{launch}");
        let program = &self.shared.launch.program;
        let by_tool = program.backend.facts().asks == Some(Asks::PermissionTool);
        let permissions = by_tool && program.permissions == Permissions::Policy;
        let bridge = ToolBridge::open(&door.folder, (&name, door.way), &self.task.tools, permissions)
            .map_err(|error| {
                ToolError::for_model(format!("the way to agentd's tools cannot be opened: {error}"))
            })?;
        let entry = Entry {
            agentd: door.agentd.to_string(),
            socket: door.shown.join(&name).to_string(),
            home: self.shared.launch.home.clone(),
        };
        Ok(Some((entry, bridge)))
    }

    /// Changes that the policy denies. The program's own tools do not pass the gate, so the rules of `write_file` are
    /// checked against what git sees. Paths without a rule are covered by the rule that let the program start. A step
    /// that only plans may change nothing.
    async fn refused_edits(&self, base: &CommitId) -> Result<Vec<String>, GitError> {
        let changes = self.shared.worktree.changes(base).await?;
        let mut refused = Vec::new();
        for change in changes {
            if self.task.read_only {
                refused.push(format!("{} {ONLY_PLANS}", change.path));
                continue;
            }
            for path in [Some(change.path), change.from].into_iter().flatten() {
                if let Permission::Denied(why) = self.task.tools.permit(made(&path)).await {
                    refused.push(format!("{path} ({why})"));
                }
            }
        }
        Ok(refused)
    }

    /// Puts the branch back where a program moved it in a step that only plans. In a sandbox it cannot. Gives the refs on which its
    /// commits are kept.
    async fn taken_back(&self, stood: &Standing, launch: u32) -> Result<Option<Vec<String>>, GitError> {
        let worktree = &self.shared.worktree;
        if !self.task.read_only
            || self.shared.launch.sandbox.is_some()
            || worktree.standing().await? == *stood
        {
            return Ok(None);
        }
        let kept = format!("refs/agentd/left/{}/launch-{launch}", self.shared.run_id);
        worktree.put_branch_back(stood, &kept).await.map(Some)
    }

    /// Undoes the whole launch. Nothing of it stays on the branch; all of it is kept on refs that are never pushed: `kept`, and
    /// one for the files.
    async fn put_aside(
        &self,
        (base, mut kept): (&CommitId, Vec<String>),
        launch: u32,
        refused: &[String],
    ) -> ToolError {
        let shared = &self.shared;
        shared.sandbox.refuse_commits();
        let files = format!("refs/agentd/refused/{}/{launch}", shared.run_id);
        let told = match shared.worktree.restore(base, &files, true).await {
            Ok(restored) => {
                kept.extend(restored.rescued.map(|_| files));
                let on = if kept.is_empty() {
                    String::new()
                } else {
                    format!(" and are kept on {}", kept.join(", "))
                };
                format!("all its changes were taken back{on}")
            }
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

/// A change that a program has made already.
fn made(path: &str) -> PermissionRequest {
    PermissionRequest { is_made: true, ..permission_request::edit(&judged_name(path)) }
}

fn git_failed(error: &GitError) -> ToolError {
    ToolError::for_model(format!("git could not say what the program did: {error}"))
}
