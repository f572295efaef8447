//! The GitHub client against the simulator: what it writes is there once, whatever happened on the way.

use std::path::Path;
use std::time::Duration;

use agentd::config::Credentials;
use agentd::domain::issue_state::{IssueState, LabelsTable};
use agentd::domain::name::{BranchName, CommitId, RepoName};
use agentd::github::{Client, Ensured, ErrorKind, PageCache, PullSpec, Settings};
use agentd::sim::{Scenario, SimOptions, Simulator};
use secrecy::SecretString;

const WORLD: &str = r#"
tokens = [{ token = "tok", login = "helper" }]
[[repositories]]
name = "octo/greeter"
collaborators = { helper = "write" }
[[repositories.commits]]
files = { "a.txt" = "one" }
[[repositories.commits]]
branch = "feature/issue-1"
files = { "a.txt" = "two" }
[[repositories.issues]]
title = "One"
labels = ["agentd"]
fields = { base_branch = { single_select = "develop" } }
projects = [{ title = "Roadmap", fields = { "Target Branch" = "develop" } }]
[[repositories.issues]]
title = "Two"
projects = [
  { title = "Roadmap", number = 1, fields = { "Target Branch" = { single_select = "develop" } } },
  { title = "Other", number = 2, fields = { "Target Branch" = "main" } },
]
[[repositories.issues]]
title = "Three"
"#;

async fn world(more: &str) -> Simulator {
    let text = format!("{WORLD}{more}");
    let scenario = Scenario::from_text(&text, Path::new("scenario.toml")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

fn client(sim: &Simulator) -> Client {
    let settings = Settings::new(sim.api_url(), Credentials::Token(SecretString::from("tok".to_owned())));
    let quick = Duration::from_millis(5);
    Client::new(Settings { retry_delay: quick, timeout: Duration::from_secs(5), ..settings }).unwrap()
}

fn repo() -> RepoName {
    RepoName::parse("octo/greeter").unwrap()
}

#[tokio::test]
async fn g02_fields_of_issues_and_projects_are_read_as_github_gives_them() {
    let sim = world("").await;
    let client = client(&sim);
    let one = client.issue(&repo(), 1).await.unwrap();
    assert_eq!(client.issue_field(&one, "base_branch").await.unwrap().as_deref(), Some("develop"));
    let mut found = client.project_fields(&repo(), &[1, 2, 3], "Target Branch").await.unwrap();
    assert_eq!(found.remove(&1).unwrap().unwrap().as_deref(), Some("develop"));
    let conflict = found.remove(&2).unwrap().unwrap_err();
    assert!(matches!(conflict.kind, ErrorKind::FieldConflict { .. }), "{conflict}");
    assert_eq!(found.remove(&3).unwrap().unwrap(), None);
    let missing = client.project_field(&repo(), 99, "Target Branch").await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert_eq!(client.viewer().await.unwrap().actor.login, "helper");
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

fn head_of(sim: &Simulator, branch: &str) -> CommitId {
    let head = agentd::sim::bare::head(&sim.git_dir("octo/greeter").unwrap(), branch).unwrap();
    CommitId::parse(&head).unwrap()
}

#[tokio::test]
async fn a_pull_request_that_was_merged_as_it_is_stays_the_one_of_its_branch() {
    for method in ["merge", "squash"] {
        let sim = world("").await;
        let client = client(&sim);
        let mut spec = PullSpec {
            head: BranchName::parse("feature/issue-1").unwrap(),
            commit: head_of(&sim, "feature/issue-1"),
            base: BranchName::parse("main").unwrap(),
            title: "One".into(),
            body: "Closes #1".into(),
            draft: false,
        };
        let (first, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
        let merge = format!("{}/_sim/repos/octo/greeter/pulls/{}/merge", sim.base_url(), first.number);
        let merge = reqwest::Client::new().post(merge).body(format!("{{\"merge_method\": \"{method}\"}}"));
        merge.send().await.unwrap().error_for_status().unwrap();
        // Also where it should say something else now: what is merged is not touched.
        spec.title = "One, again".into();
        let (again, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
        assert_eq!(
            (again.number, change, again.merged),
            (first.number, Ensured::Unchanged, true),
            "{method}"
        );
        assert_eq!(sim.pulls("octo/greeter")[0].title, "One");
        // Other commits are other work.
        spec.commit = CommitId::parse(&"1".repeat(40)).unwrap();
        match (method, client.ensure_pull(&repo(), &spec).await) {
            ("squash", made) => assert_ne!(made.unwrap().0.number, first.number),
            (_, refused) => assert_eq!(refused.unwrap_err().kind, ErrorKind::NoCommits),
        }
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

#[tokio::test]
async fn a_pull_request_is_opened_once_as_a_draft_made_ready_and_given_another_base() {
    // The first request takes effect, but its answer is lost on the way.
    let sim =
        world("[[faults]]\nmethod = \"POST\"\npath = \"/repos/*/pulls\"\nkind = \"lost_reply\"\n").await;
    let client = client(&sim);
    let branch = |name: &str| BranchName::parse(name).unwrap();
    let mut spec = PullSpec {
        head: branch("feature/issue-1"),
        commit: head_of(&sim, "feature/issue-1"),
        base: branch("main"),
        title: "One".into(),
        body: "Closes #1".into(),
        draft: true,
    };
    let (pull, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!((change, pull.draft), (Ensured::Created, true));
    spec.draft = false;
    spec.title = "One, done".into();
    let (again, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!((again.number, change, again.draft), (pull.number, Ensured::Updated, false));
    let (_, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!(change, Ensured::Unchanged);
    let pulls = sim.pulls("octo/greeter");
    assert_eq!(pulls.len(), 1);
    assert_eq!((pulls[0].title.as_str(), pulls[0].pull.as_ref().unwrap().draft), ("One, done", false));
    spec.head = branch("main");
    assert!(client.ensure_pull(&repo(), &spec).await.is_err());
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

/// A pull request of agentd's, and what a person then makes of its words.
async fn worded(sim: &Simulator, client: &Client, person: impl Fn(&str) -> (String, String)) -> PullSpec {
    let spec = PullSpec {
        head: BranchName::parse("feature/issue-1").unwrap(),
        commit: head_of(sim, "feature/issue-1"),
        base: BranchName::parse("main").unwrap(),
        title: "One".into(),
        body: "<!-- agentd:issue-1 -->\nThe first words.\n\nCloses #1".into(),
        draft: false,
    };
    let (pull, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
    let (title, body) = person(&pull.body);
    assert!(sim.edit_text("octo/greeter", pull.number, "dev", Some(&title), Some(&body)));
    PullSpec { title: "One, done".into(), body: spec.body.replace("first", "second"), ..spec }
}

#[tokio::test]
async fn a_persons_title_and_text_of_a_pull_request_stay_and_agentds_own_words_are_brought_up_to_date() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    type Edit = fn(&str) -> String;
    // What a person makes of the body, whether agentd's first words stay, and whether its second ones are there.
    let cases: [(&str, Edit, bool, bool); 7] = [
        ("behind it", |body| format!("{body}\n- [x] written by Dev\n"), false, true),
        ("before it", |body| format!("- [x] written by Dev\n\n{body}"), false, true),
        (
            "within, around it",
            |body| body.replace("\n\n<!-- agentd:set", "\n\n- [x] written by Dev\n<!-- agentd:set"),
            false,
            true,
        ),
        ("in its words", |body| body.replace("words.", "words. - [x] written by Dev"), true, false),
        (
            "in place of its words",
            |body| format!("- [x] written by Dev{}", &body[body.find("\n\n<!-- agentd:set").unwrap()..]),
            false,
            false,
        ),
        ("in place of everything", |_| "- [x] written by Dev".to_owned(), false, true),
        ("nowhere", str::to_owned, false, true),
    ];
    for (case, edit, first, second) in cases {
        let sim = world("").await;
        let client = client(&sim);
        let spec = worded(&sim, &client, |body| ("feat: one (#1)".into(), crlf(&edit(body)))).await;
        let (pull, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
        let (again, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
        assert_eq!((change, &again.body), (Ensured::Unchanged, &pull.body), "{case}");
        assert_eq!(pull.title, "feat: one (#1)", "{case}");
        let of = |text: &str| pull.body.matches(text).count();
        assert_eq!(of("- [x] written by Dev"), usize::from(case != "nowhere"), "{case}: {}", pull.body);
        let words = [of("The first words."), of("The second words."), of("<!-- agentd:set ")];
        assert_eq!(words, [first.into(), second.into(), 1], "{case}: {}", pull.body);
        // The title that agentd would give it is agentd's again.
        sim.edit_text("octo/greeter", pull.number, "dev", Some(&spec.title), None);
        let spec = PullSpec { title: "One, at last".into(), ..spec };
        let (pull, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
        assert_eq!(pull.title, "One, at last", "{case}");
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }
}

#[tokio::test]
async fn words_of_agentds_make_room_for_a_persons_on_a_pull_request() {
    let sim = world("").await;
    let client = client(&sim);
    let mine = "word ".repeat(12_000);
    let mut spec = worded(&sim, &client, |body| ("One".into(), format!("{body}\n{mine}"))).await;
    spec.body = format!("<!-- agentd:issue-1 -->\n{}", "own\n".repeat(10_000));
    let (pull, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert!(pull.body.contains(mine.trim_end()) && pull.body.contains("own\nown\n"));
    assert!(pull.body.chars().count() <= 65_536, "{}", pull.body.chars().count());
}

#[tokio::test]
async fn a_comment_is_there_once_although_its_answer_was_lost() {
    for kind in ["lost_reply", "drop", "truncate"] {
        let fault =
            format!("[[faults]]\nmethod = \"POST\"\npath = \"/repos/*/comments\"\nkind = \"{kind}\"\n");
        let sim = world(&fault).await;
        let client = client(&sim);
        client.ensure_comment(&repo(), 1, "<!-- agentd:issue-1 -->", "text").await.unwrap();
        let comments = sim.issue("octo/greeter", 1).unwrap().comments;
        assert_eq!(comments.len(), 1, "{kind}");
        assert_eq!(comments[0].body, "<!-- agentd:issue-1 -->\ntext", "{kind}");
    }
}

#[tokio::test]
async fn d6_labels_are_settled_and_repeated_settling_writes_nothing() {
    let sim = world("").await;
    let client = client(&sim);
    let labels = LabelsTable::default();
    let settle = async || {
        let now = client.issue(&repo(), 1).await.unwrap().issue.labels;
        client.ensure_labels(&repo(), 1, &now, IssueState::Done, &labels).await.unwrap();
    };
    settle().await;
    assert_eq!(sim.issue("octo/greeter", 1).unwrap().labels, ["agentd:done"]);
    let writes = |sim: &Simulator| sim.requests().iter().filter(|request| request.method != "GET").count();
    let before = writes(&sim);
    settle().await;
    assert_eq!(writes(&sim), before);
    // That a label is there is found out once, not for each issue.
    sim.remove_label("octo/greeter", 1, "agentd:done", "mia");
    settle().await;
    let requests = sim.requests();
    let looked = requests.iter().filter(|asked| asked.method == "GET" && asked.target.contains("/labels/"));
    assert_eq!(looked.count(), 1);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[tokio::test]
async fn limits_hangs_and_cut_lists_are_what_they_are() {
    let sim =
        world("[[faults]]\npath = \"/repos/*/issues\"\nkind = \"secondary_limit\"\nretry_after = 1\n").await;
    let limited = client(&sim).patient(Duration::ZERO);
    let mut cache = PageCache::default();
    let error = limited.list_labelled(&repo(), "agentd", &mut cache).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::RateLimited { .. }), "{error}");
    let patient = limited.patient(Duration::from_secs(5));
    assert_eq!(patient.list_labelled(&repo(), "agentd", &mut cache).await.unwrap().issues.len(), 1);

    let sim = world("[[faults]]\npath = \"/repos/*/issues\"\nkind = \"hang\"\ntimes = 0\n").await;
    let token = Credentials::Token(SecretString::from("tok".to_owned()));
    let settings =
        Settings { timeout: Duration::from_millis(100), retries: 1, ..Settings::new(sim.api_url(), token) };
    let error =
        Client::new(settings).unwrap().list_labelled(&repo(), "agentd", &mut cache).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);

    let garbled = async |kind: &str, times: u32| {
        let fault = format!("[[faults]]\npath = \"/repos/*/issues\"\nkind = \"{kind}\"\ntimes = {times}\n");
        let sim = world(&fault).await;
        let listed = client(&sim).list_labelled(&repo(), "agentd", &mut PageCache::default()).await;
        (listed.map(|listing| listing.issues.len()), sim.requests().len())
    };
    for kind in ["truncate", "garbage"] {
        let (listed, asked) = garbled(kind, 2).await;
        assert_eq!((listed.unwrap(), asked), (1, 3), "{kind}: asked for again");
    }
    let (listed, asked) = garbled("garbage", 0).await;
    assert_eq!((listed.unwrap_err().kind, asked), (ErrorKind::Foreign, 4));
}
