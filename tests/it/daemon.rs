//! The daemon against the simulator: what a person at the repository would see of it. Runs are stand-ins; the walk has its own tests.

mod idle;
mod left_repositories;
mod pauses;
mod sweeps;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd::config::Credentials;
use agentd::config::config_file::SweepSelect;
use agentd::config::settings::Sweep;
use agentd::daemon::{
    Daemon, DaemonError, DaemonFiles, DaemonReport, Dependencies, IssueRef, Limits, Presence, RunSummary,
    Start, StartRequest, Surroundings, Verdict, Watched, explain, gather,
};
use agentd::domain::cluster::configuration::ConfigurationSaid;
use agentd::domain::issue::ObjectiveSource;
use agentd::domain::issue_state::LabelsTable;
use agentd::domain::money::Money;
use agentd::domain::name::RepoName;
use agentd::domain::policy::ActorPermission;
use agentd::domain::run::{PrincipalSource, RunId};
use agentd::domain::stop::{Stop, StopDetail};
use agentd::github::{Client, Settings};
use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::sys::clock::Clock;
use agentd::sys::host::Host;
use agentd::sys::shutdown::Shutdown;
use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use secrecy::SecretString;

const REPO: &str = "octo/greeter";
const HEAD: &str = r#"
tokens = [{ token = "tok", login = "helper" }]
[[repositories]]
name = "octo/greeter"
collaborators = { helper = "write", mia = "maintain", rita = "read" }
"#;

/// A repository, a state directory, and what was asked of the walk.
struct Yard {
    sim: Simulator,
    home: tempfile::TempDir,
    clock: Clock,
    shutdown: Shutdown,
    asked: Arc<Mutex<Vec<StartRequest>>>,
    limits: Limits,
    requests_per_minute: u32,
    sweep: Sweep,
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn ended(detail: StopDetail) -> RunSummary {
    RunSummary { run_id: Some(RunId(uuid::Uuid::nil())), ..Stop::new(detail, "said").into() }
}

fn refused(detail: StopDetail) -> RunSummary {
    RunSummary { run_id: None, ..ended(detail) }
}

impl Yard {
    async fn new(scenario: &str) -> Self {
        let text = format!("{HEAD}{scenario}");
        let scenario = Scenario::from_text(&text, Path::new("scenario.toml")).unwrap();
        Self {
            sim: Simulator::start(scenario, SimOptions::default()).await.unwrap(),
            home: tempfile::tempdir().unwrap(),
            clock: Clock::fixed(at("2026-11-21T08:00:00Z")),
            shutdown: Shutdown::new(),
            asked: Arc::default(),
            limits: Limits { all: 4, per_repository: 2, cluster: None },
            requests_per_minute: 100_000,
            sweep: Sweep {
                schedule: None,
                timezone: chrono_tz::Tz::UTC,
                select: SweepSelect::Labelled,
                labels: vec![],
                milestone: None,
                limit: None,
            },
        }
    }

    fn client(&self) -> Client {
        let token = Credentials::Token(SecretString::from("tok".to_owned()));
        let settings = Settings::new(self.sim.api_url(), token);
        let requests_per_minute = self.requests_per_minute;
        Client::new(Settings { retries: 0, retry_delay: Duration::ZERO, requests_per_minute, ..settings })
            .unwrap()
    }

    fn watched(&self) -> Watched {
        Watched {
            name: RepoName::parse(REPO).unwrap(),
            depends: true,
            sweep: self.sweep.clone(),
            place: None,
            issue_cap: None,
            run_caps: (Money::ZERO, None),
        }
    }

    /// Dependencies whose runs are what `walk` makes of the request.
    fn parts<F>(&self, walk: impl Fn(StartRequest) -> F + Send + Sync + 'static) -> Dependencies
    where
        F: Future<Output = RunSummary> + Send + 'static,
    {
        let asked = Arc::clone(&self.asked);
        let start: Start = Arc::new(move |request: StartRequest| {
            asked.lock().unwrap().push(request.clone());
            walk(request).boxed()
        });
        Dependencies {
            client: self.client(),
            repositories: vec![self.watched()],
            unopened: vec![],
            configuration: ConfigurationSaid::default(),
            open_again: None,
            labels: LabelsTable::default(),
            min_permission: ActorPermission::Write,
            conversation: Default::default(),
            checks: agentd::config::checks_file::ChecksTable::default(),
            conceal: Arc::new(str::to_owned),
            limits: self.limits,
            max_follow_ups: 3,
            poll_interval: Duration::from_millis(20),
            state: agentd::store::run_dir::StateDir::new(self.home.path().to_owned()),
            clock: self.clock.clone(),
            host: Host::current(),
            shutdown: self.shutdown.clone(),
            start,
            abandon: Arc::new(|_| std::future::ready(true).boxed()),
            look_at_pollers: None,
            drain_timeout: Duration::ZERO,
            max_clock_skew: None,
            find_left: Arc::new(|_| std::future::ready(Vec::new()).boxed()),
            approve: Arc::new(|_, _| std::future::ready(Err("not here".to_owned())).boxed()),
            deny: Arc::new(|_, _| std::future::ready(Ok(None)).boxed()),
            end_calls: Arc::new(|_| std::future::ready(Ok(None)).boxed()),
            others_runs: Arc::new(|_| std::future::ready(0).boxed()),
            approved: Arc::new(|_, _| std::future::ready(None).boxed()),
            questions: Default::default(),
            plan: Default::default(),
            extend: Arc::new(|_, _| std::future::ready(Err("not here".to_owned())).boxed()),
            beside: Arc::new(|_, _| std::future::ready(Ok(None)).boxed()),
            take: Arc::new(|_, _| std::future::ready(Ok(agentd::lifecycle::taken::Took::Busy)).boxed()),
            take_as_asked: Arc::new(|_, _| std::future::ready(Ok(None)).boxed()),
            give_back: Arc::new(|_, _| {
                let not_here = "not here";
                std::future::ready(Err(agentd::domain::refusal::Refusal::new(
                    StopDetail::InvalidInput,
                    not_here,
                )))
                .boxed()
            }),
            progress: agentd::daemon::Progress::default(),
            listen: None,
            reload: None,
            clean_up: None,
            unfinished: vec![],
        }
    }

    fn daemon(&self, outcome: RunSummary) -> Daemon {
        Daemon::open(self.parts(move |_| std::future::ready(outcome.clone()))).unwrap()
    }

    async fn once(&self, outcome: RunSummary) -> DaemonReport {
        self.daemon(outcome).once().await
    }

    fn labels(&self, number: u64) -> Vec<String> {
        let mut labels = self.sim.issue(REPO, number).unwrap().labels;
        labels.sort();
        labels
    }

    fn started(&self) -> Vec<u64> {
        self.asked.lock().unwrap().iter().map(|request| request.issue.number).collect()
    }

    async fn why(&self, number: u64) -> Vec<Verdict> {
        let around = Surroundings {
            watched: self.watched(),
            labels: LabelsTable::default(),
            min_permission: ActorPermission::Write,
            holder: None,
            waits_for: None,
            money_used_up: None,
            day_money: None,
            state_dir: self.home.path().to_owned(),
            now: self.clock.now(),
        };
        let files = DaemonFiles::of(&agentd::store::run_dir::StateDir::new(self.home.path().to_owned()));
        let (state, status) = (files.load().unwrap(), files.load_status().unwrap());
        let facts = gather(&self.client(), (&state, status.as_ref()), number, around).await;
        explain(&facts, (0, 4), (0, 2), Presence::Works)
    }

    fn violations(&self) {
        assert!(self.sim.violations().is_empty(), "{:?}", self.sim.violations());
    }
}

fn issue(title: &str, more: &str) -> String {
    format!("[[repositories.issues]]\ntitle = \"{title}\"\n{more}\n")
}

fn labelled(title: &str) -> String {
    issue(title, "labels = [\"agentd\"]")
}

fn codes(report: &DaemonReport) -> Vec<(u64, &'static str)> {
    report.waiting.iter().map(|(issue, reason)| (issue.number, reason.code())).collect()
}

/// Lets the daemon run until `done`, then stops it.
async fn run_until(mut daemon: Daemon, shutdown: &Shutdown, done: impl Fn() -> bool) -> DaemonReport {
    let watch = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.request_stop();
    };
    let both = futures::future::join(daemon.run(), watch);
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("it comes about").0
}

#[tokio::test]
async fn d6_a_labelled_issue_is_run_once_and_its_labels_say_how_it_ended() {
    let yard = Yard::new(&(labelled("One") + &issue("Two", ""))).await;
    let report = yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(report.ended.len(), 1);
    assert_eq!(yard.labels(1), ["agentd:done"]);
    assert_eq!(yard.labels(2), Vec::<String>::new());
    let request = yard.asked.lock().unwrap()[0].clone();
    assert_eq!((request.source, request.principal.source), (ObjectiveSource::Issue, PrincipalSource::Github));
    assert_eq!(
        (request.principal.login.as_deref(), request.permission),
        (Some("octo"), ActorPermission::Admin)
    );
    assert!(yard.once(ended(StopDetail::Completed)).await.ended.is_empty(), "it is not run again");
    yard.sim.add_label(REPO, 1, "agentd", "mia");
    yard.once(ended(StopDetail::ModelAbstained)).await;
    assert_eq!(yard.labels(1), ["agentd:no-evidence"]);
    assert_eq!(yard.asked.lock().unwrap()[1].principal.login.as_deref(), Some("mia"), "who asked last");
    yard.violations();
}

#[tokio::test]
async fn slots_hold_in_the_repository_and_what_waits_says_that_it_does() {
    let scenario: String = (1..=5).map(|n| labelled(&format!("Issue {n}"))).collect();
    let yard = Yard::new(&scenario).await;
    let live = Arc::new(Mutex::new((0_i32, 0_i32)));
    let count = Arc::clone(&live);
    let walk = move |_| {
        let count = Arc::clone(&count);
        async move {
            {
                let mut count = count.lock().unwrap();
                count.0 += 1;
                count.1 = count.1.max(count.0);
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
            count.lock().unwrap().0 -= 1;
            ended(StopDetail::Completed)
        }
    };
    let daemon = Daemon::open(yard.parts(walk)).unwrap();
    let queued = Mutex::new(false);
    let done = || {
        *queued.lock().unwrap() |= yard.labels(5).contains(&"agentd:queued".to_owned());
        (1..=5).all(|number| yard.labels(number) == ["agentd:done"])
    };
    run_until(daemon, &yard.shutdown, done).await;
    assert_eq!(live.lock().unwrap().1, 2, "as many at a time as the repository has slots");
    assert_eq!(yard.started(), [1, 2, 3, 4, 5], "the oldest first, each once");
    assert!(*queued.lock().unwrap());
    yard.violations();
}

#[tokio::test]
async fn c_28_who_may_not_trigger_is_told_once_and_somebody_else_may() {
    let yard = Yard::new(&issue("One", "author = \"rita\"\nlabels = [\"agentd\"]")).await;
    let report = yard.once(ended(StopDetail::Completed)).await;
    assert!(report.ended.is_empty() && yard.started().is_empty());
    assert_eq!(yard.labels(1), ["agentd:attention"]);
    let said = yard.sim.issue(REPO, 1).unwrap().comments;
    assert_eq!(said.len(), 1);
    assert!(said[0].body.contains("rita") && said[0].body.contains("\"write\""), "{}", said[0].body);
    let parked = yard.daemon(ended(StopDetail::Completed)).status().parked;
    assert_eq!((parked[0].issue.number(), parked[0].code.as_str()), (Some(1), "permission_too_low"));
    yard.sim.add_label(REPO, 1, "agentd", "rita");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.sim.issue(REPO, 1).unwrap().comments.len(), 1, "edited, not repeated");
    yard.sim.add_label(REPO, 1, "agentd", "mia");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.labels(1), ["agentd:done"]);
    assert!(yard.daemon(ended(StopDetail::Completed)).status().parked.is_empty());
    yard.violations();
}

#[tokio::test]
async fn i64_an_issue_waits_for_what_blocks_it_and_starts_when_that_is_closed() {
    let blocked = issue("One", "labels = [\"agentd\"]\nblocked_by = [2]");
    let yard = Yard::new(&(blocked + &issue("Two", ""))).await;
    let report = yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(codes(&report), [(1, "blocked_by_open")]);
    assert_eq!(yard.labels(1), ["agentd", "agentd:queued"]);
    yard.sim.close_issue(REPO, 2, "mia");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.labels(1), ["agentd:done"]);
    yard.violations();
}

#[tokio::test]
async fn i50_a_failed_poll_is_not_an_empty_list_and_starts_and_stops_nothing() {
    let yard = Yard::new(&(labelled("One") + "[[faults]]\npath = \"/repos/*/issues\"\nkind = \"status\"\nstatus = 502\nskip = 1\ntimes = 1\n")).await;
    let control = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&control);
    let finish = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&finish);
    let walk = move |request: StartRequest| {
        *seen.lock().unwrap() = Some(request.control.clone());
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            ended(StopDetail::Completed)
        }
    };
    let daemon = Daemon::open(yard.parts(walk)).unwrap();
    let failed = Mutex::new(false);
    let done = || {
        let files = DaemonFiles::of(&agentd::store::run_dir::StateDir::new(yard.home.path().to_owned()));
        let status = files.load_status().unwrap();
        let failing = status.is_some_and(|status| status.repositories[0].error.is_some());
        *failed.lock().unwrap() |= failing;
        if *failed.lock().unwrap() {
            let stopping = control
                .lock()
                .unwrap()
                .as_ref()
                .is_some_and(|control: &agentd::daemon::RunHandle| control.shutdown.stopping());
            assert!(!stopping, "a failed poll stops no run");
            finish.notify_one();
        }
        yard.labels(1) == ["agentd:done"]
    };
    run_until(daemon, &yard.shutdown, done).await;
    assert!(*failed.lock().unwrap());

    let down = Yard::new(
        &(labelled("One") + "[[faults]]\npath = \"/repos/*/issues\"\nkind = \"drop\"\ntimes = 0\n"),
    )
    .await;
    let report = down.once(ended(StopDetail::Completed)).await;
    assert_eq!(report.failed_polls.len(), 1);
    assert!(report.failed_polls[0].1.contains("could not be reached"), "{:?}", report.failed_polls);
}

#[tokio::test]
async fn d31_a_refused_start_is_told_on_the_issue_and_not_tried_again_by_itself() {
    let yard = Yard::new(&labelled("One")).await;
    yard.once(refused(StopDetail::OriginUnresolved)).await;
    assert_eq!(yard.labels(1), ["agentd:attention"]);
    let said = yard.sim.issue(REPO, 1).unwrap().comments;
    assert!(
        said[0].body.starts_with("<!-- agentd:issue-1:refusal -->") && said[0].body.contains("said"),
        "{}",
        said[0].body
    );
    yard.once(refused(StopDetail::OriginUnresolved)).await;
    assert_eq!(yard.started(), [1]);
    let no = yard.why(1).await.into_iter().find(|verdict| !verdict.passed()).unwrap();
    assert_eq!(no.code, "no_trigger");
    assert!(no.answer.contains("origin_unresolved") && no.answer.contains("said"), "{}", no.answer);
    yard.violations();
}

#[tokio::test]
async fn i27_a_start_that_fails_for_now_waits_longer_each_time_over_restarts_and_ends_with_a_person() {
    let yard = Yard::new(&labelled("One")).await;
    yard.once(refused(StopDetail::GithubError)).await;
    let report = yard.once(refused(StopDetail::GithubError)).await;
    assert_eq!((codes(&report), yard.started().len()), (vec![(1, "backing_off")], 1));
    let mut starts = 1;
    while yard.labels(1).contains(&"agentd".to_owned()) {
        yard.clock.advance(Duration::from_secs(301));
        yard.once(refused(StopDetail::GithubError)).await;
        starts += 1;
        assert!(starts < 20, "it never ends");
    }
    assert_eq!((starts, yard.labels(1)), (9, vec!["agentd:attention".to_owned()]));
    assert!(yard.sim.issue(REPO, 1).unwrap().comments[0].body.contains("again and again"));
}

#[tokio::test]
async fn a_busy_branch_is_waited_for_and_never_blamed() {
    let yard = Yard::new(&labelled("One")).await;
    for _ in 0..12 {
        yard.once(refused(StopDetail::BranchBusy)).await;
        yard.clock.advance(Duration::from_secs(301));
    }
    assert_eq!(yard.started().len(), 12);
    assert!(yard.labels(1).contains(&"agentd".to_owned()));
    assert!(yard.sim.issue(REPO, 1).unwrap().comments.is_empty());
}

async fn stopped_by(change: impl Fn(&Simulator)) -> (StopDetail, Vec<String>) {
    let yard = Yard::new(&labelled("One")).await;
    let why = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&why);
    let walk = move |request: StartRequest| {
        let seen = Arc::clone(&seen);
        async move {
            request.control.shutdown.stopped().await;
            *seen.lock().unwrap() = Some(request.control.why().detail);
            ended(request.control.why().detail)
        }
    };
    let daemon = Daemon::open(yard.parts(walk)).unwrap();
    let changed = Mutex::new(false);
    let done = || {
        if !yard.started().is_empty() && !std::mem::replace(&mut *changed.lock().unwrap(), true) {
            change(&yard.sim);
        }
        why.lock().unwrap().is_some() && yard.labels(1) == ["agentd:attention"]
    };
    run_until(daemon, &yard.shutdown, done).await;
    let why = why.lock().unwrap().unwrap();
    (why, yard.labels(1))
}

#[tokio::test]
async fn d39_a_run_whose_issue_is_closed_or_loses_its_label_is_told_to_stop_and_why() {
    let closed = stopped_by(|sim| assert!(sim.close_issue(REPO, 1, "mia"))).await;
    assert_eq!(closed, (StopDetail::IssueClosed, vec!["agentd:attention".to_owned()]));
    let removed = stopped_by(|sim| assert!(sim.remove_label(REPO, 1, "agentd", "mia"))).await;
    assert_eq!(removed, (StopDetail::LabelRemoved, vec!["agentd:attention".to_owned()]));
}

#[tokio::test]
async fn a_panic_is_one_failed_run_and_not_the_daemons_end() {
    let yard = Yard::new(&(labelled("One") + &labelled("Two"))).await;
    let walk = |request: StartRequest| async move {
        assert!(request.title != "One", "deliberate");
        ended(StopDetail::Completed)
    };
    Daemon::open(yard.parts(walk)).unwrap().once().await;
    assert_eq!(
        (yard.labels(1), yard.labels(2)),
        (vec!["agentd:failed".to_owned()], vec!["agentd:done".to_owned()])
    );
}

#[tokio::test]
async fn labels_that_could_not_be_written_at_the_end_are_written_by_the_next_daemon_and_nothing_runs_twice() {
    let fault = "[[faults]]\nmethod = \"DELETE\"\npath = \"/repos/*/labels/agentd\"\nkind = \"status\"\nstatus = 500\ntimes = 2\n";
    let yard = Yard::new(&(labelled("One") + fault)).await;
    yard.once(ended(StopDetail::Completed)).await;
    assert!(yard.labels(1).contains(&"agentd".to_owned()), "the fault worked: {:?}", yard.labels(1));
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!((yard.labels(1), yard.started()), (vec!["agentd:done".to_owned()], vec![1]));
}

#[tokio::test]
async fn d6_a_trigger_that_is_put_on_after_the_end_starts_the_next_run() {
    let yard = Yard::new(&labelled("One")).await;
    // The run has written its labels itself, and before the daemon hears of its end somebody asks again.
    let client = yard.client();
    let walk = move |request: StartRequest| {
        let client = client.clone();
        async move {
            let repo = &request.issue.repo;
            client.remove_label(repo, 1, "agentd").await.unwrap();
            client.add_labels(repo, 1, &["agentd"]).await.unwrap();
            RunSummary { written_back: true, ..ended(StopDetail::Completed) }
        }
    };
    Daemon::open(yard.parts(walk)).unwrap().once().await;
    assert!(yard.labels(1).contains(&"agentd".to_owned()), "{:?}", yard.labels(1));
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!((yard.labels(1), yard.started()), (vec!["agentd:done".to_owned()], vec![1, 1]));

    // The daemon has to write them, later, and somebody asks again meanwhile.
    let fault = "[[faults]]\nmethod = \"DELETE\"\npath = \"/repos/*/labels/agentd\"\nkind = \"status\"\nstatus = 500\ntimes = 2\n";
    let yard = Yard::new(&(labelled("One") + fault)).await;
    yard.once(ended(StopDetail::Completed)).await;
    assert!(yard.labels(1).contains(&"agentd".to_owned()), "the fault worked: {:?}", yard.labels(1));
    yard.sim.remove_label(REPO, 1, "agentd", "mia");
    yard.sim.add_label(REPO, 1, "agentd", "mia");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!((yard.labels(1), yard.started()), (vec!["agentd:done".to_owned()], vec![1, 1]));
    yard.violations();
}

#[tokio::test]
async fn d69_a_stopped_daemon_leaves_the_trigger_and_the_next_goes_on() {
    let yard = Yard::new(&labelled("One")).await;
    let walk = |request: StartRequest| async move {
        request.control.shutdown.stopped().await;
        ended(request.control.why().detail)
    };
    let daemon = Daemon::open(yard.parts(walk)).unwrap();
    let polls = || yard.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    let report = run_until(daemon, &yard.shutdown, || !yard.started().is_empty() && polls() > 2).await;
    assert_eq!(report.ended[0].1.stop.detail, StopDetail::Shutdown);
    assert_eq!(report.waiting, [], "what has ended does not wait");
    assert_eq!(yard.labels(1), ["agentd"]);
    let next = Yard { shutdown: Shutdown::new(), ..yard };
    next.once(ended(StopDetail::Completed)).await;
    assert_eq!((next.labels(1), next.started()), (vec!["agentd:done".to_owned()], vec![1, 1]));
}

#[tokio::test]
async fn an_abort_ends_runs_that_do_not_listen() {
    let yard = Yard::new(&labelled("One")).await;
    let walk = |request: StartRequest| async move {
        request.control.shutdown.aborted().await;
        ended(StopDetail::UserAbort)
    };
    let mut daemon = Daemon::open(yard.parts(walk)).unwrap();
    let shutdown = yard.shutdown.clone();
    let signals = async {
        while yard.started().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.request_stop();
        shutdown.request_abort();
    };
    let (report, ()) =
        tokio::time::timeout(Duration::from_secs(30), futures::future::join(daemon.run(), signals))
            .await
            .unwrap();
    assert_eq!(report.ended.len(), 1);
}

#[tokio::test]
async fn two_daemons_do_not_share_a_state_directory() {
    let yard = Yard::new("").await;
    let first = yard.daemon(ended(StopDetail::Completed));
    let second = Daemon::open(yard.parts(|_| std::future::ready(ended(StopDetail::Completed))));
    assert!(matches!(second, Err(DaemonError::Busy(_))));
    drop(first);
    yard.daemon(ended(StopDetail::Completed));
}

#[tokio::test]
async fn a_sweep_takes_every_open_issue_that_matches_and_no_run_has_ended_on() {
    let scenario = issue("One", "labels = [\"bug\"]")
        + &issue("Two", "labels = [\"bug\", \"agentd:done\"]")
        + &issue("Three", "labels = [\"bug\"]\nstate = \"closed\"")
        + &issue("Four", "labels = [\"Bug\", \"P1\"]")
        + &issue("Five", "")
        + &issue("Six", "labels = [\"bug\"]\nauthor = \"rita\"\nlabelled_by = \"rita\"")
        + &issue("Seven", "labels = [\"bug\", \"agentd:failed\", \"agentd\"]");
    let mut yard = Yard::new(&scenario).await;
    yard.sweep.select = SweepSelect::All;
    yard.sweep.labels = vec!["bug".to_owned()];
    yard.limits = Limits { all: 1, per_repository: 1, cluster: None };
    let parts = yard.parts(|_| std::future::ready(ended(StopDetail::Completed)));
    let report = Daemon::sweep_now(parts).await.unwrap();
    assert_eq!(yard.started(), [4, 1, 7], "the important first, one at a time");
    assert_eq!(codes(&report), [], "an author who may not ask is not listed");
    assert!(yard.sim.issue(REPO, 6).unwrap().comments.is_empty(), "nobody asked, so nobody is told");
    assert_eq!(
        (yard.labels(1), yard.labels(7)),
        (vec!["agentd:done".into(), "bug".into()], vec!["agentd:done".into(), "bug".into()])
    );
    let swept = yard.asked.lock().unwrap()[1].clone();
    assert_eq!((swept.source, swept.principal.source), (ObjectiveSource::Sweep, PrincipalSource::Sweep));

    yard.sweep.labels.clear();
    yard.sweep.limit = Some(1);
    let parts = yard.parts(|_| std::future::ready(ended(StopDetail::Completed)));
    Daemon::sweep_now(parts).await.unwrap();
    assert_eq!(yard.started(), [4, 1, 7, 5]);
    yard.violations();
}

#[tokio::test]
async fn a_scheduled_sweep_comes_at_its_time_and_a_missed_one_once() {
    let mut yard = Yard::new(&(issue("One", "") + &issue("Two", "labels = [\"later\"]"))).await;
    yard.sweep.select = SweepSelect::All;
    yard.sweep.schedule = Some("0 3 * * *".to_owned());
    yard.once(ended(StopDetail::Completed)).await;
    assert!(yard.started().is_empty(), "a first start has missed nothing");
    yard.clock.advance(Duration::from_secs(4 * 24 * 3600));
    yard.once(ended(StopDetail::MaxCost)).await;
    assert_eq!(yard.started(), [1, 2], "four missed sweeps are one");
    assert_eq!(yard.labels(1), ["agentd:failed"]);
    yard.sim.remove_label(REPO, 1, "agentd:failed", "mia");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.started(), [1, 2], "not before its next time");
    yard.clock.advance(Duration::from_secs(24 * 3600));
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.started(), [1, 2, 1]);
}

#[tokio::test]
async fn of_many_issues_that_wait_some_are_asked_about_at_a_time_and_the_list_is_read_between() {
    let blocked: String = (1..=40)
        .map(|number| issue(&format!("Issue {number}"), "labels = [\"agentd\"]\nblocked_by = [41]"))
        .collect();
    let yard = Yard::new(&(blocked + &issue("Last", ""))).await;
    let report = yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(codes(&report), (1..=40).map(|number| (number, "blocked_by_open")).collect::<Vec<_>>());
    let asked: Vec<bool> = yard
        .sim
        .requests()
        .iter()
        .filter_map(|request| {
            let is_list = request.target.starts_with("/repos/octo/greeter/issues?");
            let is_about_one = request.target.contains("/dependencies/");
            (is_list || is_about_one).then_some(is_list)
        })
        .collect();
    let between: Vec<usize> = asked.split(|is_list| *is_list).map(<[bool]>::len).collect();
    assert_eq!(between.iter().sum::<usize>(), 40, "each once");
    assert!(between.iter().all(|count| *count <= 16), "{between:?}");
    let queued = (1..=40).filter(|number| yard.labels(*number).contains(&"agentd:queued".to_owned())).count();
    assert!(queued >= 24, "{queued}");
    yard.violations();
}

#[tokio::test]
async fn i51_why_gives_every_rules_answer_and_the_schedulers_own_reason() {
    let blocked = issue("One", "labels = [\"agentd\"]\nblocked_by = [2]");
    let yard = Yard::new(&(blocked + &issue("Two", "author = \"rita\""))).await;
    let report = yard.once(ended(StopDetail::Completed)).await;
    let why = async |number| yard.why(number).await;
    let verdicts = why(1).await;
    let no: Vec<&str> =
        verdicts.iter().filter(|verdict| !verdict.passed()).map(|verdict| &*verdict.code).collect();
    assert_eq!(no, ["blocked_by_open"]);
    assert_eq!(
        report.waiting[0],
        (IssueRef { repo: yard.watched().name, number: 1 }, report.waiting[0].1.clone())
    );
    assert_eq!(report.waiting[0].1.code(), "blocked_by_open");
    assert_eq!(verdicts.len(), 20, "all are asked");
    let codes = why(2)
        .await
        .into_iter()
        .filter(|verdict| !verdict.passed())
        .map(|verdict| verdict.code)
        .collect::<Vec<_>>();
    assert_eq!(codes, ["no_trigger", "permission_too_low"]);
    assert_eq!(why(99).await.iter().find(|verdict| !verdict.passed()).unwrap().code, "not_found");
}

#[tokio::test]
async fn a_run_that_a_full_disk_cuts_off_waits_and_goes_on_when_there_is_room() {
    let yard = Yard::new(&labelled("One")).await;
    let place = yard.home.path().join("worktrees");
    let full = Arc::new(Mutex::new(true));
    let (fills, room) = (Arc::clone(&full), place.clone());
    let parts = move |yard: &Yard| {
        let (fills, room) = (Arc::clone(&fills), room.clone());
        let mut parts = yard.parts(move |_| {
            // The disk is looked at where there is a place on it; no disk has this much room.
            let detail = match *fills.lock().unwrap() {
                true => std::fs::create_dir(&room).map(|()| StopDetail::OutputWriteFailed).unwrap(),
                false => StopDetail::Completed,
            };
            std::future::ready(ended(detail))
        });
        parts.repositories[0].place = Some((place.clone(), u64::MAX / 4));
        parts
    };
    Daemon::open(parts(&yard)).unwrap().once().await;
    assert_eq!((yard.started(), yard.labels(1)), (vec![1], vec!["agentd".to_owned()]), "it has not failed");
    yard.clock.advance(Duration::from_secs(11));
    let report = Daemon::open(parts(&yard)).unwrap().once().await;
    assert_eq!(codes(&report), [(1, "disk_full")]);
    assert_eq!(yard.labels(1), ["agentd", "agentd:queued"]);
    std::fs::remove_dir(yard.home.path().join("worktrees")).unwrap();
    *full.lock().unwrap() = false;
    Daemon::open(parts(&yard)).unwrap().once().await;
    assert_eq!((yard.started(), yard.labels(1)), (vec![1, 1], vec!["agentd:done".to_owned()]));
    yard.violations();
}
