//! The rules by which an issue is started or not. `why` asks them all; the scheduler asks the same ones and stops at the first no (I51).

use std::borrow::Cow;

use super::disk_room::DiskRoom;
use super::outcome::RunSummary;
use super::snapshot::{Facts, Lookup, Poll, Presence, Seen, Selection, WaitsForPerson, WorkedOnBy};
use super::state_format::{Pause, PauseCause};
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::domain::run_output::rfc3339;
use crate::domain::shell_words;
use crate::domain::stop::Stop;
use crate::record::summary_text::counted;

/// Why an issue is not started. Every code is stable and documented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The repository could not be polled.
    PollFailed(String),
    /// There is no such issue.
    NotFound,
    /// A pull request.
    IsPullRequest,
    /// Closed.
    Closed,
    /// Nothing asks for it.
    NoTrigger {
        /// The trigger label.
        label: String,
        /// Why it was taken off, where a person had to look at the issue: code and words.
        parked: Option<(String, String)>,
    },
    /// A sweep meets an issue that a run has ended on; somebody has to ask again.
    AlreadyHandled(String),
    /// The last run's labels are still being written; with why GitHub did not take them the last time.
    OutcomePending(Option<String>),
    /// A run of this daemon works on it.
    Running,
    /// Somebody else works on it.
    RunningElsewhere(String),
    /// Who asks is still to be found out.
    AdmissionPending,
    /// Who asks could not be found out.
    AdmissionUnreadable(String),
    /// Nobody is known to ask.
    ActorUnknown,
    /// Who asks may not.
    PermissionTooLow {
        /// Login.
        login: String,
        /// What they may.
        has: ActorPermission,
        /// What it takes.
        needs: ActorPermission,
    },
    /// What it waits for is still to be found out.
    DependenciesPending,
    /// What it waits for could not be read: fail closed (I64).
    DependenciesUnreadable(String),
    /// Open issues block it.
    Blocked(Vec<String>),
    /// It has open sub-issues.
    SubIssuesOpen(Vec<String>),
    /// A start failed lately.
    BackingOff {
        /// In words.
        why: String,
        /// RFC 3339.
        until: String,
        /// Starts that failed.
        attempts: u32,
    },
    /// Its run was begun by a definition that no node has which is there.
    DefinitionChanged,
    /// A person has to do something first.
    WaitsForAnswer {
        /// The reason's code: for an answer, or for work to be given back.
        code: &'static str,
        /// What, in words.
        what: String,
        /// What they do about it.
        remedy: String,
        /// Where people were told.
        url: Option<String>,
    },
    /// All that the issue's runs may cost together is spent.
    IssueBudgetSpent {
        /// Spent and set aside.
        spent: Money,
        /// The budget, with what people gave.
        cap: Money,
    },
    /// What ended the last run would end this one as well, such as the end of the day's money.
    Paused(Pause),
    /// A disk has no room for another run.
    DiskFull(DiskRoom),
    /// The daemon is being stopped.
    Stopping,
    /// In a cluster: the node that polls the repository ends, and gives what it has to others.
    Draining,
    /// The daemon's clock is so many seconds off the store's.
    ClockSkew(i64),
    /// The daemon does not know the schema that the cluster has in force.
    SchemaUnknown(u32),
    /// The cluster's store has no room.
    StoreFull,
    /// There is no daemon that would start it.
    NoDaemon,
    /// No node of the cluster polls the repository.
    NoPoller,
    /// No node of the cluster that has the repository lives; whether others do.
    NoNode {
        /// Some do.
        others: bool,
    },
    /// No slot in the repository.
    RepositoryFull(usize),
    /// No slot at all.
    Full(usize),
    /// As many runs as may are at work in the cluster.
    ClusterFull(usize),
}

impl Reason {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PollFailed(_) => "poll_failed",
            Self::NotFound => "not_found",
            Self::IsPullRequest => "is_pull_request",
            Self::Closed => "closed",
            Self::NoTrigger { .. } => "no_trigger",
            Self::AlreadyHandled(_) => "already_handled",
            Self::OutcomePending(_) => "settling",
            Self::Running => "running",
            Self::RunningElsewhere(_) => "running_elsewhere",
            Self::AdmissionPending => "admission_pending",
            Self::AdmissionUnreadable(_) => "admission_unreadable",
            Self::ActorUnknown => "actor_unknown",
            Self::PermissionTooLow { .. } => "permission_too_low",
            Self::DependenciesPending => "dependencies_pending",
            Self::DependenciesUnreadable(_) => "dependencies_unreadable",
            Self::Blocked(_) => "blocked_by_open",
            Self::SubIssuesOpen(_) => "sub_issues_open",
            Self::BackingOff { .. } => "backing_off",
            Self::DefinitionChanged => "definition_changed",
            Self::WaitsForAnswer { code, .. } => code,
            Self::IssueBudgetSpent { .. } => "issue_budget_spent",
            Self::Paused(pause) => pause.code(),
            Self::DiskFull(_) => "disk_full",
            Self::Stopping => "stopping",
            Self::Draining => "draining",
            Self::ClockSkew(_) => "clock_skew",
            Self::SchemaUnknown(_) => "schema_unknown",
            Self::StoreFull => "store_full",
            Self::NoDaemon => "no_daemon",
            // People who wait for it have one word for both.
            Self::NoPoller | Self::NoNode { .. } => "no_poller",
            Self::RepositoryFull(_) => "repository_slots_full",
            Self::Full(_) => "slots_full",
            Self::ClusterFull(_) => "cluster_full",
        }
    }

    /// What somebody has to do; `None` = it is over by itself.
    pub(super) fn todo(&self, facts: &Facts) -> Option<String> {
        let (number, repo) = (facts.issue.number.to_string(), facts.issue.repo.to_string());
        let label = || {
            let trigger = &facts.labels.trigger;
            shell_words::line(&["gh", "issue", "edit", &number, "--repo", &repo, "--add-label", trigger])
        };
        let extend =
            || format!("agentd extend {number} 5, or the comment `/agentd extend 5` on the issue (USD)");
        Some(match self {
            Self::NoTrigger { .. } | Self::AlreadyHandled(_) if facts.money_used_up.is_some() => {
                format!("{}; where no run goes on by itself then, {}", extend(), label())
            }
            Self::NotFound => "check the number; `agentd doctor` tells what the token may read".to_owned(),
            Self::IsPullRequest => "name the issue that it belongs to".to_owned(),
            Self::Closed => shell_words::line(&["gh", "issue", "reopen", &number, "--repo", &repo]),
            Self::NoTrigger { parked: None, .. } | Self::ActorUnknown => label(),
            Self::NoTrigger { parked: Some(_), .. } => format!("settle that, then {}", label()),
            Self::AlreadyHandled(_) => format!("for another run, {}", label()),
            Self::PermissionTooLow { needs, .. } => {
                format!("somebody with the permission \"{}\" puts the label on", needs.as_str())
            }
            Self::WaitsForAnswer { remedy, url, .. } => {
                let place = url.as_ref().map_or_else(String::new, |url| format!(", or answer at {url}"));
                format!("{remedy}{place}")
            }
            Self::IssueBudgetSpent { .. } => extend(),
            Self::Paused(pause) => pause.remedy().to_owned(),
            Self::DiskFull(room) => room.remedy().to_owned(),
            Self::Stopping => "agentd daemon, once it has ended".to_owned(),
            Self::Draining => format!(
                "where no other node has {} in its configuration: agentd daemon, once this one has ended",
                facts.issue.repo
            ),
            Self::ClockSkew(_) => "set the clocks of the daemon's host and of the servers by NTP".to_owned(),
            Self::SchemaUnknown(_) => "install a later agentd on the daemon's host, and start it again".to_owned(),
            Self::StoreFull => {
                "`agentd status` names the stream: let it have more bytes, or make `cluster.retention` shorter".to_owned()
            }
            Self::NoDaemon => format!("agentd daemon, or agentd run {number}"),
            Self::NoPoller => {
                format!("if that stays so, a node with {} in its configuration", facts.issue.repo)
            }
            Self::NoNode { .. } => {
                format!("agentd daemon on a node with {} in its configuration, or agentd run {number}", facts.issue.repo)
            }
            Self::PollFailed(_)
            | Self::OutcomePending(_)
            | Self::Running
            | Self::RunningElsewhere(_)
            | Self::AdmissionPending
            | Self::AdmissionUnreadable(_)
            | Self::DependenciesPending
            | Self::DependenciesUnreadable(_)
            | Self::Blocked(_)
            | Self::SubIssuesOpen(_)
            | Self::BackingOff { .. }
            | Self::DefinitionChanged
            | Self::RepositoryFull(_)
            | Self::Full(_)
            | Self::ClusterFull(_) => return None,
        })
    }

    /// Whether the daemon goes on by itself once this is over, so that the issue counts as queued.
    pub fn is_wait(&self) -> bool {
        matches!(
            self,
            Self::Blocked(_)
                | Self::SubIssuesOpen(_)
                | Self::BackingOff { .. }
                | Self::DefinitionChanged
                | Self::DiskFull(_)
                | Self::Paused(_)
                | Self::RepositoryFull(_)
                | Self::Full(_)
                | Self::ClusterFull(_)
                | Self::ClockSkew(_)
                | Self::SchemaUnknown(_)
                | Self::StoreFull
        )
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PollFailed(why) => write!(f, "the repository could not be polled: {why}"),
            Self::NotFound => f.write_str("there is no such issue, or the token cannot see it"),
            Self::IsPullRequest => f.write_str("the number is a pull request's"),
            Self::Closed => f.write_str("the issue is closed; open it again"),
            Self::NoTrigger { label, parked: None } => {
                write!(f, "the label \"{label}\" is not on it; put it on")
            }
            Self::NoTrigger { label, parked: Some((code, why)) } => {
                let why = in_one_sentence(why);
                write!(f, "the label \"{label}\" was taken off ({code}): {why}. When that is settled, put it on again")
            }
            Self::AlreadyHandled(label) => {
                write!(
                    f,
                    "a run has ended on it (\"{label}\"); put the trigger label on for another, or take that label off"
                )
            }
            Self::OutcomePending(problem) => {
                f.write_str("the last run has ended and its labels are still being written")?;
                problem.as_ref().map_or(Ok(()), |why| write!(f, " (GitHub did not take them: {why})"))
            }
            Self::Running => f.write_str("a run works on it"),
            Self::RunningElsewhere(holder) => write!(f, "somebody else works on it: {holder}"),
            Self::AdmissionPending => f.write_str("who asks for it is still to be read"),
            Self::AdmissionUnreadable(why) => write!(f, "who asks for it could not be read: {why}"),
            Self::ActorUnknown => f.write_str(
                "it is not known who asks for it: the account that put the label on is gone, or there is no author; somebody with permission puts the label on",
            ),
            Self::PermissionTooLow { login, has, needs } => write!(
                f,
                "{login} has the permission \"{}\", and it takes \"{}\"; somebody who has it puts the label on",
                has.as_str(),
                needs.as_str()
            ),
            Self::DependenciesPending => f.write_str("what it waits for is still to be read"),
            Self::DependenciesUnreadable(why) => write!(f, "what it waits for could not be read: {why}"),
            Self::Blocked(names) => write!(f, "open issues block it: {}", names.join(", ")),
            Self::SubIssuesOpen(names) => write!(f, "sub-issues are open: {}", names.join(", ")),
            Self::BackingOff { why, until, attempts } => {
                let failed = counted(*attempts as usize, "start");
                write!(f, "{failed} failed, next try at {until}: {why}")
            }
            Self::DefinitionChanged => f.write_str(
                "its run was begun by another definition than those of the nodes that are there; one that has it is waited for, for one \
                 `cluster.lease`, and then the work is done anew",
            ),
            Self::WaitsForAnswer { what, .. } => f.write_str(what),
            Self::IssueBudgetSpent { spent, cap } => {
                write!(f, "the issue's budget is used up: {spent} of {cap} is spent by all of its runs")?;
                match spent < cap {
                    true => f.write_str(", and what is left does not cover another request"),
                    false => Ok(()),
                }
            }
            Self::Paused(pause) => {
                write!(f, "no run begins before {}: {}", rfc3339(pause.until), pause.text)
            }
            Self::DiskFull(room) => room.fmt(f),
            Self::Stopping => f.write_str("the daemon is being stopped"),
            Self::Draining => f.write_str(
                "the node that polls the repository is being drained: it takes nothing more, and what it has goes to other nodes",
            ),
            Self::ClockSkew(seconds) => write!(
                f,
                "the daemon's clock is {} s {} the store's, and until that is put right it begins nothing",
                seconds.unsigned_abs(),
                if *seconds > 0 { "ahead of" } else { "behind" }
            ),
            Self::SchemaUnknown(form) => write!(
                f,
                "the cluster has the schema {form} in force, which the daemon's version does not know, and it begins nothing"
            ),
            Self::StoreFull => f.write_str("the cluster's store is full, and until it has room nothing begins"),
            Self::NoDaemon => f.write_str(
                "no daemon of this state directory watches the repository; start one (agentd daemon), or run the issue (agentd run)",
            ),
            Self::NoPoller => f.write_str("no node of the cluster polls the repository at the moment"),
            Self::NoNode { others: false } => f.write_str("no node of the cluster lives"),
            Self::NoNode { others: true } => {
                f.write_str("none of the cluster's nodes that live has the repository in its configuration")
            }
            Self::RepositoryFull(max) => write!(f, "all {max} slots of the repository are taken"),
            Self::Full(max) => write!(f, "all {max} slots are taken"),
            Self::ClusterFull(max) => {
                write!(f, "as many runs as may are at work in the cluster: {max} (`cluster.max_runs`)")
            }
        }
    }
}

/// A refusal, which is a sentence and a list of what to do, without line breaks and the full stop.
pub fn in_one_sentence(why: &str) -> String {
    let mut lines = why.split("\n- ");
    let what = lines.next().unwrap_or_default().trim_end().trim_end_matches('.').to_owned();
    let hints: Vec<&str> = lines.map(str::trim_end).collect();
    if hints.is_empty() { what } else { format!("{what} ({})", hints.join("; ")) }
}

/// One rule's answer about one issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The rule's name, stable.
    pub rule: &'static str,
    /// `ok`, or the reason's code.
    pub code: Cow<'static, str>,
    /// In words.
    pub answer: String,
}

impl Verdict {
    /// Whether the rule lets the issue start.
    pub fn passed(&self) -> bool {
        self.code == "ok"
    }
}

/// What is in use of the slots when an issue is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slots {
    pub all: (usize, usize),
    pub repository: (usize, usize),
    pub daemon: Presence,
}

type Rule = (&'static str, fn(&Facts, Slots) -> Result<String, Reason>);

/// The rules, in the order in which they are asked: what costs nothing first.
const RULES: &[Rule] = &[
    ("repository_polled", polled),
    ("is_an_open_issue", open_issue),
    ("is_asked_for", asked_for),
    ("is_settled", nothing_pending),
    ("is_not_running", not_running),
    ("start_not_failed_lately", not_backing_off),
    ("definition_is_there", has_definition),
    ("is_answered", answered),
    ("issue_has_money", has_money),
    ("day_has_money", |facts, _| {
        let otherwise = facts.day_money.as_deref().unwrap_or("no run met the end of the day's money");
        not_paused(facts, PauseCause::Day, otherwise)
    }),
    (MODEL_ANSWERS, |facts, _| not_paused(facts, PauseCause::Model, "no run waits for a model")),
    (REMOTE_ANSWERS, |facts, _| not_paused(facts, PauseCause::Remote, "no run waits for the remote")),
    (STATE_IS_USABLE, |facts, _| {
        not_paused(facts, PauseCause::State, "no run waits for the state directory")
    }),
    (HOST_IS_READY, |facts, _| not_paused(facts, PauseCause::Host, "no run waits for the host")),
    ("actor_may_trigger", admitted),
    ("waits_for_nothing", free_of_dependencies),
    ("disk_has_room", disk_has_room),
    ("daemon_goes_on", not_stopping),
    ("slot_in_repository", repository_slot),
    ("slot", slot),
];

const MODEL_ANSWERS: &str = "model_answers";
const REMOTE_ANSWERS: &str = "remote_answers";
const STATE_IS_USABLE: &str = "state_is_usable";
const HOST_IS_READY: &str = "host_is_ready";

/// The rule that would hold all runs back for the end of an issue's last run, if a daemon had made it; `None` = none would.
/// `unpublished`: whether its work is done and not published, because another service could not be reached.
pub fn rule_of_end(stop: Stop, unpublished: bool) -> Option<&'static str> {
    Some(match PauseCause::of(&RunSummary { unpublished, ..stop.into() })? {
        // What the money of the day is has words of its own.
        PauseCause::Day => return None,
        PauseCause::Model => MODEL_ANSWERS,
        PauseCause::Remote => REMOTE_ANSWERS,
        PauseCause::State => STATE_IS_USABLE,
        PauseCause::Host => HOST_IS_READY,
    })
}

/// Asks every rule in order. The first one that says no is the reason why the issue is not started.
pub fn explain(
    facts: &Facts,
    all: (usize, usize),
    repository: (usize, usize),
    daemon: Presence,
) -> Vec<Verdict> {
    let slots = Slots { all, repository, daemon };
    let mut verdicts: Vec<Verdict> = Vec::new();
    for (rule, judge) in RULES {
        let (code, answer): (Cow<'static, str>, String) = match judge(facts, slots) {
            Ok(answer) => ("ok".into(), answer),
            Err(reason) => (reason.code().to_owned().into(), told(&reason, facts)),
        };
        let before = verdicts.iter().find(|before| before.code != "ok" && before.answer == answer);
        let answer = before.map_or(answer, |before| format!("not known, as said under {}", before.rule));
        verdicts.push(Verdict { rule, code, answer });
    }
    verdicts
}

/// A reason in words. Where its last run is gone on with by itself, nobody has to put a label on.
fn told(reason: &Reason, facts: &Facts) -> String {
    match reason {
        Reason::NoTrigger { label, .. } if facts.goes_on.is_some() => {
            format!(
                "the label \"{label}\" is not on it, and need not be: its last run is gone on with by itself"
            )
        }
        reason => reason.to_string(),
    }
}

/// The first no, if there is one.
pub fn refusal(
    facts: &Facts,
    all: (usize, usize),
    repository: (usize, usize),
    daemon: Presence,
) -> Option<Reason> {
    let slots = Slots { all, repository, daemon };
    RULES.iter().find_map(|(_, judge)| judge(facts, slots).err())
}

fn polled(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.poll {
        Poll::Fresh => Ok("the last poll of the repository succeeded".to_owned()),
        Poll::Never => Ok("GitHub answers; no daemon that works has polled the repository".to_owned()),
        Poll::Failed(why) => Err(Reason::PollFailed(why.clone())),
    }
}

fn open_issue(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.seen {
        Seen::Unreadable(why) => Err(Reason::PollFailed(why.clone())),
        Seen::Missing => Err(Reason::NotFound),
        Seen::PullRequest => Err(Reason::IsPullRequest),
        Seen::Issue { open: false, .. } => Err(Reason::Closed),
        Seen::Issue { .. } => Ok("it is an open issue".to_owned()),
    }
}

fn asked_for(facts: &Facts, _: Slots) -> Result<String, Reason> {
    let trigger = &facts.labels.trigger;
    // A blank label would match nothing or everything; it matches nothing (S14).
    if !trigger.trim().is_empty() && facts.has_label(trigger) {
        return Ok(format!("the label \"{trigger}\" is on it"));
    }
    if let Seen::Unreadable(why) = &facts.seen {
        return Err(Reason::PollFailed(why.clone()));
    }
    match facts.selection {
        Selection::Recovery => Ok("a killed run of it is to be brought to its end".to_owned()),
        Selection::Trigger => {
            let parked = facts.parked.as_ref().map(|parked| (parked.code.clone(), parked.text.clone()));
            Err(Reason::NoTrigger { label: trigger.clone(), parked })
        }
        Selection::Sweep => {
            let labels = &facts.labels;
            match labels.ends().find(|label| facts.has_label(label)) {
                Some(label) => Err(Reason::AlreadyHandled(label.to_owned())),
                None => Ok("a sweep lists it".to_owned()),
            }
        }
    }
}

fn nothing_pending(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.pending_outcome {
        Some(pending) => Err(Reason::OutcomePending(pending.problem.clone())),
        None => Ok("no earlier run has labels to be written".to_owned()),
    }
}

fn not_running(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.holder {
        Some(WorkedOnBy::Here) => Err(Reason::Running),
        Some(WorkedOnBy::Elsewhere(holder)) => Err(Reason::RunningElsewhere(holder.clone())),
        None => Ok("no run works on it".to_owned()),
    }
}

fn not_backing_off(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.back_off {
        Some(pause) if pause.held && pause.holds(facts.now) => {
            Err(Reason::RunningElsewhere(pause.why.clone()))
        }
        Some(pause) if pause.holds(facts.now) => Err(Reason::BackingOff {
            why: pause.why.clone(),
            until: pause.until.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            attempts: pause.attempts,
        }),
        Some(pause) => {
            Ok(format!("the pause after {} is over", counted(pause.attempts as usize, "failed start")))
        }
        None => Ok("no start of it has failed".to_owned()),
    }
}

fn has_definition(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match facts.waits_for_definition {
        true => Err(Reason::DefinitionChanged),
        false => Ok("no node with another definition is waited for".to_owned()),
    }
}

fn answered(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match &facts.waits_for {
        Some(waits) => {
            let WaitsForPerson { code, what, remedy, url } = waits.clone();
            Err(Reason::WaitsForAnswer { code, what, remedy, url })
        }
        None => Ok("nobody is waited for".to_owned()),
    }
}

fn has_money(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match facts.money_used_up {
        // What a killed run left is brought to its end; the run itself asks no model.
        Some((spent, cap)) if facts.selection != Selection::Recovery || facts.is_round => {
            Err(Reason::IssueBudgetSpent { spent, cap })
        }
        _ => Ok("there is money left for it".to_owned()),
    }
}

fn not_paused(facts: &Facts, cause: PauseCause, otherwise: &str) -> Result<String, Reason> {
    let pause = facts.paused_by(cause).cloned();
    pause.map_or_else(|| Ok(otherwise.to_owned()), |pause| Err(Reason::Paused(pause)))
}

fn admitted(facts: &Facts, _: Slots) -> Result<String, Reason> {
    let admission = match &facts.admission {
        Lookup::NotYet => return Err(Reason::AdmissionPending),
        Lookup::Failed(why) => return Err(Reason::AdmissionUnreadable(why.clone())),
        Lookup::Known(admission) => admission,
    };
    let Some(actor) = &admission.actor else { return Err(Reason::ActorUnknown) };
    if admission.permission < facts.min_permission {
        return Err(Reason::PermissionTooLow {
            login: actor.login.clone(),
            has: admission.permission,
            needs: facts.min_permission,
        });
    }
    Ok(format!("{} has the permission \"{}\"", actor.login, admission.permission.as_str()))
}

fn free_of_dependencies(facts: &Facts, _: Slots) -> Result<String, Reason> {
    let found = match &facts.dependencies {
        Lookup::NotYet => return Err(Reason::DependenciesPending),
        Lookup::Failed(why) => return Err(Reason::DependenciesUnreadable(why.clone())),
        Lookup::Known(found) => found,
    };
    let names = |sub_issue: bool| -> Vec<String> {
        found.iter().filter(|one| one.sub_issue == sub_issue).map(|one| one.name.clone()).collect()
    };
    let (blockers, subs) = (names(false), names(true));
    if !blockers.is_empty() {
        return Err(Reason::Blocked(blockers));
    }
    if !subs.is_empty() {
        return Err(Reason::SubIssuesOpen(subs));
    }
    Ok("no open issue blocks it".to_owned())
}

fn disk_has_room(facts: &Facts, _: Slots) -> Result<String, Reason> {
    match facts.disk {
        Some(room) if room.is_full() => Err(Reason::DiskFull(room)),
        Some(room) => Ok(room.to_string()),
        None => Ok("the disk is not looked at".to_owned()),
    }
}

fn not_stopping(_: &Facts, slots: Slots) -> Result<String, Reason> {
    match slots.daemon {
        Presence::Works => Ok("the daemon starts runs".to_owned()),
        Presence::Stopping => Err(Reason::Stopping),
        Presence::Draining => Err(Reason::Draining),
        Presence::ClockSkew(seconds) => Err(Reason::ClockSkew(seconds)),
        Presence::SchemaUnknown(form) => Err(Reason::SchemaUnknown(form)),
        Presence::StoreFull => Err(Reason::StoreFull),
        Presence::Absent => Err(Reason::NoDaemon),
        Presence::NoPoller => Err(Reason::NoPoller),
        Presence::NoNode { others } => Err(Reason::NoNode { others }),
    }
}

fn repository_slot(_: &Facts, slots: Slots) -> Result<String, Reason> {
    let (used, max) = slots.repository;
    if used >= max {
        Err(Reason::RepositoryFull(max))
    } else {
        Ok(format!("{used} of {max} slots of the repository are taken"))
    }
}

fn slot(facts: &Facts, slots: Slots) -> Result<String, Reason> {
    let (used, max) = slots.all;
    if max == 0 {
        // Nobody has taken any: there is nobody to have them.
        not_stopping(facts, slots)?;
    }
    if used >= max { Err(Reason::Full(max)) } else { Ok(format!("{used} of {max} slots are taken")) }
}
