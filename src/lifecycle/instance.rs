//! Room 4, instance: everything that fixes how the run will behave is put together, hashed and recorded.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value;

use super::agent_backend;
use super::enclosure::{self, Enclosure};
use super::equipment;
use super::evidence;
use super::guidance;
use super::plan::Plan;
use super::recovery::{self, Predecessor};
use super::run::Run;
use super::site::Site;
use super::task::{self, LONGEST_TITLE};
use super::toolbox::Toolbox;
use super::upstream::Upstream;
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
pub async fn start(run: &Run<'_>, site: &Site) -> Result<Result<Instance, Stop>, JournalError> {
    let plan = run.plan;
    let Some(worktree) = run.worktree() else {
        return Err(run.defect("the worktree's room was left without one"));
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
    let policy = plan.policy.clone().in_worktree(root.clone()).approved_by(approvals(site));
    let Begun { inherited, finished, prior_failures } = begin(run, site).await?;
    let meter = Meter::new(plan.budgets.clone(), inherited, run.clock).raised(guidance::caps(run)?);
    let enclosure = match enclose(run, site, worktree).await? {
        Ok(enclosure) => enclosure,
        Err(stop) => return Ok(Err(stop)),
    };
    let agents = match agent_backend::backends(run, site, worktree, &enclosure) {
        Ok(agents) => agents,
        Err(stop) => return Ok(Err(stop)),
    };
    let toolbox = match Toolbox::open(run, site, &root).await {
        Ok(toolbox) => toolbox,
        Err(stop) => return Ok(Err(stop)),
    };
    let providers = Arc::clone(&plan.providers) as Arc<dyn Model>;
    let (model, tools) = match &site.replay {
        Some(recording) => (recording.model(providers), recording.tools(&toolbox.tools)),
        None => (providers, toolbox.tools.clone()),
    };
    let world = FlowWorld(SessionWorld {
        model,
        journal: Arc::clone(run.journal()) as Arc<dyn Journal>,
        policy: Arc::new(policy),
        redactor: Arc::clone(&plan.redactor),
        meter: Arc::new(meter),
        day_cap: equipment::day_cap(&site.config, &site.state),
        stop: run.stop(),
        clock: run.clock,
        queues: Arc::new(equipment::queues(&site.config)),
        schemas: ArgumentSchemas::default(),
        tool_catalogs: ToolCatalogs::default(),
        backoff: backoff(run, site),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        claims: Some(evidence::in_turn(run, site, worktree)),
        redaction: site.redaction_program().map(Arc::new),
        fault_snapshots: site.config.record.fault_snapshots,
        longest_inline: site.config.longest_inline(),
    });
    let plan = FlowPlan {
        loaded: Arc::clone(&plan.loaded),
        values: with_facts(run, site),
        task: task::text(run, site, &prior_failures),
        format: plan.request.format.unwrap_or_default(),
        shapes: Shapes::default(),
        settings: plan.session.settings.clone(),
        tools,
        verify_commands: site.config.verify.commands.clone(),
        include_prompt_text: site.config.record.include_prompt_text,
        scope: Scope {
            principal: PolicyPrincipal::new(&plan.request.principal, plan.request.permission),
            repo: site.repo.to_string(),
            issue: plan.issue.key.clone(),
            branch: run.lease.mapping.branch.to_string(),
            worktree: plan.worktree_shown(site),
        },
        workplace: Workplace {
            root,
            agent_folder: plan.loaded.folder.clone(),
            environment: site.child_environment(),
            time_limit: site.config.verify.timeout.0,
            caged: run.caged().cloned(),
            upstream: Some(Arc::new(Upstream { base: enclosure::base(run, site), enclosure })),
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
pub async fn begin(run: &Run<'_>, site: &Site) -> Result<Begun, JournalError> {
    let plan = run.plan;
    let inherited = run.lease.predecessor.as_ref().map(Predecessor::spent).unwrap_or_default();
    let prior_failures = prior_failures(run, site).await;
    run.record(Event::RunStarted(Box::new(RunStarted {
        agent: plan.loaded.definition.name.clone(),
        definition_sha256: plan.loaded.sha256.clone(),
        policy_versions: plan.policy.versions(),
        config_sha256: config_hash(site),
        budgets: plan.budgets.clone(),
        inherited,
        metadata: plan.request.metadata.clone(),
        longest_inline: site.config.longest_inline(),
        asked: asked(plan, site),
        prior_failures: prior_failures.clone(),
    })))?;
    let finished =
        run.lease.predecessor.as_ref().map(|before| before.facts.visits.clone()).unwrap_or_default();
    for visit in &finished {
        run.record(Event::VisitImported(Box::new(visit.clone())))?;
    }
    Ok(Begun { inherited, finished, prior_failures })
}

/// A replay waits for nobody.
fn backoff(run: &Run<'_>, site: &Site) -> Backoff {
    let session = &run.plan.session;
    match &site.replay {
        Some(_) => Backoff { first: Duration::ZERO, cap: Duration::ZERO },
        None => Backoff { first: session.retry_backoff, cap: session.retry_backoff_max },
    }
}

/// The place of the run's programs, with a record of what holds them.
async fn enclose(
    run: &Run<'_>,
    site: &Site,
    worktree: &Worktree,
) -> Result<Result<Arc<Enclosure>, Stop>, JournalError> {
    let enclosure = match Enclosure::open(run, site, worktree).await {
        Ok(enclosure) => Arc::new(enclosure),
        Err(stop) => return Ok(Err(stop)),
    };
    run.record(Event::SandboxChosen(
        enclosure.facts(&run.plan.loaded.definition, run.plan.executors.programs()),
    ))?;
    run.has_enclosure(Arc::clone(&enclosure));
    Ok(Ok(enclosure))
}

/// What no configuration knows of the request.
fn asked(plan: &Plan, site: &Site) -> Asked {
    let flags = site.config.explain().into_iter().filter(|row| matches!(row.source, Source::Flag { .. }));
    Asked {
        agent: plan.request.agent.clone(),
        publish: plan.request.publish.map(|publish| publish.as_str().to_owned()),
        format: plan.request.format,
        parameters: plan.request.parameters.clone(),
        flags: flags.filter_map(|row| Some((row.key, serde_json::to_value(row.value).ok()?))).collect(),
    }
}

/// Grants wait in the state directory until their proposal is made again.
fn approvals(site: &Site) -> ApprovalBook {
    let (book, clock) = (Approvals::new(&site.state, &site.repo), site.clock.clone());
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

/// What the issue's last run left and had been told itself. What cannot be read is not told.
async fn prior_failures(run: &Run<'_>, site: &Site) -> Vec<FailureRecord> {
    let Some(last) = &run.plan.lease_record else { return Vec::new() };
    let dir = site.state.run(&site.repo, last.run_id);
    let read = tokio::task::spawn_blocking(move || {
        let result: RunOutput = serde_json::from_slice(&std::fs::read(dir.result()).ok()?).ok()?;
        let facts = recovery::facts(&dir).ok()?;
        // A success has dealt with what came before it.
        let before = facts.started.filter(|_| !result.success).map(|started| started.prior_failures);
        Some(failures::told(&result.failures, &before.unwrap_or_default()))
    });
    read.await.ok().flatten().unwrap_or_default()
}

/// The facts of the issue, under their published names (D68).
fn with_facts(run: &Run<'_>, site: &Site) -> Values {
    let issue = &run.plan.issue;
    let mut values = run.plan.values.clone();
    values.set("issue", issue.key.to_string());
    values.set("issue_number", issue.key.to_string());
    values.set("issue_title", incoming_line(&issue.title, LONGEST_TITLE).text);
    values.set("issue_url", issue.url.clone().unwrap_or_default());
    values.set("repository", site.repo.to_string());
    values.set("branch", run.lease.mapping.branch.to_string());
    values.set("origin_branch", run.lease.mapping.origin.branch.to_string());
    // A step that takes text takes the issue's, fenced like everywhere (S-050).
    values.input_text = Some(fence("issue body", &incoming(&issue.body, LONGEST_INCOMING)));
    values
}

/// Over every effective value with its source; placeholders stay placeholders, so no secret is in it.
fn config_hash(site: &Site) -> String {
    let values: Vec<Value> =
        site.config.explain().into_iter().map(|line| serde_json::json!([line.key, line.value])).collect();
    canonical_sha256(&values).unwrap_or_default()
}
