//! Stage instance: everything that fixes how the run will behave is put together, hashed and recorded.
//!
//! Takes a run with its worktree. Leaves policy, budgets, sandbox, tools and prompts, ready for the first step. After a
//! crash in it the next run puts everything together anew; visits that were finished are taken over.

pub mod briefing;
pub mod claim_check;
pub mod toolbox;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value;

use self::briefing::Briefed;
use self::toolbox::Toolbox;
use super::issue_budget::IssueExtension;
use super::lease::recovery::Predecessor;
use super::new_remarks;
use super::plan::Plan;
use super::run::Run;
use super::stage::{Stage, StageError, Worked, Workspace};
use super::worktree::Prepared;
use super::{budget_extension, issue_budget, parked};
use crate::config::source_format::Source;
use crate::conversation::briefing::LONGEST_TITLE;
use crate::domain::briefing::{Block, Briefing};
use crate::domain::budget::Spend;
use crate::domain::canonical::canonical_sha256;
use crate::domain::event::{Event, RequestOptions, RunStarted};
use crate::domain::facts::RunFacts;
use crate::domain::failures;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus, INTERRUPTED};
use crate::domain::policy::{FILE_TOOLS, PolicyPrincipal};
use crate::domain::run::{RunId, VisitRecord};
use crate::domain::run_output::{FailureRecord, RunOutput, rfc3339_of_ms};
use crate::domain::shown_markdown::shown_line;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::arguments::Scope;
use crate::engine::budget::Meter;
use crate::engine::journal::{Journal, JournalError};
use crate::engine::model::Model;
use crate::engine::pacing::Backoff;
use crate::engine::policy::ApprovalBook;
use crate::engine::session::SessionWorld;
use crate::engine::tool_catalog::ToolCatalogs;
use crate::engine::tool_schema::ArgumentSchemas;
use crate::engine::touched::Touched;
use crate::engine::visit::{FlowPlan, FlowWorld, Shapes};
use crate::engine::workplace::Workplace;
use crate::git::worktree::Worktree;
use crate::prompt::template::Values;
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::resources;
use crate::sandbox::agent_backend;
use crate::sandbox::run_sandbox::{self, Needs, RunSandbox};
use crate::sandbox::upstream::Upstream;
use crate::store::approvals::Approvals;
use crate::sys::sandbox::ProcessSandbox;
use crate::sys::worktree_path::WorktreeRoot;

/// Most earlier runs whose calls are looked at.
const MOST_EARLIER: usize = 20;

/// A run that is ready to visit its first step.
pub struct Instance<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// Where it works.
    pub workspace: Workspace,
    /// What its flow runs on.
    pub plan: FlowPlan,
    /// What its flow works with.
    pub world: FlowWorld,
    /// Visits that a killed predecessor finished.
    pub finished: Vec<VisitRecord>,
    /// Its tools, to be closed at its end.
    pub toolbox: Toolbox,
    /// What it was told at its start.
    pub briefing: Briefing,
}

/// Puts the run together.
pub async fn start<'a>(prepared: Prepared<'a>) -> Result<Stage<'a, Instance<'a>>, JournalError> {
    let Prepared { run, worktree } = prepared;
    let mut workspace = Workspace { worktree, sandbox: None };
    match put_together(run, &mut workspace).await {
        Ok((plan, world, finished, toolbox, briefing)) => {
            Ok(Stage::Next(Instance { run, workspace, plan, world, finished, toolbox, briefing }))
        }
        Err(error) => {
            Ok(Stage::Over(Box::new(Worked { run, stop: error.stop()?, workspace: Some(workspace) })))
        }
    }
}

/// Everything that an instance has beside its workspace.
type Together = (FlowPlan, FlowWorld, Vec<VisitRecord>, Toolbox, Briefing);

async fn put_together(run: &Run<'_>, workspace: &mut Workspace) -> Result<Together, StageError> {
    let plan = run.plan;
    let not_opened = |error: &dyn std::fmt::Display| {
        Stop::new(StopDetail::GitError, format!("The worktree cannot be opened: {error}."))
    };
    let root = WorktreeRoot::open(workspace.worktree.path()).map_err(|error| not_opened(&error))?;
    let submodules = workspace.worktree.submodules().await.map_err(|error| not_opened(&error))?;
    let root = root.with_submodules(submodules.into_iter().map(|(path, _)| path));
    let policy = plan.policy.clone().in_worktree(root.clone()).approved_by(approvals(run.context));
    let Begun { inherited, finished, prior_failures, given, may_ask, answered } = begin(run).await?;
    let first_visit = u32::try_from(finished.len()).unwrap_or(u32::MAX).saturating_add(1);
    let policy = policy.made_before(made_before(run, first_visit).await);
    let Briefed { briefing, background } = Box::pin(briefing::freeze(run, first_visit, answered)).await?;
    let caps = budget_extension::caps(run, &given)?;
    let meter = Meter::new(plan.budgets.clone(), inherited, run.clock).raised(caps);
    let sandbox = open_sandbox(run, &workspace.worktree).await?;
    workspace.sandbox = Some(Arc::clone(&sandbox));
    if !plan.executors.programs().is_empty() {
        briefing::for_programs(&briefing, &background.images, &sandbox)?;
    }
    let worktree = &workspace.worktree;
    let agents = agent_backend::backends(agent_backend::Workplace {
        executors: &plan.executors,
        run_id: run.lease.run_id,
        journal: &run.journal,
        context: run.context,
        worktree,
        origin: &run.lease.mapping.origin.commit,
        sandbox: &sandbox,
    })?;
    let toolbox = Toolbox::open(run, workspace, &root).await?;
    let providers = Arc::clone(&plan.providers) as Arc<dyn Model>;
    let model = match &run.context.replay {
        Some(recorded_run) => recorded_run.model(providers),
        None => providers,
    };
    let touched = Touched::default();
    let world = FlowWorld(SessionWorld {
        model,
        journal: Arc::clone(run.journal.file()) as Arc<dyn Journal>,
        policy: Arc::new(policy),
        redactor: Arc::clone(&plan.redactor),
        meter: Arc::new(meter),
        caps: resources::day_cap(&run.context.config, &run.context.money)
            .into_iter()
            .filter(|_| run.context.counts_money())
            .chain(issue_budget::share(run, given.in_all))
            .collect(),
        stop: run.stop(),
        clock: run.clock,
        queues: Arc::new(resources::queues(&run.context.config)),
        new_remarks: new_remarks::since(run),
        schemas: ArgumentSchemas::default(),
        tool_catalogs: ToolCatalogs::asking(may_ask),
        backoff: backoff(run),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        claims: Some(claim_check::in_turn(run, worktree)),
        redaction: run.context.redaction_program().map(Arc::new),
        fault_snapshots: run.context.config.record.fault_snapshots,
        longest_inline: run.context.config.longest_inline(),
        touched: touched.clone(),
    });
    let plan = FlowPlan {
        loaded: Arc::clone(&plan.loaded),
        values: with_facts(run, &briefing),
        task: briefing::task(run, &briefing, &prior_failures),
        background,
        format: plan.request.format.unwrap_or_default(),
        shapes: Shapes::default(),
        settings: plan.session.settings.clone(),
        tools: toolbox.tools.clone(),
        verify_commands: run.context.config.verify.commands.clone(),
        include_prompt_text: run.context.config.record.include_prompt_text,
        scope: Scope {
            principal: PolicyPrincipal::new(&plan.request.principal, plan.request.permission),
            repo: run.context.repo.to_string(),
            issue: plan.issue.key.clone(),
            branch: run.lease.mapping.branch.to_string(),
            worktree: plan.worktree_shown(run.context),
        },
        workplace: Workplace {
            root,
            agent_folder: plan.loaded.folder.clone(),
            environment: run.context.child_environment(),
            time_limit: run.context.config.verify.timeout.0,
            sandbox: workspace.of_commands(run).map(ProcessSandbox::of_configured),
            upstream: Some(Arc::new(Upstream {
                base: run_sandbox::base(&run.lease.mapping.origin, run.context),
                sandbox,
            })),
            touched,
            recorded: run.context.replay.as_ref().map(|recorded_run| recorded_run.programs()),
        },
        agents,
        gates_plans: run.plan.gates_plans,
        run_id: run.lease.run_id,
    };
    Ok((plan, world, finished, toolbox, briefing))
}

/// What a run begins with.
pub struct Begun {
    /// What killed predecessors used.
    inherited: Spend,
    /// The visits that they finished.
    finished: Vec<VisitRecord>,
    /// What the issue's last run failed at.
    prior_failures: Vec<FailureRecord>,
    /// What people have given the issue beyond its budget.
    given: IssueExtension,
    /// Whether the agent may ask people.
    may_ask: bool,
    /// What its first step is told of what a person did to the run that it goes on with.
    answered: Option<String>,
}

/// Records that the run begins, under which rules, and what it takes over.
pub async fn begin(run: &Run<'_>) -> Result<Begun, JournalError> {
    let plan = run.plan;
    let inherited = run.lease.predecessor.as_ref().map(Predecessor::spent).unwrap_or_default();
    let prior_failures = prior_failures(run).await;
    let given = issue_budget::given(run).await?;
    let may_ask = parked::may_ask(run).await;
    run.journal.record(Event::RunStarted(Box::new(RunStarted {
        agent: plan.loaded.definition.name.clone(),
        definition_sha256: plan.loaded.sha256.clone(),
        policy_versions: plan.policy.versions(),
        config_sha256: config_hash(run.context),
        budgets: plan.budgets.clone(),
        inherited,
        issue_given: given.in_all,
        may_ask,
        gates_plans: plan.gates_plans,
        metadata: plan.request.metadata.clone(),
        longest_inline: run.context.config.longest_inline(),
        asked: asked(plan, run.context),
        prior_failures: prior_failures.clone(),
    })))?;
    let mut finished =
        run.lease.predecessor.as_ref().map(|before| before.facts.visits.clone()).unwrap_or_default();
    let answered = parked::take_up(run, &mut finished).await?;
    for visit in &finished {
        run.journal.record(Event::VisitImported(Box::new(visit.clone())))?;
    }
    Ok(Begun { inherited, finished, prior_failures, given, may_ask, answered })
}

/// A replay waits for nobody.
fn backoff(run: &Run<'_>) -> Backoff {
    let session = &run.plan.session;
    match &run.context.replay {
        Some(_) => Backoff { first: Duration::ZERO, cap: Duration::ZERO },
        None => Backoff { first: session.retry_backoff, cap: session.retry_backoff_max },
    }
}

/// The sandbox of the run's programs, with a record of what it holds them by.
async fn open_sandbox(run: &Run<'_>, worktree: &Worktree) -> Result<Arc<RunSandbox>, StageError> {
    let (definition, programs) = (&run.plan.loaded.definition, run.plan.executors.programs());
    let needs = Needs { definition, programs, origin: &run.lease.mapping.origin, worktree };
    let sandbox = RunSandbox::open(needs, &run.journal, run.context).await?;
    run.journal.record(Event::SandboxChosen(sandbox.facts(definition, programs)))?;
    Ok(Arc::new(sandbox))
}

/// What no configuration knows of the request.
fn asked(plan: &Plan, context: &RepositoryContext) -> RequestOptions {
    let flags = context.config.explain().into_iter().filter(|row| matches!(row.source, Source::Flag { .. }));
    RequestOptions {
        agent: plan.request.agent.clone(),
        publish: plan.request.publish.map(|publish| publish.as_str().to_owned()),
        format: plan.request.format,
        parameters: plan.request.parameters.clone(),
        flags: flags.filter_map(|row| Some((row.key, serde_json::to_value(row.value).ok()?))).collect(),
    }
}

/// Grants wait in the state directory until their proposal is made again.
fn approvals(context: &RepositoryContext) -> ApprovalBook {
    let (book, clock) = (Approvals::new(&context.state, &context.repo), context.clock.clone());
    let (returned, decided) = (book.clone(), book.clone());
    ApprovalBook {
        denied: Arc::new(move |proposal_hash| {
            let book = decided.clone();
            async move {
                let found = tokio::task::spawn_blocking(move || book.denial(&proposal_hash));
                found.await.ok().flatten()
            }
            .boxed()
        }),
        take: Arc::new(move |proposal_hash, principal| {
            let (book, now) = (book.clone(), clock.now());
            async move {
                let taken = tokio::task::spawn_blocking(move || book.take(&proposal_hash, principal, now));
                taken.await.ok().flatten()
            }
            .boxed()
        }),
        give_back: Arc::new(move |grant| {
            let book = returned.clone();
            async move {
                let put = tokio::task::spawn_blocking(move || book.give_back(&grant)).await;
                if !matches!(put, Ok(Ok(()))) {
                    tracing::warn!(
                        "an approval that was not used could not be kept; it has to be given again"
                    );
                }
            }
            .boxed()
        }),
    }
}

/// What runs that this one goes on with have done of calls in visits that it makes again, in words for who is asked about such a call: by
/// the hashes of the proposals.
async fn made_before(run: &Run<'_>, first_visit: u32) -> BTreeMap<String, String> {
    let Some(predecessor) = &run.lease.predecessor else { return BTreeMap::new() };
    let (state, repo) = (run.context.state.clone(), run.context.repo.clone());
    let part = |run_id: RunId, facts: &RunFacts| (run_id, facts.end.clone(), facts.ledger.clone());
    let mut ledgers = vec![part(predecessor.run_id, &predecessor.facts)];
    let mut before = predecessor.facts.lease.as_ref().and_then(|lease| lease.previous_run);
    let work = tokio::task::spawn_blocking(move || {
        while let Some(run_id) = before.filter(|_| ledgers.len() < MOST_EARLIER) {
            let Ok(earlier) = run_facts::read(&state.run(&repo, run_id)) else { break };
            ledgers.push(part(run_id, &earlier));
            before = earlier.lease.and_then(|lease| lease.previous_run);
        }
        let mut made = BTreeMap::new();
        for (run_id, end, ledger) in ledgers.into_iter().rev() {
            for entry in ledger {
                let AccountingKind::Tool { proposal_hash, command, .. } = &entry.what else { continue };
                // What a tool changed in the worktree itself is taken back with its visit.
                let is_out = entry.step_visit >= first_visit && !FILE_TOOLS.contains(&command.as_str());
                match is_out || entry.error.as_deref() == Some(INTERRUPTED) {
                    true => made.insert(proposal_hash.clone(), done_before(run_id, end.as_ref(), &entry)),
                    false => made.remove(proposal_hash),
                };
            }
        }
        made
    });
    work.await.unwrap_or_default()
}

/// What an earlier run has done of a call.
fn done_before(run_id: RunId, end: Option<&Stop>, entry: &AccountingEntry) -> String {
    let was_killed = end.is_none_or(|end| end.detail == StopDetail::Interrupted);
    let whose = if was_killed { "The interrupted run" } else { "The earlier run" };
    let at = rfc3339_of_ms(entry.timestamp);
    if entry.error.as_deref() == Some(INTERRUPTED) {
        return format!(
            "{whose} {run_id} began this call at {at} and was killed in the middle of it: how it ended is not known, so look first."
        );
    }
    let ending = match &entry.what {
        AccountingKind::Tool { exit_code: Some(code), .. } => format!(" (exit code {code})"),
        _ if entry.status == AccountingStatus::Failed => " (it failed)".to_owned(),
        _ => String::new(),
    };
    format!("{whose} {run_id} made this call already, at {at}{ending}.")
}

/// The failures of the issue's last run, and those that it had been told of. What cannot be read is left out.
async fn prior_failures(run: &Run<'_>) -> Vec<FailureRecord> {
    let Some(last) = &run.plan.lease_record else { return Vec::new() };
    let dir = run.context.state.run(&run.context.repo, last.run_id);
    let read = tokio::task::spawn_blocking(move || {
        let result: RunOutput = serde_json::from_slice(&std::fs::read(dir.result()).ok()?).ok()?;
        let facts = run_facts::read(&dir).ok()?;
        // A success has dealt with what came before it.
        let before = facts.started.filter(|_| !result.success).map(|started| started.prior_failures);
        Some(failures::told(&result.failures, &before.unwrap_or_default()))
    });
    read.await.ok().flatten().unwrap_or_default()
}

/// The facts of the issue, under their published names (D68).
fn with_facts(run: &Run<'_>, briefing: &Briefing) -> Values {
    let issue = &run.plan.issue;
    let mut values = run.plan.values.clone();
    values.set("issue", issue.key.to_string());
    values.set("issue_number", issue.key.to_string());
    values.set("issue_title", shown_line(&issue.title, LONGEST_TITLE).text);
    values.set("issue_url", issue.url.clone().unwrap_or_default());
    values.set("repository", run.context.repo.to_string());
    values.set("branch", run.lease.mapping.branch.to_string());
    values.set("origin_branch", run.lease.mapping.origin.branch.to_string());
    for block in Block::ALL {
        values.set(block.as_str(), briefing::headed(block, briefing.block(block)));
    }
    // A step that takes text takes the issue's, fenced like everywhere (S-050).
    values.input_text = Some(briefing.block(Block::IssueBody).to_owned());
    values
}

/// Hash over every effective value with its source. Placeholders stay placeholders, so no secret is in it.
fn config_hash(context: &RepositoryContext) -> String {
    let values: Vec<Value> =
        context.config.explain().into_iter().map(|line| serde_json::json!([line.key, line.value])).collect();
    canonical_sha256(&values).unwrap_or_default()
}
