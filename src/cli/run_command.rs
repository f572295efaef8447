//! `agentd run`: one issue, now, in the foreground.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::approvals_text;
use super::args::RunArgs;
use super::context::Context;
use super::doctor;
use super::error::CommandError;
use super::output::Tone;
use super::progress;
use super::repositories::{self, OpenOptions};
use super::stopping::{listen, unless_stopped};
use super::store_refusal;
use crate::config::Flag;
use crate::config::config_file::Publish;
use crate::definition::Severity;
use crate::domain::budget::Budgets;
use crate::domain::issue::ObjectiveSource;
use crate::domain::name::{CommitId, RepoName};
use crate::domain::other_definition::OtherDefinition;
use crate::domain::refusal::Refusal;
use crate::domain::run::{Principal, PrincipalSource};
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail};
use crate::issue::approval;
use crate::issue::reference::IssueSource;
use crate::lifecycle::origin::Resolved;
use crate::lifecycle::pipeline::{self, Finished};
use crate::lifecycle::plan::handoffs;
use crate::lifecycle::request::RunRequest;
use crate::lifecycle::run_observer::RunObserver;
use crate::record::rendering;
use crate::record::summary_text::{self, counted};
use crate::record::{report, run_facts};
use crate::repository::context::RepositoryContext;
use crate::repository::resources;
use crate::repository::shared_limits;
use crate::sys::clock::Clock;
use crate::sys::host::Host;
use crate::sys::paths::AbsPath;
use crate::sys::shutdown::Shutdown;

/// Longest diff that is shown, in bytes.
const LONGEST_DIFF: usize = 1024 * 1024;

/// Runs it; gives the run's exit code.
pub fn run(context: &Context, args: &RunArgs) -> Result<u8, CommandError> {
    if args.stream && !context.output.json() {
        return Err(CommandError::invalid("--stream prints JSON Lines, and needs --json").hint("add --json"));
    }
    match started(context, args) {
        Ok(code) => Ok(code),
        // `--json` has a run output also when nothing could start.
        Err(error) if context.output.json() => {
            context.output.document(&unstarted(title(context, args), &error))?;
            context.output.say_only(&error);
            Ok(error.exit_code)
        }
        Err(error) => Err(error),
    }
}

fn started(context: &Context, args: &RunArgs) -> Result<u8, CommandError> {
    if args.diff && context.output.json() {
        return Err(CommandError::invalid("--diff prints a patch, and --json prints one document")
            .hint("`agentd runs diff latest --json` afterwards has it"));
    }
    let flags = flags(args);
    let request = request(args)?;
    let named = args.issue().map(|issue| context.for_issue(issue)).transpose()?;
    let context = named.as_ref().unwrap_or(context);
    context.block_on_one_thread(async {
        let shutdown = listen()?;
        // Nothing stays of a look: a clone that is not there yet is made where it goes with this command.
        let passing = args.dry_run.then(passing_folder).transpose()?;
        let options = OpenOptions {
            agent: args.agent.as_deref(),
            flags: &flags,
            needs_github: matches!(request.issue, IssueSource::Number(_)),
            fresh: true,
            looks_in: passing.as_ref().map(tempfile::TempDir::path),
            github: None,
            cancel: shutdown.abort_token().clone(),
        };
        let site = unless_stopped(&shutdown, repositories::one(context, &options)).await?;
        if let Some(issue) = args.issue() {
            repositories::check_host(issue, &site)?;
        }
        if args.dry_run {
            return unless_stopped(&shutdown, dry_run(context, request, &site)).await;
        }
        if let Some(full) = doctor::full_disk(&site).await {
            context.output.note(format!("warning: {full}"));
        }
        let walked = walked(context, args.stream, request, &site, &shutdown).await;
        let patch = if args.diff { diff(&site, &walked.output).await } else { String::new() };
        let code = tell(context, walked, &site)?;
        if args.diff {
            let none = patch.is_empty().then_some("\nNo change was committed.\n");
            context.output.result(none.unwrap_or("\n"))?;
            context.output.patch(&patch)?;
        }
        Ok(code)
    })?
}

/// Continues a run with the flags of its record and the configured budgets. Gives the exit code of the new run.
pub(super) fn resume(
    context: &Context,
    flags: impl Fn(&Budgets) -> Vec<Flag>,
    repo: &RepoName,
    base: Option<&AbsPath>,
    request: RunRequest,
) -> Result<u8, CommandError> {
    context.block_on_one_thread(async {
        let shutdown = listen()?;
        let agent = request.agent.clone();
        let options = OpenOptions {
            agent: agent.as_deref(),
            needs_github: matches!(request.issue, IssueSource::Number(_)),
            fresh: true,
            cancel: shutdown.abort_token().clone(),
            ..OpenOptions::default()
        };
        let mut site = unless_stopped(&shutdown, repositories::of_run(context, repo, base, &options)).await?;
        let flags = flags(&site.config.budgets);
        if !flags.is_empty() {
            site = repositories::of_run(
                context,
                repo,
                base,
                &OpenOptions { flags: &flags, fresh: false, ..options.clone() },
            )
            .await?;
        }
        let walked = walked(context, false, request, &site, &shutdown).await;
        tell(context, walked, &site)
    })?
}

/// A run with its progress on stderr; signals end it.
pub(super) async fn walked(
    context: &Context,
    stream: bool,
    request: RunRequest,
    site: &RepositoryContext,
    shutdown: &Shutdown,
) -> Finished {
    if let Some(refusal) = store_refusal::refusal(site).await {
        return pipeline::refused(&request, request.objective(&site.repo), site, refusal);
    }
    let view = progress::View::new(context.output, stream, context.detail());
    let watch = RunObserver::new({
        let view = view.clone();
        move |lines, opened| view.follow(lines, opened.dir)
    });
    if let Some(recorded_run) = &site.replay {
        recorded_run.stops_with(watch.stop().clone());
    }
    let listening = async {
        shutdown.stopped().await;
        watch.stop().ask(Stop::new(StopDetail::Shutdown, "The program was told to stop."));
        view.say(
            "stopping: an agent at work gives one last report (an agent program has ten seconds to end with its own), and work that is \
             done is verified and published first; once more ends everything at once",
        );
        shutdown.aborted().await;
        watch.stop().abort(Stop::new(StopDetail::UserAbort, "The program was told to stop at once."));
        std::future::pending::<Infallible>().await
    };
    let _limits = site.github.as_ref().and_then(|client| shared_limits::share(client, &site.state));
    let walked = tokio::select! {
        walked = pipeline::run(request, site, &watch) => walked,
        never = listening => match never {},
    };
    view.finish().await;
    walked
}

fn tell(context: &Context, walked: Finished, site: &RepositoryContext) -> Result<u8, CommandError> {
    let Finished { output, refusal, .. } = walked;
    let exit_code = output.exit_code;
    if context.output.json() {
        context.output.document(&output)?;
        if let Some(refusal) = refusal {
            context.output.say_only(&refusal.into());
        }
        return Ok(exit_code);
    }
    if let Some(refusal) = refusal {
        return Err(refusal.into());
    }
    let dir = site.state.run(&site.repo, crate::domain::run::RunId(output.run_id));
    let facts = run_facts::read(&dir).unwrap_or_default();
    // Where the record could not be written, there is none.
    let report = Some(dir.report()).filter(|report| report.exists());
    let report = report.map(|report| report.display().to_string());
    let mut lines = ending(context, &output, &facts, report);
    for (proposal, decision) in approval::waiting(&site.state, &dir, &facts, site.clock.now()) {
        lines.push(String::new());
        let rows = approvals_text::rows(context.output, proposal, &decision);
        lines.extend(rows.iter().map(|(name, value)| row(context, &capitalised(name), value)));
        if decision == approval::Decision::Open {
            let resume = format!("agentd runs resume {}", output.run_id);
            lines.push(row(context, "Then", &context.output.with_flags(&resume)));
        }
    }
    context.output.whole_line(&lines.join("\n"))?;
    let summary = summary_text::of_agent(&facts).unwrap_or(output.summary.trim());
    if !summary.is_empty() {
        context.output.line(format!("\n{summary}"))?;
    }
    Ok(exit_code)
}

/// So many changed files are named in it.
const MOST_FILES: usize = 20;

/// The summary at the end of a run: the result, the change, the cost, and where to look.
fn ending(
    context: &Context,
    output: &RunOutput,
    facts: &crate::domain::facts::RunFacts,
    report: Option<String>,
) -> Vec<String> {
    let tone = if output.success { Tone::Good } else { Tone::Bad };
    let (headline, sentence) = rendering::headline(output, facts);
    let mut lines = vec![format!("{} {sentence}", context.output.toned(&headline, tone))];
    if let Some(red) = rendering::red(output, facts) {
        lines.extend(red.output.lines().map(|line| format!("  | {line}")));
    }
    let mut fact = |name: &str, value: String| lines.push(row(context, name, &value));
    if let Some(url) = &output.artifacts.pr_url {
        fact("Pull request", url.clone());
    } else if let Some(branch) = rendering::pushed_branch(output, facts) {
        fact("Branch", format!("{branch}, pushed"));
    }
    if let Some(committed) = &facts.committed {
        let files = &committed.change.files;
        for file in files.iter().take(MOST_FILES) {
            fact("", format!("{} +{} −{}", summary_text::plain(&file.path), file.added, file.removed));
        }
        if let Some(more) = files.len().checked_sub(MOST_FILES).filter(|more| *more > 0) {
            let diff = format!("agentd runs diff {}", output.run_id);
            fact("", format!("and {more} more: {}", context.output.with_flags(&diff)));
        }
        fact("Change", rendering::change_line(&committed.change));
    }
    for command in &facts.verification {
        fact("Verify", format!("{}: {}", command.argv.join(" "), command.outcome()));
    }
    fact("Cost", rendering::cost_of_work(facts));
    fact("Time", rendering::duration(rendering::own_time(output, facts)));
    fact("Stop reason", format!("{} / {}", output.stop_reason, output.stop_detail));
    if let Some(mapping) = &output.mapping {
        fact("Worktree", mapping.worktree.clone());
    }
    if let Some(report) = report {
        fact("Report", report);
    }
    // What waits for an approval is shown below with its commands.
    if !output.success && output.stop_detail != StopDetail::ApprovalPending {
        for step in summary_text::next_steps(output, facts) {
            fact("Next", context.output.with_flags(&step).into_owned());
        }
    }
    lines
}

/// A name and what it is.
fn row(context: &Context, name: &str, value: &str) -> String {
    context.output.behind(&format!("  {name:<12}"), value)
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn passing_folder() -> Result<tempfile::TempDir, CommandError> {
    let made = tempfile::Builder::new().prefix("agentd-dry-run-").tempdir();
    made.map_err(|error| CommandError::failed(format!("a folder for the look cannot be made: {error}")))
}

async fn dry_run(
    context: &Context,
    request: RunRequest,
    site: &RepositoryContext,
) -> Result<u8, CommandError> {
    let resolved = match pipeline::prepare(request.clone(), site).await {
        Ok(resolved) => resolved,
        Err(refusal) => {
            return tell(
                context,
                pipeline::refused(&request, request.objective(&site.repo), site, refusal),
                site,
            );
        }
    };
    let plan = &resolved.plan;
    let mut warnings = plan_warnings(&resolved);
    warnings.extend(stumbles(&resolved, site).await);
    let planned = serde_json::json!({
        "dry_run": true,
        "issue": plan.issue.key,
        "title": plan.issue.title,
        "repository": site.repo,
        "origin": { "branch": resolved.origin.branch, "source": resolved.origin.source, "commit": resolved.origin.commit },
        "branch": crate::domain::mapping::branch_of(&plan.issue.key),
        "worktree": plan.worktree_shown(site),
        "agent": plan.loaded.definition.name,
        "steps": plan.loaded.definition.flow.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>(),
        "entry": plan.loaded.definition.flow.entry,
        "targets": plan.session.settings.targets.iter().map(|t| format!("{}/{}", t.provider, t.model)).collect::<Vec<_>>(),
        "budgets": {
            "max_steps": plan.budgets.max_steps,
            "max_wall_time_ms": plan.budgets.max_wall_time.as_millis() as u64,
            "max_cost_usd": plan.budgets.max_cost,
            "sources": plan.budget_sources,
        },
        "publish": plan.publish,
        "verify": site.config.verify.commands,
        "warnings": warnings,
    });
    if context.output.json() {
        context.output.document(&planned)?;
        return Ok(0);
    }
    let mut rows = plan_rows(&resolved, site);
    rows.extend(warnings.into_iter().map(|told| ("warning", told)));
    rows.push(("", "Nothing was begun or changed: --dry-run.".to_owned()));
    for (name, value) in rows {
        context.output.entry(&format!("{name:<14}"), &value)?;
    }
    Ok(0)
}

/// What a run would stumble over here, some of it after it has paid for its work.
async fn stumbles(Resolved { plan, origin, .. }: &Resolved, site: &RepositoryContext) -> Vec<String> {
    let root = site.checkout.root();
    let mut gone = resources::programs_of_the_work_gone(&site.config, root, &site.env);
    gone.extend(resources::agent_programs_gone(plan.executors.programs(), root, &site.env));
    let mut told: Vec<String> =
        gone.iter().map(|gone| format!("{gone}: a run would stumble over it")).collect();
    if plan.publish != Publish::None {
        told.extend(doctor::push_fails(site, &origin.commit).await);
    }
    told.extend(doctor::full_disk(site).await);
    told
}

/// What a run would be told at its start, and what it might stumble over.
fn plan_warnings(Resolved { plan, warnings, .. }: &Resolved) -> Vec<String> {
    let denied = handoffs::denied(&plan.loaded, &plan.policy);
    let of_definition = plan.loaded.diagnostics.iter().map(ToString::to_string);
    let of_start = warnings.iter().chain(&plan.warnings).map(|warning| warning.text.clone());
    // The others are among those of the start.
    let denied = denied.iter().filter(|denied| denied.severity == Severity::Warning);
    let of_policy = denied.map(|denied| format!("{denied}\n    fix: {}", denied.remedy()));
    let asks_models = !plan.session.settings.targets.is_empty();
    let of_budgets = plan.budgets.asks_nothing().filter(|_| asks_models).map(str::to_owned);
    of_definition.chain(of_start).chain(of_policy).chain(of_budgets).collect()
}

/// The plan of `--dry-run` for people.
fn plan_rows(resolved: &Resolved, site: &RepositoryContext) -> Vec<(&'static str, String)> {
    let (plan, origin, budgets) = (&resolved.plan, &resolved.origin, &resolved.plan.budgets);
    let flow = &plan.loaded.definition.flow;
    let steps: Vec<_> = flow.steps.iter().map(|step| step.id.as_str()).collect();
    let source = |key: &str| plan.budget_sources.get(key).map(ToString::to_string).unwrap_or_default();
    let mut rows = vec![
        ("issue", format!("{} of {}: {}", plan.issue.key, site.repo, plan.issue.title)),
        ("origin", format!("{} ({}) at {}", origin.branch, origin.source, origin.commit.short())),
        ("branch", crate::domain::mapping::branch_of(&plan.issue.key).to_string()),
        ("worktree", plan.worktree_shown(site)),
        ("agent", format!("{}, {}", plan.loaded.definition.name, counted(steps.len(), "step"))),
        ("steps", format!("{}; it begins with {}", steps.join(", "), flow.entry)),
    ];
    rows.extend(
        plan.session
            .settings
            .targets
            .iter()
            .map(|target| ("model", format!("{} of {}", target.model, target.provider))),
    );
    rows.extend([
        ("max_steps", format!("{} ({})", budgets.max_steps, source("max_steps"))),
        (
            "max_wall_time",
            format!(
                "{} ({})",
                rendering::duration(budgets.max_wall_time.as_millis() as u64),
                source("max_wall_time")
            ),
        ),
        ("max_cost", format!("{} ({})", budgets.max_cost, source("max_cost"))),
        ("publish", plan.publish.as_str().to_owned()),
    ]);
    let verify = &site.config.verify.commands;
    rows.extend(verify.iter().map(|command| ("verify", command.join(" "))));
    if verify.is_empty() {
        rows.push(("verify", "no commands".to_owned()));
    }
    rows
}

/// The local operator (D71).
pub fn operator(host: &Host) -> Principal {
    Principal::new(PrincipalSource::Local, &format!("{}@{}", host.uid, host.name), Some(host.user.clone()))
}

/// A run of an issue that nothing else is said of.
pub(super) fn plain(number: u64) -> RunRequest {
    RunRequest {
        issue: IssueSource::Number(number),
        source: ObjectiveSource::Cli,
        principal: operator(&Host::current()),
        permission: None,
        asked: None,
        origin: None,
        agent: None,
        publish: None,
        format: None,
        parameters: BTreeMap::new(),
        metadata: Map::new(),
        answers: None,
        resume: None,
        follow_up: None,
        new_remarks: Vec::new(),
        check_reruns: Vec::new(),
        catches_up: false,
        completes: false,
        other_definition: OtherDefinition::default(),
        dry_run: false,
    }
}

fn request(args: &RunArgs) -> Result<RunRequest, CommandError> {
    let issue = match (args.issue(), &args.issue_file) {
        (Some(issue), _) => IssueSource::Number(issue.tracked()?),
        (None, Some(path)) => IssueSource::File(path.clone()),
        (None, None) => {
            return Err(
                CommandError::invalid("an issue is missing").hint("agentd run N, or --issue-file FILE.md")
            );
        }
    };
    let format = args.format.as_deref().map(str::parse).transpose();
    let format = format
        .map_err(|error: crate::domain::report::UnknownFormat| CommandError::argument(error.to_string()))?;
    let metadata: Map<String, Value> =
        args.meta.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    Ok(RunRequest {
        issue,
        origin: args.origin.clone(),
        agent: args.agent.clone(),
        publish: args.publish(),
        format,
        parameters: args.uv.iter().cloned().collect(),
        metadata,
        dry_run: args.dry_run,
        ..plain(0)
    })
}

/// The flags of `run` that stand above the configuration, with the keys that they set.
const FLAGS: [(&str, &str); 5] = [
    ("--max-steps", "budgets.max_steps"),
    ("--max-wall-time", "budgets.max_wall_time"),
    ("--max-cost", "budgets.max_cost"),
    ("--max-turns", "session.max_turns"),
    ("--max-retries", "session.max_retries"),
];

/// The flags that a run was started with, for doing the same again; `wanted` picks by key.
pub(super) fn flags_of(asked: &BTreeMap<String, Value>, wanted: impl Fn(&str) -> bool) -> Vec<Flag> {
    let known = FLAGS.into_iter().filter(|(_, key)| wanted(key));
    known
        .filter_map(|(name, key)| {
            Some(Flag { name, key, value: toml::Value::try_from(asked.get(key)?).ok()? })
        })
        .collect()
}

fn flags(args: &RunArgs) -> Vec<Flag> {
    let integer = |value: u32| toml::Value::Integer(i64::from(value));
    let values = [
        args.max_steps.map(integer),
        args.max_wall_time.map(|span| toml::Value::String(span.to_string())),
        args.max_cost.map(toml::Value::Float),
        args.max_turns.map(integer),
        args.max_retries.map(integer),
    ];
    let given = FLAGS.into_iter().zip(values);
    given.filter_map(|((name, key), value)| Some(Flag { name, key, value: value? })).collect()
}

/// The run output of a run that could not be planned, because its arguments, configuration or directory are wrong.
pub fn unstarted(title: String, error: &CommandError) -> RunOutput {
    let detail = error.detail.unwrap_or(match error.exit_code {
        5 => StopDetail::SchemaInvalid,
        4 => StopDetail::ConfigInvalid,
        3 => StopDetail::McpUnavailable,
        _ => StopDetail::Internal,
    });
    let stop = Stop::new(detail, error.message.clone());
    let principal = operator(&Host::current());
    report::unstarted(Uuid::now_v7(), title, principal, &stop, Clock::system().now_ms())
}

fn title(context: &Context, args: &RunArgs) -> String {
    let title = match (args.issue(), &args.issue_file) {
        (Some(issue), _) => format!("Issue {}", issue.key),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => "(none)".to_owned(),
    };
    let named = args.issue().and_then(|issue| issue.repo.as_ref());
    let repo = named.or(context.global.repo.as_ref()).map(|repo| format!(" of {repo}")).unwrap_or_default();
    format!("{title}{repo}")
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> Self {
        let mut hints = refusal.hints;
        if let Some(technical) = &refusal.technical {
            tracing::debug!(technical, "a start was refused");
            // Somebody at this terminal can do something about an address or a name that is wrong.
            hints.extend(refusal.transient.then(|| format!("in technical words: {technical}")));
        }
        Self {
            message: refusal.stop.message,
            hints,
            exit_code: refusal.stop.detail.exit_code(),
            detail: Some(refusal.stop.detail),
            transient: refusal.transient,
        }
    }
}

/// The unified diff of a run, from its origin to its head, for people.
pub async fn diff(site: &RepositoryContext, output: &RunOutput) -> String {
    let commits = (&output.artifacts.base_commit, &output.artifacts.head_commit);
    let (Some(base), Some(head)) = commits else { return String::new() };
    match (CommitId::parse(base), CommitId::parse(head)) {
        (Ok(base), Ok(head)) => match site.checkout.diff(&base, &head, LONGEST_DIFF).await {
            Ok(patch) => patch.text,
            Err(error) => format!("(the diff cannot be made: {error})\n"),
        },
        _ => String::new(),
    }
}
