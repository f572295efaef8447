//! Stage plan: everything that can be refused is refused here, while nothing has been made.
//!
//! Takes a request. Leaves issue, definition, policy, models and budgets, read and checked. Nothing is made in it, so a
//! crash leaves nothing.

pub mod budgets;
pub mod handoffs;
pub mod write_access;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::budgets::Effective;
use super::request::RunRequest;
use crate::config::cluster_file::StoreKind;
use crate::config::config_file::Publish;
use crate::config::plan_file::PlanGate;
use crate::config::sandbox_file::SandboxMode;
use crate::config::settings::Session;
use crate::conversation::issue_text;
use crate::definition::{self, Loaded, Severity};
use crate::domain::agent_program::{AgentProgram, StepExecutor};
use crate::domain::budget::Budgets;
use crate::domain::egress::Egress;
use crate::domain::issue::Issue;
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::outgoing::plain_line;
use crate::domain::policy::{
    Decision, FALLBACK_PUBLIC_REASON, PolicyInput, PolicyPrincipal, ProposalContext, Proposed,
};
use crate::domain::redaction::{KnownSecret, Redactor};
use crate::domain::refusal::Refusal;
use crate::domain::run::Warning;
use crate::domain::run_output::Objective;
use crate::domain::shell_words;
use crate::domain::step_executors::StepExecutors;
use crate::domain::stop::StopDetail;
use crate::domain::text_revision::TextRevision;
use crate::engine::policy::Policy;
use crate::github::IssueSnapshot;
use crate::issue::file as issue_file;
use crate::issue::reference::IssueSource;
use crate::llm::Providers;
use crate::prompt::template::Values;
use crate::record::{report, run_facts, seal};
use crate::repository::context::RepositoryContext;
use crate::repository::managed;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::repository::open::called_otherwise;
use crate::repository::resources::{self, blocking};
use crate::repository::tool_servers::unfit;
use crate::sandbox::egress_proxy;
use crate::sandbox::run_sandbox;
use crate::sys::paths::AbsPath;
use crate::tools::rest::rest_tools;

/// A run that may start: read, checked and frozen (D1).
pub struct Plan {
    /// What was asked for.
    pub request: RunRequest,
    /// The issue.
    pub issue: Issue,
    /// Which revision of its text that is; `None` for an issue from a file.
    pub text: Option<TextRevision>,
    /// The tracker's view of it; `None` for an issue from a file.
    pub snapshot: Option<IssueSnapshot>,
    /// The mapping made by an earlier run, as long as its branch is there.
    pub mapped: Option<MappingRecord>,
    /// What the lease file remembers, branch or not.
    pub lease_record: Option<MappingRecord>,
    /// The agent's definition with its prompts.
    pub loaded: Arc<Loaded>,
    /// Who works on its steps.
    pub executors: StepExecutors,
    /// What it may do.
    pub policy: Policy,
    /// Limits and targets of its sessions.
    pub session: Session,
    /// The models behind the targets.
    pub providers: Arc<Providers>,
    /// Hard caps.
    pub budgets: Budgets,
    /// Where each cap is from, for people.
    pub budget_sources: BTreeMap<&'static str, String>,
    /// Wishes that are not followed; told when the run has begun.
    pub warnings: Vec<Warning>,
    /// Values of the declared parameters and what the completion condition supplies (D68).
    pub values: Values,
    /// Whether people approve its plan before it is carried out.
    pub gates_plans: bool,
    /// What becomes of the work.
    pub publish: Publish,
    /// Takes secrets out of everything that is kept or shown.
    pub redactor: Arc<Redactor>,
}

impl Plan {
    /// What the run is to reach.
    pub fn objective(&self) -> Objective {
        let tracked = matches!(self.request.issue, IssueSource::Number(_));
        report::objective(&self.issue, self.request.source, tracked)
    }

    /// The worktree's path for people and records: relative to the main checkout where it is below it.
    pub fn worktree_shown(&self, context: &RepositoryContext) -> String {
        let path = context.worktree_root().join(worktree_of(&self.issue.key));
        let path = path.as_path();
        path.strip_prefix(context.checkout.root().as_path()).unwrap_or(path).display().to_string()
    }
}

/// Refuses a run of a cluster in a program that does not take part in it: the other nodes would not see the run. A replay is none of the
/// cluster's.
fn refuse_outside_cluster(context: &RepositoryContext) -> Result<(), Refusal> {
    let shared = context.config.cluster.store == StoreKind::Nats;
    match shared && context.state.shared().is_none() && context.replay.is_none() {
        false => Ok(()),
        true => Err(Refusal::new(
            StopDetail::ConfigInvalid,
            "cluster.store = \"nats\", and this program does not take part in the cluster.",
        )
        .hint("agentd run N does; or leave [cluster] out")),
    }
}

fn is_in_the_store(record: &MappingRecord, context: &RepositoryContext) -> bool {
    let Some(own) = context.state.store().node() else { return false };
    record.unpushed.as_ref().is_some_and(|left| left.bundle.is_some() && left.node != own)
}

/// Whether the work of a run that was cut off, or that a person goes on with, is in the store alone: it has pushed nothing yet, and its
/// branch is on its node.
async fn is_gone_on_with(
    record: &MappingRecord,
    request: &RunRequest,
    context: &RepositoryContext,
) -> Result<bool, Refusal> {
    if context.state.shared().is_none() || record.given_up {
        return Ok(false);
    }
    let (dir, resumes) = (context.state.run(&context.repo, record.run_id), request.resume.is_some());
    blocking(move || {
        let facts = run_facts::read_anywhere(&dir).ok().flatten();
        facts.is_some_and(|facts| {
            let goes_on = facts.end.as_ref().is_none_or(|end| end.detail.is_gone_on_with());
            facts.bundled.is_some() && (resumes || goes_on)
        })
    })
    .await
}

/// Reads and checks everything a run depends on. Changes nothing anywhere.
pub async fn make(request: RunRequest, context: &RepositoryContext) -> Result<Plan, Refusal> {
    refuse_outside_cluster(context)?;
    let (issue, snapshot, text) = issue(&request, context).await?;
    let lease_record = last_mapping(&issue, context).await;
    let mapped = match &lease_record {
        // A mapping lives as long as its branch, here, on the remote, or in what another node left unpushed.
        Some(record)
            if is_in_the_store(record, context)
                || context.branch_commit(&record.branch).await?.is_some()
                || is_gone_on_with(record, &request, context).await? =>
        {
            Some(record.clone())
        }
        _ => None,
    };
    let agent = request.agent.clone().unwrap_or_else(|| context.repository.agent.clone());
    let (loaded, policy, mut warnings) = definitions(&request, &agent, context).await?;
    // Whoever asks a policy that cannot answer is denied for that.
    tools(context)?;
    admitted(&request, &issue, &agent, &policy, context).await?;
    // What a replay does was paid for before.
    if context.replay.is_none() {
        let denied =
            handoffs::denied(&loaded, &policy).into_iter().filter(|one| one.severity == Severity::Defect);
        warnings
            .extend(denied.map(|one| warning(context, "handoff_denied", format!("{one}; {}", one.remedy()))));
    }
    supported(&loaded, context).await?;
    let gates_plans = gates_plans(&loaded, snapshot.as_ref(), context)?;
    let executors = step_executors_here(&loaded, context).await?;
    if context.replay.is_some() && !executors.programs().is_empty() {
        let name = &loaded.definition.name;
        let message = format!("The agent \"{name}\" has a program of its own: its work cannot be replayed.");
        return Err(Refusal::new(StopDetail::ConfigInvalid, message));
    }
    let session = match executors.leave_a_step_to_the_session(&loaded.definition) {
        true => context.config.session()?,
        false => context.config.session_of_programs()?,
    };
    let caps = &loaded.definition.agentd.budgets;
    let effective = budgets::effective(&request, caps, snapshot.as_ref(), context).await?;
    priced(&effective, &session, context)?;
    let providers = match &context.replay {
        Some(recorded_run) if !recorded_run.asks_models() => {
            resources::no_providers(&context.config, &context.clock)?
        }
        _ => resources::providers(&context.config, &session, &context.clock)?,
    };
    seal::check(context.config.record.seal_key.as_deref()).map_err(|error| {
        Refusal::new(StopDetail::ConfigInvalid, format!("record.seal_key cannot be used: {error}."))
    })?;
    let redactor = resources::redactor(&context.config, program_secrets(&executors, context))?;
    let values = values(&loaded, &request)?;
    let unused = loaded.unused(&request.parameters).into_iter().map(|name| {
        let text = format!("--uv {name} is used by no prompt of \"{agent}\" and is no parameter of it.");
        warning(context, "uv_unused", text)
    });
    warnings.extend(unused);
    warnings.extend(effective.warnings);
    if let Some(told) = text.as_ref().and_then(issue_text::left_out) {
        warnings.push(warning(context, "issue_text_as_asked", told));
    }
    let publish = publish(&request, &issue, context).await?;
    Ok(Plan {
        budgets: effective.budgets,
        budget_sources: effective.sources,
        warnings,
        request,
        issue,
        text,
        snapshot,
        mapped,
        lease_record,
        loaded: Arc::new(loaded),
        executors,
        policy,
        gates_plans,
        session,
        providers: Arc::new(providers),
        values,
        publish,
        redactor: Arc::new(redactor),
    })
}

/// Whether people approve the run's plan before it is carried out. An agent without a step for that is refused. A replay waits
/// where the recorded run did.
fn gates_plans(
    loaded: &Loaded,
    snapshot: Option<&IssueSnapshot>,
    context: &RepositoryContext,
) -> Result<bool, Refusal> {
    if let Some(recorded) = &context.replay {
        return Ok(recorded.gates_plans());
    }
    let table = &context.config.plan;
    let is_on = match table.gate {
        PlanGate::Off => false,
        PlanGate::Always => true,
        PlanGate::Label => snapshot.is_some_and(|snapshot| snapshot.has_label(&table.label)),
    };
    if is_on && !loaded.definition.flow.steps.iter().any(|step| step.gates_plan) {
        let name = &loaded.definition.name;
        let message = format!(
            "Plans have to be approved (plan.gate), and no step of the agent \"{name}\" is marked for that."
        );
        return Err(Refusal::new(StopDetail::ConfigInvalid, message)
            .hint("write \"gate\": \"plan\" at the step in steps_registry.json that puts out `plan`")
            .hint("or set plan.gate = \"off\" in agentd.toml"));
    }
    Ok(is_on)
}

/// A cap on the cost that an issue or the definition names holds only where every price is known (D87).
fn priced(effective: &Effective, session: &Session, context: &RepositoryContext) -> Result<(), Refusal> {
    let named = effective.budgets.max_cost_is_explicit && !context.config.budgets.max_cost_is_explicit;
    let unknown = session.settings.targets.iter().find(|target| target.price.is_none());
    match unknown {
        Some(target) if named => {
            let source = effective.sources.get("max_cost").map(String::as_str).unwrap_or_default();
            let message = format!("{source} caps the cost, but what {} costs is unknown.", target.model);
            Err(Refusal::new(StopDetail::ConfigInvalid, message)
                .hint("add price = { input = …, output = … } to the target in session.targets"))
        }
        _ => Ok(()),
    }
}

/// Refuses declared tools that could not be offered, and programs of the operator that a run asks and that are not there: without
/// them every call would be denied, or every text withheld.
fn tools(context: &RepositoryContext) -> Result<(), Refusal> {
    rest_tools(&context.config.rest_tools).map_err(|error| {
        Refusal::from(unfit(&error)).hint("correct it in agentd.toml; agentd doctor looks at each tool")
    })?;
    let gone = match &context.replay {
        Some(_) => Vec::new(),
        None => resources::programs_gone(&context.config, context.checkout.root(), &context.env),
    };
    // A run goes on without a sink.
    match gone.iter().find(|gone| !gone.key.starts_with("record.sinks")) {
        None => Ok(()),
        Some(gone) => Err(Refusal::new(StopDetail::ConfigInvalid, format!("{gone}."))
            .hint(format!("install it, or correct {} in agentd.toml", gone.key))),
    }
}

fn warning(context: &RepositoryContext, code: &str, text: String) -> Warning {
    Warning { code: code.to_owned(), at: context.clock.now_ms(), text }
}

/// Definition and policy as they are on disk, or as they last were good.
async fn definitions(
    request: &RunRequest,
    agent: &str,
    context: &RepositoryContext,
) -> Result<(Loaded, Policy, Vec<Warning>), Refusal> {
    let (mut loaded, policy, mut warnings) = on_disk(request, agent, context).await?;
    if !context.managed {
        return Ok((loaded, policy, warnings));
    }
    // Whoever can push there decides neither about the sandbox nor about the policy. Requests that do not count are
    // reported.
    let told = managed::narrow(&mut loaded.definition, &context.config)
        .into_iter()
        .chain(managed::refused(&context.config));
    warnings.extend(told.map(|text| warning(context, "clone_may_only_narrow", text)));
    Ok((loaded, policy, warnings))
}

/// As [`definitions`], before anything is narrowed.
async fn on_disk(
    request: &RunRequest,
    agent: &str,
    context: &RepositoryContext,
) -> Result<(Loaded, Policy, Vec<Warning>), Refusal> {
    let read = definition_of(agent, &request.parameters, context).await;
    let policy =
        resources::policy(&context.config, context.checkout.root(), context.child_environment()).await;
    let Some(kept) = &context.last_known_good else { return Ok((read?, policy?, Vec::new())) };
    // The output of each run tells the operator that it did not use the files on disk (S10).
    let outdated = |what: &str, refusal: &Refusal| {
        let text = format!("The {what} on disk cannot be used; the last good one is. {refusal}");
        warning(context, "definition_outdated", text)
    };
    let warnings = [
        read.as_ref().err().map(|refusal| outdated("definition", refusal)),
        policy.as_ref().err().map(|refusal| outdated("policy", refusal)),
    ];
    Ok((kept.definition(agent, read)?, kept.policy(policy)?, warnings.into_iter().flatten().collect()))
}

/// Whether definition and policy on disk can be used now. If so, they are kept for runs that begin when they cannot.
pub async fn check_definitions(context: &RepositoryContext) -> Result<(), Refusal> {
    let agent = &context.repository.agent;
    let read = definition_of(agent, &BTreeMap::new(), context).await;
    let policy =
        resources::policy(&context.config, context.checkout.root(), context.child_environment()).await;
    let broken = read.as_ref().err().or(policy.as_ref().err()).cloned();
    if let Some(kept) = &context.last_known_good {
        // What cannot be used falls back to what is kept; the error is told below.
        let _ = kept.definition(agent, read);
        let _ = kept.policy(policy);
    }
    broken.map_or(Ok(()), Err)
}

/// Whether the policy lets the agent work on the issue at all (D71): it may refuse whom GitHub's permissions admit.
async fn admitted(
    request: &RunRequest,
    issue: &Issue,
    agent: &str,
    policy: &Policy,
    context: &RepositoryContext,
) -> Result<(), Refusal> {
    if context.replay.is_some() {
        return Ok(());
    }
    let proposal = ProposalContext {
        agent: agent.to_owned(),
        step: String::new(),
        principal: PolicyPrincipal::new(&request.principal, request.permission),
        repo: context.repo.to_string(),
        issue: issue.key.clone(),
        branch: branch_of(&issue.key).to_string(),
    };
    let input = PolicyInput::new(proposal, 0, Proposed::Run).map_err(|error| {
        Refusal::new(StopDetail::Internal, "agentd has a defect; the log has the details.")
            .technical(error.to_string())
    })?;
    let verdict = policy.decide(&input).await;
    if verdict.result.decision == Decision::Allow {
        return Ok(());
    }
    let by =
        verdict.rule_id.map_or_else(|| "The policy".to_owned(), |id| format!("The policy's rule \"{id}\""));
    let public = verdict.result.public_reason.unwrap_or_else(|| FALLBACK_PUBLIC_REASON.to_owned());
    let message = format!("{by} does not let the agent \"{agent}\" work on this issue: {public}");
    Err(Refusal::new(StopDetail::PolicyDenied, message)
        .hint(format!("its reason: {}", verdict.result.reason))
        .hint("agentd policy eval --input FILE asks the same, with kind \"run\""))
}

async fn issue(
    request: &RunRequest,
    context: &RepositoryContext,
) -> Result<(Issue, Option<IssueSnapshot>, Option<TextRevision>), Refusal> {
    let number = match &request.issue {
        IssueSource::File(path) => {
            let (path, repo) = (path.clone(), context.repo.clone());
            let issue = blocking(move || issue_file::read(&path, &repo)).await??;
            return Ok((issue, None, None));
        }
        IssueSource::Recorded(issue) => return Ok((issue.as_ref().clone(), None, None)),
        IssueSource::Number(number) => *number,
    };
    let Some(github) = &context.github else {
        return Err(Refusal::new(StopDetail::ConfigInvalid, "There are no credentials for GitHub.")
            .hint("set GITHUB_TOKEN, or github.token in agentd.toml")
            .hint("without a tracker: agentd run --issue-file FILE.md"));
    };
    let mut snapshot = github.issue(&context.repo, number).await?;
    if !snapshot.issue.open {
        return Err(Refusal::new(
            StopDetail::InvalidInput,
            format!("Issue {number} of {} is closed.", context.repo),
        )
        .hint("reopen it, or name another issue"));
    }
    let text = issue_text::as_asked(&mut snapshot.issue, request.asked.as_ref(), github, context).await?;
    if plain_line(&snapshot.issue.title, 1).is_empty() {
        return Err(Refusal::new(
            StopDetail::InvalidInput,
            format!("Issue {number} of {} has no title.", context.repo),
        )
        .hint("give it a title: it is the objective"));
    }
    // Asked once: origin and budgets both look at them.
    snapshot.fields = Some(github.issue_fields(&snapshot).await?);
    Ok((snapshot.issue.clone(), Some(snapshot), Some(text)))
}

async fn last_mapping(issue: &Issue, context: &RepositoryContext) -> Option<MappingRecord> {
    let looked = context.look(context.lease(&issue.key)).await.ok().flatten()?;
    mapping_of(&looked.record?)
}

/// Reads the definition of an agent of the repository.
async fn definition_of(
    agent: &str,
    parameters: &BTreeMap<String, String>,
    context: &RepositoryContext,
) -> Result<Loaded, Refusal> {
    if context.managed {
        let root = context.checkout.root().as_path().to_owned();
        blocking(move || managed::stays_inside(&root)).await??;
    }
    load_definition(context.checkout.root(), agent, parameters).await
}

/// Reads the definition of an agent of the main checkout `root`.
pub async fn load_definition(
    root: &AbsPath,
    agent: &str,
    parameters: &BTreeMap<String, String>,
) -> Result<Loaded, Refusal> {
    let project = root.as_path().to_owned();
    let folder = project.join(".agent").join(agent);
    if !folder.is_dir() {
        let known = blocking(move || definition::agents_of(&project)).await?;
        let message =
            format!("There is no agent \"{agent}\" in {}.", root.as_path().join(".agent").display());
        let refusal = Refusal::new(StopDetail::ConfigInvalid, message);
        return Err(if known.is_empty() {
            refusal.hint("agentd init, in a checkout of the repository, writes one")
        } else {
            refusal.hint(format!("known agents: {}", known.join(", ")))
        });
    }
    let supplied: BTreeSet<String> = parameters.keys().cloned().collect();
    let loaded = blocking(move || definition::load(&project, &folder, &supplied)).await?;
    loaded.map_err(|refused| {
        let detail =
            if refused.exit_code() == 5 { StopDetail::SchemaInvalid } else { StopDetail::ConfigInvalid };
        Refusal::new(detail, format!("The agent \"{agent}\" cannot be used:\n{refused}"))
            .hint(format!("agentd agents check {agent} shows the same, and every warning"))
    })
}

/// What works on the steps of a definition here. Programs that cannot be started as written are refused.
pub async fn step_executors_here(
    loaded: &Loaded,
    context: &RepositoryContext,
) -> Result<StepExecutors, Refusal> {
    let executors = step_executors(loaded, context)?;
    for program in executors.programs() {
        startable(program, &loaded.definition.name, context).await?;
    }
    Ok(executors)
}

/// What works on the steps. A definition of a managed clone says which program that is. Only `[program]` says what it
/// may reach on this machine (D85).
fn step_executors(loaded: &Loaded, context: &RepositoryContext) -> Result<StepExecutors, Refusal> {
    let definition = &loaded.definition;
    let refused = |message: String| Refusal::new(StopDetail::ConfigInvalid, message);
    if context.managed {
        let steps = definition.flow.steps.iter().map(|step| (Some(&step.id), step.executor.as_ref()));
        for (step, executor) in steps.chain([(None, definition.agentd.executor.as_ref())]) {
            let Some(StepExecutor::Program(program)) = executor else { continue };
            if let Some(key) = program.reaches().next() {
                let whose = step.map_or_else(String::new, |step| format!("step \"{step}\" of the "));
                let message = format!(
                    "The {whose}agent \"{}\" sets program.{key}, and its definition comes from a clone that agentd manages: \
                     what a program reaches on this machine is its operator's to say.",
                    definition.name
                );
                return Err(refused(message)
                    .hint("name the backend alone in the definition, and what it reaches by [program] in agentd.toml")
                    .hint("or give the repository a `path`: then its definitions are yours"));
            }
        }
    }
    StepExecutors::of(definition, context.config.program.as_ref()).map_err(|error| {
        refused(format!("The agent \"{}\" cannot be used: {error}.", definition.name))
            .hint("write `program` with its argv beside the backend")
    })
}

/// What a definition asks for and cannot have is refused and never left out silently.
async fn supported(loaded: &Loaded, context: &RepositoryContext) -> Result<(), Refusal> {
    let definition = &loaded.definition;
    let table = &context.config.sandbox;
    // What a clone's definition starts is nobody's but whoever can push there.
    let asked_for = match table.mode {
        SandboxMode::Auto => context.managed,
        SandboxMode::Bubblewrap | SandboxMode::Landlock => true,
        SandboxMode::Off => false,
    };
    if definition.boundaries.sandbox.enabled
        && asked_for
        && let Err(why) = run_sandbox::find(&context.env, table).await
    {
        if table.mode == SandboxMode::Auto {
            let message = format!(
                "There is no sandbox here ({why}), and {} is a clone that agentd manages: whoever can push there would run \
                 commands with your rights.",
                context.repo
            );
            return Err(Refusal::new(StopDetail::ConfigInvalid, message)
                .hint("on Linux install bubblewrap; agentd doctor says what is missing")
                .hint("or say that you want that: sandbox.mode = \"off\" in your own agentd.toml"));
        }
        let message = format!("There is no sandbox as sandbox.mode asks for: {why}.");
        return Err(Refusal::new(StopDetail::ConfigInvalid, message)
            .hint("make it possible (agentd doctor says what is missing), or set sandbox.mode = \"auto\""));
    }
    Ok(())
}

/// Whether a program gets what it asks for here.
async fn startable(program: &AgentProgram, agent: &str, context: &RepositoryContext) -> Result<(), Refusal> {
    let table = &context.config.sandbox;
    if let Some(missing) = program.environment.iter().find(|name| context.env.get(name).is_none()) {
        let message = format!("The agent \"{agent}\" wants the variable {missing}, which is not set.");
        return Err(Refusal::new(StopDetail::ConfigInvalid, message)
            .hint(format!("set {missing} in agentd's environment, or take it out of program.environment")));
    }
    egress_proxy::endpoints(&context.config, &program.endpoints)?;
    let lists = matches!(program.network, Egress::Hosts(_)) || !program.endpoints.is_empty();
    if program.sandboxed && (table.mode != SandboxMode::Off || lists) {
        let mechanism = run_sandbox::find(&context.env, table).await;
        let usable = mechanism.and_then(|mechanism| match mechanism.can_proxy() {
            Err(why) if lists => Err(format!("it cannot hold lists of hosts, since {why}")),
            _ => Ok(()),
        });
        if let Err(why) = usable {
            let message = format!(
                "The agent \"{agent}\" starts {}, and there is no sandbox for it here: {why}.",
                program.argv.first().map_or("a program", String::as_str)
            );
            return Err(Refusal::new(StopDetail::ConfigInvalid, message)
                .hint("make the sandbox possible (agentd doctor says what is missing)")
                .hint("or let it run with your own rights: \"sandbox\": \"off\" in its `program`"));
        }
    }
    Ok(())
}

/// The values that programs get by name. They are secrets like those of the configuration.
fn program_secrets(executors: &StepExecutors, context: &RepositoryContext) -> Vec<KnownSecret> {
    let names = executors.programs().iter().flat_map(|program| &program.environment);
    names
        .filter_map(|name| {
            let value = context.env.filled(name)?;
            // Words that stand everywhere are no secrets.
            (value.len() >= 8).then(|| KnownSecret { kind: name.to_lowercase(), value: value.into() })
        })
        .collect()
}

/// Parameters that are missing, unknown or outside their limits are refused together (D68).
fn values(loaded: &Loaded, request: &RunRequest) -> Result<Values, Refusal> {
    loaded.run_values(&request.parameters).map_err(|problems| {
        let words: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect();
        let refusal = Refusal::new(StopDetail::InvalidInput, format!("Parameters: {}.", words.join("; ")));
        problems.into_iter().fold(refusal, |refusal, problem| refusal.hint(problem.fix))
    })
}

/// `--publish` > the repository's; an issue from a file goes to a branch, or nowhere without a remote (D30).
async fn publish(
    request: &RunRequest,
    issue: &Issue,
    context: &RepositoryContext,
) -> Result<Publish, Refusal> {
    let wanted = request.publish.unwrap_or(context.repository.publish);
    let has_remote = context.remote.is_some();
    if issue.key.number().is_some() && matches!(request.issue, IssueSource::Number(_))
        || request.publish.is_some()
    {
        if !has_remote && wanted != Publish::None {
            let remote = &context.repository.remote;
            let add = || shell_words::line(&["git", "remote", "add", remote, "URL"]);
            let other = called_otherwise(&context.checkout, remote).await?;
            return Err(Refusal::new(
                StopDetail::ConfigInvalid,
                format!("The repository has no remote \"{remote}\" to publish to."),
            )
            .hint(other.unwrap_or_else(add))
            .hint("or keep the work here: --publish none"));
        }
        return Ok(wanted);
    }
    Ok(match (has_remote, wanted) {
        (false, _) | (_, Publish::None) => Publish::None,
        (true, _) => Publish::Branch,
    })
}
