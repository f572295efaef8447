//! Checks of commits: how those of many pull requests stand, and what a failed one says.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::checks_wire::{
    AnnotationWire, CheckRunWire, CheckRunsWire, CombinedStatusWire, ContextWire, JobWire, StatusWire,
};
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use crate::domain::head_check::{CheckOutcome, HeadCheck, JobId};
use crate::domain::name::RepoName;

const CHECKS: &str = "checks: read";
const ACTIONS: &str = "actions: read";
/// Pull requests of one question.
pub const HEADS_AT_ONCE: usize = 50;

/// What of a check is asked for.
const FIELDS: &str = "pageInfo { hasNextPage endCursor } nodes { __typename \
    ... on CheckRun { databaseId name status conclusion startedAt detailsUrl title summary \
    checkSuite { databaseId workflowRun { event workflow { databaseId } } } REQUIRED } \
    ... on StatusContext { context state targetUrl description REQUIRED } }";

/// Most pages of a hundred checks that are read of one commit.
const MOST_PAGES: usize = 20;

/// Where a rollup is asked for.
#[derive(Clone, Copy)]
enum RollupOf<'a> {
    /// The head of a pull request.
    Head(u64),
    /// The same, with what its base branch requires.
    RequiredOf(u64),
    /// The tip of a branch.
    Tip(&'a str),
}

impl RollupOf<'_> {
    fn fields(self) -> String {
        match self {
            Self::RequiredOf(pull) => {
                FIELDS.replace("REQUIRED", &format!("isRequired(pullRequestNumber: {pull})"))
            }
            Self::Head(_) | Self::Tip(_) => FIELDS.replace("REQUIRED", ""),
        }
    }

    /// The next page, as `at`.
    fn next_page(self) -> String {
        let contexts =
            format!("statusCheckRollup {{ contexts(first: 100, after: $after) {{ {} }} }}", self.fields());
        match self {
            Self::Head(pull) | Self::RequiredOf(pull) => {
                format!("at: pullRequest(number: {pull}) {{ {contexts} }}")
            }
            Self::Tip(_) => {
                format!("at: ref(qualifiedName: $base) {{ target {{ ... on Commit {{ {contexts} }} }} }}")
            }
        }
    }
}

/// The head of a pull request, and how its checks stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadState {
    /// The commit.
    pub head: String,
    /// Its checks.
    pub checks: Vec<HeadCheck>,
    /// Whether it can be merged; `None` = GitHub does not know yet.
    pub mergeable: Option<bool>,
}

/// What is known before a failed check is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedHead {
    /// The head's checks; each says whether it is required.
    pub checks: Vec<HeadCheck>,
    /// The checks of the base branch's tip.
    pub on_base: Vec<HeadCheck>,
}

/// What a check says of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// `notice`, `warning` or `failure`.
    pub level: String,
    /// In short.
    pub title: String,
    /// What it says.
    pub message: String,
}

/// A job of GitHub Actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The workflow run that it is of.
    pub run: u64,
    /// Whether a runner ever took it.
    pub had_runner: bool,
    /// The first step that failed.
    pub failed_step: Option<Step>,
}

/// A step of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// When it began, to the second.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended, to the second.
    pub completed_at: Option<DateTime<Utc>>,
}

impl Client {
    /// The heads of at most [`HEADS_AT_ONCE`] pull requests with their checks, in one request. What cannot be read is absent.
    pub async fn heads(&self, repo: &RepoName, pulls: &[u64]) -> Result<BTreeMap<u64, HeadState>, Error> {
        let doing = format!("reading the checks of {} pull requests of {repo}", pulls.len());
        let asked: String = pulls
            .iter()
            .take(HEADS_AT_ONCE)
            .map(|number| format!("p{number}: pullRequest(number: {number}) {{ ...head }} "))
            .collect();
        let text = format!(
            "query($owner: String!, $name: String!) {{ repository(owner: $owner, name: $name) {{ {asked}}} }} \
             fragment head on PullRequest {{ headRefOid mergeable statusCheckRollup {{ contexts(first: 100) {{ {} }} }} }}",
            RollupOf::Head(0).fields()
        );
        let variables = json!({"owner": repo.owner(), "name": repo.name()});
        let answer = self.graphql(Query::new(text, variables, &doing, CHECKS)).await?;
        let found = &answer.data["repository"];
        if found.is_null() {
            return answer.whole().map(|_| BTreeMap::new());
        }
        let mut heads = BTreeMap::new();
        for number in pulls.iter().take(HEADS_AT_ONCE) {
            let one = &found[format!("p{number}")];
            let Some(head) = one["headRefOid"].as_str() else { continue };
            let (of, rollup) = (RollupOf::Head(*number), &one["statusCheckRollup"]);
            let checks = self.all_contexts(repo, of, rollup, &doing).await?;
            let mergeable = match one["mergeable"].as_str() {
                Some("MERGEABLE") => Some(true),
                Some("CONFLICTING") => Some(false),
                _ => None,
            };
            heads.insert(*number, HeadState { head: head.to_owned(), checks, mergeable });
        }
        Ok(heads)
    }

    /// The checks of a pull request's head, with what its base branch requires, and those of that branch's tip.
    pub async fn checked_head(&self, repo: &RepoName, pull: u64, base: &str) -> Result<CheckedHead, Error> {
        let doing = format!("reading the checks of pull request {pull} of {repo}");
        let base = format!("refs/heads/{base}");
        let (of_head, of_base) = (RollupOf::RequiredOf(pull), RollupOf::Tip(&base));
        let text = format!(
            "query($owner: String!, $name: String!, $number: Int!, $base: String!) {{ \
             repository(owner: $owner, name: $name) {{ \
             pullRequest(number: $number) {{ statusCheckRollup {{ contexts(first: 100) {{ {} }} }} }} \
             ref(qualifiedName: $base) {{ target {{ ... on Commit {{ statusCheckRollup {{ contexts(first: 100) {{ {} }} \
             }} }} }} }} }} }}",
            of_head.fields(),
            of_base.fields()
        );
        let variables =
            json!({ "owner": repo.owner(), "name": repo.name(), "number": pull, "base": base.as_str() });
        let answer = self.graphql(Query::new(text, variables, &doing, CHECKS)).await?;
        let found = answer.data["repository"].clone();
        let rollup = &found["pullRequest"]["statusCheckRollup"];
        if rollup.is_null() {
            answer.whole()?;
        }
        Ok(CheckedHead {
            checks: self.all_contexts(repo, of_head, rollup, &doing).await?,
            on_base: {
                let rollup = &found["ref"]["target"]["statusCheckRollup"];
                self.all_contexts(repo, of_base, rollup, &doing).await?
            },
        })
    }

    /// The checks of a rollup whose first page was read; of several runs of one the newest.
    async fn all_contexts(
        &self,
        repo: &RepoName,
        of: RollupOf<'_>,
        rollup: &Value,
        doing: &str,
    ) -> Result<Vec<HeadCheck>, Error> {
        let mut wires = contexts(rollup, doing)?;
        let mut page = rollup["contexts"]["pageInfo"].clone();
        for _ in 1..MOST_PAGES {
            if page["hasNextPage"] != true {
                break;
            }
            let mut variables =
                json!({ "owner": repo.owner(), "name": repo.name(), "after": page["endCursor"] });
            let mut declared = "$owner: String!, $name: String!, $after: String".to_owned();
            if let RollupOf::Tip(base) = of {
                variables["base"] = json!(base);
                declared.push_str(", $base: String!");
            }
            let text = format!(
                "query({declared}) {{ repository(owner: $owner, name: $name) {{ {} }} }}",
                of.next_page()
            );
            let answer = self.graphql(Query::new(text, variables, doing, CHECKS)).await?;
            let at = answer.data["repository"]["at"].clone();
            let rollup = match of {
                RollupOf::Tip(_) => &at["target"]["statusCheckRollup"],
                RollupOf::Head(_) | RollupOf::RequiredOf(_) => &at["statusCheckRollup"],
            };
            // Fields that these credentials may not read are errors beside the rest.
            if rollup.is_null() {
                answer.whole()?;
            }
            wires.extend(contexts(rollup, doing)?);
            page = rollup["contexts"]["pageInfo"].clone();
        }
        let mut checks: Vec<HeadCheck> = newest(wires).into_iter().map(HeadCheck::from).collect();
        self.tell_time_outs(repo, &mut checks).await?;
        Ok(checks)
    }

    /// What a check run says of single lines: at most `most` of them, failures first, and how many there are.
    pub async fn annotations(
        &self,
        repo: &RepoName,
        run: u64,
        most: usize,
    ) -> Result<Vec<Annotation>, Error> {
        let doing = format!("reading the annotations of check run {run} of {repo}");
        let path = format!("/repos/{repo}/check-runs/{run}/annotations?per_page=100");
        let mut found: Vec<Annotation> =
            self.pages::<AnnotationWire>(&path, &doing, CHECKS).await?.into_iter().map(Into::into).collect();
        found.sort_by_key(|one| match one.level.as_str() {
            "failure" => 0,
            "warning" => 1,
            _ => 2,
        });
        found.truncate(most);
        Ok(found)
    }

    /// A job; `None` = it is not known any more, or may not be read.
    pub async fn job(&self, repo: &RepoName, job: u64) -> Result<Option<Job>, Error> {
        let doing = format!("reading job {job} of {repo}");
        let wire: Result<JobWire, Error> =
            self.get(&format!("/repos/{repo}/actions/jobs/{job}"), &doing, ACTIONS).await;
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) if is_denied(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let failed = |conclusion: &str| matches!(conclusion, "failure" | "timed_out" | "cancelled");
        let step = wire.steps.into_iter().find(|step| step.conclusion.as_deref().is_some_and(failed));
        Ok(Some(Job {
            run: wire.run_id,
            had_runner: wire.runner_name.is_some_and(|name| !name.is_empty()),
            failed_step: step.map(|step| Step {
                name: step.name,
                started_at: step.started_at,
                completed_at: step.completed_at,
            }),
        }))
    }

    /// Runs the failed jobs of a workflow run again. False = GitHub does not, because it runs, is too old, or may not be.
    pub async fn rerun_failed_jobs(&self, repo: &RepoName, run: u64) -> Result<bool, Error> {
        let doing = format!("running the failed jobs of workflow run {run} of {repo} again");
        let path = format!("/repos/{repo}/actions/runs/{run}/rerun-failed-jobs");
        match self.write(http::Method::POST, &path, Some(json!({})), &doing, "actions: write").await {
            Ok(_) => Ok(true),
            Err(error)
                if is_denied(&error) || matches!(error.kind, ErrorKind::Validation | ErrorKind::Conflict) =>
            {
                tracing::debug!(%error, "not run again");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether there is nothing to read, for these credentials.
pub(super) fn is_denied(error: &Error) -> bool {
    error.is_absent() || matches!(error.kind, ErrorKind::Gone | ErrorKind::Forbidden { .. })
}

fn contexts(rollup: &Value, doing: &str) -> Result<Vec<ContextWire>, Error> {
    if rollup.is_null() {
        return Ok(Vec::new());
    }
    let nodes = rollup["contexts"]["nodes"].as_array().cloned().unwrap_or_default();
    let read = nodes.into_iter().filter(|node| !node.is_null());
    read.map(|node| serde_json::from_value(node).map_err(|error| Error::malformed(doing, error))).collect()
}

/// Of the check runs of one name the newest of each workflow and event, as GitHub's own page and program count them: where a title or
/// a label starts a workflow once more on the same commit, GitHub lists what it has superseded as well. Where no workflow is said, it
/// is the newest of each suite.
fn newest(wires: Vec<ContextWire>) -> Vec<ContextWire> {
    // What has not begun is the newest.
    let age = |wire: &ContextWire| (wire.started_at.is_none(), wire.started_at, wire.database_id);
    let mut newest: BTreeMap<String, usize> = BTreeMap::new();
    for (place, wire) in wires.iter().enumerate() {
        let Some(key) = same_check(wire) else { continue };
        if newest.get(&key).is_none_or(|known| age(&wires[*known]) < age(wire)) {
            newest.insert(key, place);
        }
    }
    let counts = |(place, wire): (usize, ContextWire)| {
        let superseded = same_check(&wire).is_some_and(|key| newest.get(&key) != Some(&place));
        (!superseded).then_some(wire)
    };
    wires.into_iter().enumerate().filter_map(counts).collect()
}

/// What two runs of the same check have in common; `None` = that is not said.
fn same_check(wire: &ContextWire) -> Option<String> {
    let (name, suite) = (wire.name.as_ref()?, wire.check_suite.as_ref()?);
    let workflow =
        suite.workflow_run.as_ref().and_then(|run| Some((run.workflow.as_ref()?.database_id?, &run.event)));
    let of = match workflow {
        Some((workflow, event)) => json!(["workflow", workflow, event, name]),
        None => json!(["suite", suite.database_id?, name]),
    };
    Some(of.to_string())
}

/// The check runs of a page; of several attempts in one suite the newest.
pub(super) fn runs_of(page: CheckRunsWire) -> Vec<HeadCheck> {
    let mut newest: BTreeMap<(String, u64), CheckRunWire> = BTreeMap::new();
    for run in page.check_runs {
        let suite = run.check_suite.as_ref().map_or(0, |suite| suite.id);
        let key = (run.name.clone(), suite);
        if newest.get(&key).is_none_or(|known| known.id < run.id) {
            newest.insert(key, run);
        }
    }
    newest.into_values().map(HeadCheck::from).collect()
}

/// The statuses of a page.
pub(super) fn statuses_of(page: CombinedStatusWire) -> Vec<HeadCheck> {
    page.statuses.into_iter().map(HeadCheck::from).collect()
}

impl From<CheckRunWire> for HeadCheck {
    fn from(wire: CheckRunWire) -> Self {
        let output = wire.output;
        let (title, summary, annotations) = output
            .map_or_else(Default::default, |output| (output.title, output.summary, output.annotations_count));
        Self {
            name: wire.name,
            run: Some(wire.id),
            outcome: CheckOutcome::of_run(&wire.status, wire.conclusion.as_deref()),
            required: None,
            title,
            summary,
            job: wire.details_url.as_deref().and_then(JobId::of_link),
            link: wire.details_url.or(wire.html_url),
            annotations,
        }
    }
}

impl From<StatusWire> for HeadCheck {
    fn from(wire: StatusWire) -> Self {
        Self {
            name: wire.context,
            run: None,
            outcome: CheckOutcome::of_status(&wire.state),
            required: None,
            title: wire.description,
            summary: String::new(),
            link: wire.target_url,
            job: None,
            annotations: 0,
        }
    }
}

impl From<ContextWire> for HeadCheck {
    fn from(wire: ContextWire) -> Self {
        let outcome = match &wire.name {
            Some(_) => CheckOutcome::of_run(&wire.status, wire.conclusion.as_deref()),
            None => CheckOutcome::of_status(&wire.state),
        };
        let run = wire.database_id.filter(|_| wire.name.is_some());
        Self {
            run,
            outcome,
            required: wire.is_required,
            title: wire.title.or(wire.description).unwrap_or_default(),
            summary: wire.summary.unwrap_or_default(),
            job: wire.details_url.as_deref().and_then(JobId::of_link),
            link: wire.details_url.or(wire.target_url),
            name: wire.name.or(wire.context).unwrap_or_default(),
            // A rollup does not count them.
            annotations: u64::from(run.is_some()),
        }
    }
}

impl From<AnnotationWire> for Annotation {
    fn from(wire: AnnotationWire) -> Self {
        Self {
            path: wire.path,
            line: wire.start_line,
            level: wire.annotation_level,
            title: wire.title,
            message: wire.message,
        }
    }
}
