//! The simulated remote and its pull requests, with real git.

use std::path::Path;
use std::process::Output;

use agentd::sim::Simulator;
use serde_json::json;

use super::{Caller, REPO, example, start};

#[expect(clippy::disallowed_methods, reason = "the user's own git, outside agentd")]
async fn git(directory: &Path, args: &[&str]) -> Output {
    let mut command = tokio::process::Command::new("git");
    command
        .args(args)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_ASKPASS", "true")
        .env("GIT_AUTHOR_NAME", "Test")
        .env("GIT_AUTHOR_EMAIL", "test@example.com")
        .env("GIT_COMMITTER_NAME", "Test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com");
    command.output().await.unwrap()
}

async fn git_ok(directory: &Path, args: &[&str]) -> String {
    let output = git(directory, args).await;
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn with_token(url: &str, token: &str) -> String {
    url.replace("http://", &format!("http://x-access-token:{token}@"))
}

/// Clones the example's repository and pushes a branch with one commit on it.
async fn push_branch(sim: &Simulator, branch: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let url = with_token(&sim.remote_url("octo", "greeter"), "sim-token");
    git_ok(directory.path(), &["clone", "-q", &url, "."]).await;
    git_ok(directory.path(), &["checkout", "-q", "-b", branch, "origin/develop"]).await;
    // More than git sends unzipped, and more than one pipe buffer holds.
    let lines: String = (0..40_000).map(|n| format!("{}\n", n * 7919 % 104_729)).collect();
    agentd::sys::files::write_public(&directory.path().join("data.txt"), lines.as_bytes()).unwrap();
    git_ok(directory.path(), &["add", "."]).await;
    git_ok(directory.path(), &["commit", "-q", "-m", "Data"]).await;
    git_ok(directory.path(), &["push", "-q", "origin", branch]).await;
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn octocrab_reads_and_writes_issues_comments_labels_and_pull_requests() {
    let sim = example().await;
    let crab = octocrab::Octocrab::builder()
        .base_uri(sim.api_url())
        .unwrap()
        .personal_token("sim-token".to_owned())
        .build_with_reqwest(reqwest::Client::new())
        .unwrap();
    let issue = crab.issues("octo", "greeter").get(1).await.unwrap();
    assert_eq!(issue.labels[0].name, "agentd");
    assert_eq!(issue.user.login, "dev");
    let list = crab.issues("octo", "greeter").list().labels(&["agentd".to_owned()]).send().await.unwrap();
    assert_eq!(list.items.len(), 1);
    let comment = crab.issues("octo", "greeter").create_comment(1, "On it.").await.unwrap();
    crab.issues("octo", "greeter").update_comment(comment.id, "Done.").await.unwrap();
    assert_eq!(sim.issue(REPO, 1).unwrap().comments.last().unwrap().body, "Done.");
    crab.issues("octo", "greeter").add_labels(1, &["agentd:running".to_owned()]).await.unwrap();
    crab.issues("octo", "greeter").remove_label(1, "agentd").await.unwrap();
    assert_eq!(sim.issue(REPO, 1).unwrap().labels, ["agentd:running"]);
    let _clone = push_branch(&sim, "feature/issue-1").await;
    let pull = crab
        .pulls("octo", "greeter")
        .create("Fix", "feature/issue-1", "develop")
        .body("Closes #1")
        .send()
        .await;
    let pull = pull.unwrap();
    assert_eq!((pull.number, pull.base.ref_field.as_str()), (3, "develop"));
    let head = sim.pulls(REPO)[0].pull.clone().unwrap();
    assert_eq!(pull.head.sha, head.head_sha);
    let repository = crab.repos("octo", "greeter").get().await.unwrap();
    assert_eq!(repository.default_branch.as_deref(), Some("main"));
    assert_eq!(sim.violations(), Vec::<String>::new());
    sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_pushes_with_a_token_and_is_refused_without() {
    let sim = example().await;
    let clone = push_branch(&sim, "feature/issue-1").await;
    let here = git_ok(clone.path(), &["rev-parse", "HEAD"]).await;
    let there = agentd::sim::bare::head(&sim.git_dir(REPO).unwrap(), "feature/issue-1");
    assert_eq!(there.as_deref(), Some(here.trim()));

    let url = sim.remote_url("octo", "greeter");
    // Anybody reads a public repository; nobody writes without a token, or with one that may only read.
    git_ok(clone.path(), &["ls-remote", &url]).await;
    let anonymous = git(clone.path(), &["push", &url, "HEAD:refs/heads/x"]).await;
    assert!(!anonymous.status.success());
    let reader =
        git(clone.path(), &["push", &with_token(&url, "read-only-token"), "HEAD:refs/heads/x"]).await;
    assert!(String::from_utf8_lossy(&reader.stderr).contains("403"), "{reader:?}");
    let wrong = git(clone.path(), &["push", &with_token(&url, "no-such-token"), "HEAD:refs/heads/x"]).await;
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("Authentication failed"), "{wrong:?}");

    let protected = git(clone.path(), &["push", "origin", "HEAD:main"]).await;
    let said = String::from_utf8_lossy(&protected.stderr).into_owned();
    assert!(said.contains("GH006") && said.contains("hook declined"), "{said}");
    sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_requests_are_checked_against_the_real_branches() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let pulls = "/repos/octo/greeter/pulls";
    let body = |head: &str, base: &str| json!({"title": "t", "head": head, "base": base});
    let (status, error) = api.send("POST", pulls, body("nowhere", "main")).await;
    assert_eq!((status, &error["errors"][0]["field"]), (422, &json!("head")));
    let (_, error) = api.send("POST", pulls, body("develop", "nowhere")).await;
    assert_eq!(error["errors"][0]["field"], "base");
    let (_, error) = api.send("POST", pulls, body("main", "develop")).await;
    assert_eq!(error["errors"][0]["message"], "No commits between develop and main");
    let (status, pull) = api.send("POST", pulls, body("octo:develop", "main")).await;
    assert_eq!((status, &pull["changed_files"]), (201, &json!(1)));
    let (_, error) = api.send("POST", pulls, body("develop", "main")).await;
    assert_eq!(error["errors"][0]["message"], "A pull request already exists for octo:develop.");
    let (_, found) = api.get(&format!("{pulls}?head=octo:develop&base=main&state=open")).await;
    assert_eq!(found[0]["number"], pull["number"]);
    let number = pull["number"].as_u64().unwrap();
    let (_, edited) = api.send("PATCH", &format!("{pulls}/{number}"), json!({"title": "new"})).await;
    assert_eq!(edited["title"], "new");
    let (_, as_issue) = api.get(&format!("/repos/octo/greeter/issues/{number}")).await;
    assert!(as_issue["pull_request"].is_object());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_pull_request_closes_what_it_says() {
    let sim = start(
        r##"
        [[tokens]]
        token = "sim-token"
        login = "octo"
        [[repositories]]
        name = "octo/one"
        [[repositories.commits]]
        files = { a = "1" }
        [[repositories.commits]]
        branch = "work"
        files = { b = "2" }
        [[repositories.issues]]
        title = "a"
        [[repositories.pulls]]
        title = "p"
        head = "work"
        body = "Closes #1"
        "##,
    )
    .await;
    let api = Caller::new(&sim);
    let (status, merged) = api.send("PUT", "/repos/octo/one/pulls/2/merge", json!({})).await;
    assert_eq!((status, &merged["merged"]), (200, &json!(true)));
    assert!(!sim.issue("octo/one", 1).unwrap().open);
    let git_dir = sim.git_dir("octo/one").unwrap();
    assert_eq!(agentd::sim::bare::file(&git_dir, "main", "b").as_deref(), Some(b"2".as_slice()));
    assert_eq!(api.send("PUT", "/repos/octo/one/pulls/2/merge", json!({})).await.0, 405);
}
