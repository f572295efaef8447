//! `agentd doctor`: tries everything that a run needs, names a remedy for each problem, and clears what killed runs
//! left on their issues. It never says "ok" about what it did not try.

mod disk;
mod local;
mod mcp;
mod policy;
mod rest;
mod site;
mod tracker;
mod tried;
mod weak;

use serde_json::{Value, json};

use super::context::Context;
use super::error::CommandError;
use super::output::{Output, Tone};
use super::repositories;
use crate::daemon::DiskRoom;
use crate::domain::name::CommitId;
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;

/// What programs are called among the findings.
pub(super) const PROGRAM: &str = "program";

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Warning,
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    state: State,
    what: &'static str,
    told: String,
    remedy: Option<String>,
    /// Whose it is, where several repositories were looked at and it does not hold for all.
    repository: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: &'static str, told: impl Into<String>) -> Self {
        Self { state: State::Ok, what, told: told.into(), remedy: None, repository: None }
    }

    pub(super) fn warning(what: &'static str, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Warning, remedy: Some(remedy.into()), ..Self::ok(what, told) }
    }

    pub(super) fn problem(what: &'static str, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::warning(what, told, remedy) }
    }

    pub(super) fn document(&self) -> Value {
        let mut told = json!({ "state": self.state.word(), "what": self.what, "told": self.told, "remedy": self.remedy });
        if let Some(repository) = &self.repository {
            told["repository"] = json!(repository);
        }
        told
    }
}

/// Looks at everything; exit 1 if there is a problem.
pub fn run(context: &Context) -> Result<u8, CommandError> {
    let findings = context.block_on(look(context))?;
    let (problems, warnings) = counted_states(&findings);
    if context.output.json() {
        let findings: Vec<Value> = findings.iter().map(Finding::document).collect();
        context.output.document(&json!({
            "ok": problems == 0,
            "problems": problems,
            "warnings": warnings,
            "findings": findings,
        }))?;
    } else {
        tell(context.output, &findings, problems, warnings)?;
    }
    Ok(u8::from(problems > 0))
}

/// Why a push of a branch would fail, and what helps; `None` = the remote takes it, or nothing could be pushed. Nothing is fetched for it:
/// what is pushed is not pushed anyway, and so any commit that is here will do.
pub async fn push_fails(site: &RepositoryContext, origin: &CommitId) -> Option<String> {
    let here = async {
        match site.checkout.has_commit(origin).await {
            Ok(true) => Ok(Some(origin.clone())),
            Ok(false) => site.checkout.reference("HEAD").await,
            Err(error) => Err(error),
        }
    };
    let commit = async { here.await.map_err(|error| error.to_string()) };
    let finding = tried::push_of(site, commit).await.filter(|finding| finding.state == State::Problem)?;
    Some(finding.remedy.map_or(finding.told.clone(), |remedy| format!("{}; {remedy}", finding.told)))
}

/// Rules of the policy that decide nothing, or less than they say.
pub fn idle_rules(standing: &Context) -> Vec<String> {
    standing.config().map(|config| policy::idle_rules(standing, &config)).unwrap_or_default()
}

/// That a disk lacks room for a run; `None` = there is some, or it is not known.
pub async fn full_disk(site: &RepositoryContext) -> Option<String> {
    disk::room(site).await.filter(DiskRoom::is_full).map(|room| room.to_string())
}

async fn look(context: &Context) -> Vec<Finding> {
    let mut findings = vec![local::git(context).await];
    let (config, standings) = match (context.config(), repositories::standings(context).await) {
        (Ok(config), Ok(standings)) => (config, standings),
        (Err(error), _) => {
            findings.extend(of_place(context).await);
            findings.push(refused("configuration", error));
            return findings;
        }
        (_, Err(error)) => {
            findings.push(refused("repository", error));
            return findings;
        }
    };
    let of_machine = weak::look(context, &config).await;
    let mut of_each = Vec::new();
    for standing in &standings {
        let name = standing.stands_at.as_ref().and(standing.global.repo.as_ref());
        let name = name.map_or_else(|| standing.base.display().to_string(), ToString::to_string);
        of_each.push((name, of_repository(standing, &of_machine).await));
    }
    findings.extend(told_apart(of_each));
    findings
}

/// What the checkout of an entry, or the one here, and those whom it names have to say.
async fn of_repository(standing: &Context, of_machine: &[Finding]) -> Vec<Finding> {
    let mut findings = of_place(standing).await;
    findings.extend_from_slice(of_machine);
    match standing.config() {
        Ok(config) => {
            findings.extend(weak::files_and_programs(standing, &config).await);
            findings.extend(local::configuration(standing, &config));
            findings.extend(site::look(standing, config).await);
        }
        Err(error) => findings.push(refused("configuration", error)),
    }
    findings
}

async fn of_place(standing: &Context) -> Vec<Finding> {
    vec![local::repository(standing).await, local::sandbox(standing).await, weak::state(standing)]
}

fn refused(what: &'static str, error: CommandError) -> Finding {
    let remedy = error.hints.first().cloned();
    Finding::problem(
        what,
        error.message,
        remedy.unwrap_or_else(|| "correct it where the message says".to_owned()),
    )
}

/// The findings of several repositories, each with the name of its own. What holds for all of them is told once.
fn told_apart(mut of_each: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    if of_each.len() < 2 {
        return of_each.pop().map(|(_, findings)| findings).unwrap_or_default();
    }
    let holds_for_all = |finding: &Finding| of_each.iter().all(|(_, of)| of.contains(finding));
    let mut told: Vec<Finding> = Vec::new();
    for (name, findings) in &of_each {
        for finding in findings {
            match holds_for_all(finding) {
                true if told.contains(finding) => {}
                true => told.push(finding.clone()),
                false => told.push(Finding { repository: Some(name.clone()), ..finding.clone() }),
            }
        }
    }
    told
}

/// How many problems and warnings there are.
pub(super) fn counted_states(findings: &[Finding]) -> (usize, usize) {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    (count(State::Problem), count(State::Warning))
}

pub(super) fn tell(
    output: Output,
    findings: &[Finding],
    problems: usize,
    warnings: usize,
) -> Result<(), CommandError> {
    for finding in findings {
        let tone = match finding.state {
            State::Ok => Tone::Good,
            State::Warning => Tone::Warn,
            State::Problem => Tone::Bad,
        };
        let word = format!("{:<8}", finding.state.word());
        let whose = finding.repository.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        let told = format!("{whose}{}", finding.told);
        output.entry(&format!("{} {:<13}", output.toned(&word, tone), finding.what), &told)?;
        if let Some(remedy) = &finding.remedy {
            let arrow = output.toned("→", Tone::Strong);
            output.entry(&format!("                       {arrow}"), &output.with_flags(remedy))?;
        }
    }
    output.line(format!("\n{}, {}.", counted(problems, "problem"), counted(warnings, "warning")))
}
