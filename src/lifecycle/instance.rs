//! Room 4, instance: everything that fixes how the run will behave is put together, hashed and recorded.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value;

use super::budget_extension;
use super::judge;
use super::plan::Plan;
use super::recovery::Predecessor;
use super::run::Run;
use super::task::{self, LONGEST_TITLE};
use super::toolbox::Toolbox;
use crate::config::source_format::Source;
use crate::domain::budget::Spend;
use crate::domain::canonical::canonical_sha256;
use crate::domain::event::{Asked, Event, RunStarted};
use crate::domain::failures;
use crate::domain::policy::PolicyPrincipal;
use crate::domain::run::VisitRecord;
use crate::domain::run_output::{FailureRecord, RunOutput};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, incoming, incoming_line};
use crate::engine::arguments::Scope;
use crate::engine::budget::Meter;
use crate::engine::journal::{Journal, JournalError};
use crate::engine::model::Model;
use crate::engine::pacing::Backoff;
use crate::engine::policy::ApprovalBook;
use crate::engine::session::SessionWorld;
use crate::engine::tool_catalog::ToolCatalogs;
use crate::engine::tool_schema::ArgumentSchemas;
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
use crate::sys::worktree_path::WorktreeRoot;

/// A run that is ready to visit its first step.
pub struct Instance {
    /// What its flow runs on.
    pub plan: FlowPlan,
    /// What its flow works with.
    pub world: FlowWorld,
    /// Visits that a killed predecessor finished.
    pub finished: Vec<VisitRecord>,
    /// Its tools, to be closed at its end.
    pub toolbox: Toolbox,
}

/// Puts the run together. `Err` inside: the run ends here.
pub async fn start(
    run: &Run<'_>,
    context: &RepositoryContext,
) -> Result<Result<Instance, Stop>, JournalError> {
    let plan = run.plan;
    let Some(worktree) = run.worktree() else {
        return Err(run.journal.defect("the worktree's room was left without one"));
    };
    let root = match WorktreeRoot::open(worktree.path()) {
        Ok(root) => root,
        Err(error) => {
            return Ok(Err(Stop::new(
                StopDetail::GitError,
                format!("The worktree cannot be opened: {error}."),
            )));
        }
    };
    let policy = plan.policy.clone().in_worktree(root.clone()).approved_by(approvals(context));
    let Begun { inherited, finished, prior_failures } = begin(run, context).await?;
    let meter = Meter::new(plan.budgets.clone(), inherited, run.clock).raised(budget_extension::caps(run)?);
    let sandbox = match open_sandbox(run, context, worktree).await? {
        Ok(sandbox) => sandbox,
        Err(stop) => return Ok(Err(stop)),
    };
    let agents = match agent_backend::backends(agent_backend::Workplace {
        executors: &plan.executors,
        run_id: run.lease.run_id,
        journal: &run.journal,
        context,
        worktree,
        sandbox: &sandbox,
    }) {
        Ok(agents) => agents,
        Err(stop) => return Ok(Err(stop)),
    };
    let toolbox = match Toolbox::open(run, context, &root).await {
        Ok(toolbox) => toolbox,
        Err(stop) => return Ok(Err(stop)),
    };
    let providers = Arc::clone(&plan.providers) as Arc<dyn Model>;
    let model = match &context.replay {
        Some(recorded_run) => recorded_run.model(providers),
        None => providers,
    };
    let world = FlowWorld(SessionWorld {
        model,
        journal: Arc::clone(run.journal.file()) as Arc<dyn Journal>,
        policy: Arc::new(policy),
        redactor: Arc::clone(&plan.redactor),
        meter: Arc::new(meter),
        day_cap: resources::day_cap(&context.config, &context.state),
        stop: run.stop(),
        clock: run.clock,
        queues: Arc::new(resources::queues(&context.config)),
        schemas: ArgumentSchemas::default(),
        tool_catalogs: ToolCatalogs::default(),
        backoff: backoff(run, context),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        claims: Some(judge::in_turn(run, context, worktree)),
        redaction: context.redaction_program().map(Arc::new),
        fault_snapshots: context.config.record.fault_snapshots,
        longest_inline: context.config.longest_inline(),
    });
    let plan = FlowPlan {
        loaded: Arc::clone(&plan.loaded),
        values: with_facts(run, context),
        task: task::text(run, context, &prior_failures),
        format: plan.request.format.unwrap_or_default(),
        shapes: Shapes::default(),
        settings: plan.session.settings.clone(),
        tools: toolbox.tools.clone(),
        verify_commands: context.config.verify.commands.clone(),
        include_prompt_text: context.config.record.include_prompt_text,
        scope: Scope {
            principal: PolicyPrincipal::new(&plan.request.principal, plan.request.permission),
            repo: context.repo.to_string(),
            issue: plan.issue.key.clone(),
            branch: run.lease.mapping.branch.to_string(),
            worktree: plan.worktree_shown(context),
        },
        workplace: Workplace {
            root,
            agent_folder: plan.loaded.folder.clone(),
            environment: context.child_environment(),
            time_limit: context.config.verify.timeout.0,
            sandbox: run.caged().cloned(),
            upstream: Some(Arc::new(Upstream {
                base: run_sandbox::base(&run.lease.mapping.origin, context),
                sandbox,
            })),
        },
        agents,
        run_id: run.lease.run_id,
    };
    Ok(Ok(Instance { plan, world, finished, toolbox }))
}

/// What a run begins with.
pub struct Begun {
    /// What killed predecessors used.
    inherited: Spend,
    /// The visits that they finished.
    finished: Vec<VisitRecord>,
    /// What the issue's last run failed at.
    prior_failures: Vec<FailureRecord>,
}

/// Records that the run begins, under which rules, and what it takes over.
pub async fn begin(run: &Run<'_>, context: &RepositoryContext) -> Result<Begun, JournalError> {
    let plan = run.plan;
    let inherited = run.lease.predecessor.as_ref().map(Predecessor::spent).unwrap_or_default();
    let prior_failures = prior_failures(run, context).await;
    run.journal.record(Event::RunStarted(Box::new(RunStarted {
        agent: plan.loaded.definition.name.clone(),
        definition_sha256: plan.loaded.sha256.clone(),
        policy_versions: plan.policy.versions(),
        config_sha256: config_hash(context),
        budgets: plan.budgets.clone(),
        inherited,
        metadata: plan.request.metadata.clone(),
        longest_inline: context.config.longest_inline(),
        asked: asked(plan, context),
        prior_failures: prior_failures.clone(),
    })))?;
    let finished =
        run.lease.predecessor.as_ref().map(|before| before.facts.visits.clone()).unwrap_or_default();
    for visit in &finished {
        run.journal.record(Event::VisitImported(Box::new(visit.clone())))?;
    }
    Ok(Begun { inherited, finished, prior_failures })
}

/// A replay waits for nobody.
fn backoff(run: &Run<'_>, context: &RepositoryContext) -> Backoff {
    let session = &run.plan.session;
    match &context.replay {
        Some(_) => Backoff { first: Duration::ZERO, cap: Duration::ZERO },
        None => Backoff { first: session.retry_backoff, cap: session.retry_backoff_max },
    }
}

/// The sandbox of the run's programs, with a record of what holds them.
async fn open_sandbox(
    run: &Run<'_>,
    context: &RepositoryContext,
    worktree: &Worktree,
) -> Result<Result<Arc<RunSandbox>, Stop>, JournalError> {
    let needs = Needs {
        definition: &run.plan.loaded.definition,
        programs: run.plan.executors.programs(),
        origin: &run.lease.mapping.origin,
        worktree,
    };
    let sandbox = match RunSandbox::open(needs, &run.journal, context).await {
        Ok(sandbox) => Arc::new(sandbox),
        Err(stop) => return Ok(Err(stop)),
    };
    run.journal.record(Event::SandboxChosen(
        sandbox.facts(&run.plan.loaded.definition, run.plan.executors.programs()),
    ))?;
    run.has_sandbox(Arc::clone(&sandbox));
    Ok(Ok(sandbox))
}

/// What no configuration knows of the request.
fn asked(plan: &Plan, context: &RepositoryContext) -> Asked {
    let flags = context.config.explain().into_iter().filter(|row| matches!(row.source, Source::Flag { .. }));
    Asked {
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
    let returned = book.clone();
    ApprovalBook {
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

/// The failures of the issue's last run, and those that it had been told of. What cannot be read is left out.
async fn prior_failures(run: &Run<'_>, context: &RepositoryContext) -> Vec<FailureRecord> {
    let Some(last) = &run.plan.lease_record else { return Vec::new() };
    let dir = context.state.run(&context.repo, last.run_id);
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
fn with_facts(run: &Run<'_>, context: &RepositoryContext) -> Values {
    let issue = &run.plan.issue;
    let mut values = run.plan.values.clone();
    values.set("issue", issue.key.to_string());
    values.set("issue_number", issue.key.to_string());
    values.set("issue_title", incoming_line(&issue.title, LONGEST_TITLE).text);
    values.set("issue_url", issue.url.clone().unwrap_or_default());
    values.set("repository", context.repo.to_string());
    values.set("branch", run.lease.mapping.branch.to_string());
    values.set("origin_branch", run.lease.mapping.origin.branch.to_string());
    // A step that takes text takes the issue's, fenced like everywhere (S-050).
    values.input_text = Some(fence("issue body", &incoming(&issue.body, LONGEST_INCOMING)));
    values
}

/// Hash over every effective value with its source. Placeholders stay placeholders, so no secret is in it.
fn config_hash(context: &RepositoryContext) -> String {
    let values: Vec<Value> =
        context.config.explain().into_iter().map(|line| serde_json::json!([line.key, line.value])).collect();
    canonical_sha256(&values).unwrap_or_default()
}
