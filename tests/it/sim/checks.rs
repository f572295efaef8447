//! Simulated checks: rollups, annotations, jobs, logs on a second origin, and running failed jobs again.

use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::sys::clock::Clock;
use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{Caller, REPO};

const ON: &str = "repos/octo/greeter";

async fn world(clock: Clock) -> Simulator {
    let scenario: Scenario = serde_json::from_value(json!({
        "tokens": [{"token": "sim-token", "login": "octo"}],
        "repositories": [{
            "name": REPO,
            "commits": [{"files": {"a.txt": "a\n"}}, {"branch": "work", "files": {"a.txt": "b\n"}}],
            "pulls": [{"number": 2, "title": "two", "head": "work"}],
            "checks": [
                {"on": "work", "name": "build", "kind": "run", "outcome": "failure", "required": true,
                 "description": "It broke", "summary": "badly",
                 "annotations": [{"path": "a.txt", "line": 1, "level": "failure", "message": "no"}],
                 "job": {"steps": [["Set up", "success"], ["Test", "failure"]], "log": "begin\n",
                         "filling": 1_000_000, "tail": "error: no\n", "reruns": ["success"]}},
                {"on": "work", "name": "lint", "kind": "run", "outcome": "success"},
                {"on": "work", "name": "ci/other", "outcome": "error", "details_url": "https://ci.example.com/1"},
            ],
        }],
    }))
    .unwrap();
    Simulator::start(scenario, SimOptions { clock, ..SimOptions::default() }).await.unwrap()
}

async fn rollup(api: &Caller) -> Value {
    let query = "{ repository(owner: \"octo\", name: \"greeter\") { two: pullRequest(number: 2) { statusCheckRollup { \
        state contexts(first: 50) { nodes { __typename ... on CheckRun { databaseId name status conclusion detailsUrl \
        isRequired(pullRequestNumber: 2) } ... on StatusContext { context state targetUrl \
        isRequired(pullRequestNumber: 2) } } } } } } }";
    let answer = api.send("POST", "/graphql", json!({"query": query})).await.1;
    answer["data"]["repository"]["two"]["statusCheckRollup"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollup_names_every_check_and_whether_it_is_required() {
    let sim = world(Clock::system()).await;
    let api = Caller::new(&sim);
    let found = rollup(&api).await;
    assert_eq!(found["state"], "FAILURE");
    let nodes = found["contexts"]["nodes"].as_array().unwrap();
    let seen: Vec<_> =
        nodes.iter().map(|node| (node["__typename"].as_str().unwrap(), &node["isRequired"])).collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(seen, [("CheckRun", &yes), ("CheckRun", &no), ("StatusContext", &no)]);
    assert_eq!((&nodes[0]["conclusion"], &nodes[2]["state"]), (&json!("FAILURE"), &json!("ERROR")));
    assert!(nodes[0]["detailsUrl"].as_str().unwrap().contains("/actions/runs/"));
    let runs = api.get("/repos/octo/greeter/commits/work/check-runs").await.1;
    let output = &runs["check_runs"][0]["output"];
    assert_eq!((&output["title"], &output["annotations_count"]), (&json!("It broke"), &json!(1)));
    let id = &runs["check_runs"][0]["id"];
    let annotations = api.get(&format!("/repos/octo/greeter/check-runs/{id}/annotations")).await.1;
    assert_eq!(
        (&annotations[0]["annotation_level"], &annotations[0]["start_line"]),
        (&json!("failure"), &json!(1))
    );
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_at_another_origin_by_a_link_that_ends_and_takes_no_token() {
    let clock = Clock::fixed(Clock::system().now());
    let sim = world(clock.clone()).await;
    let api = Caller::new(&sim);
    let id = api.get("/repos/octo/greeter/commits/work/check-runs").await.1["check_runs"][0]["id"].clone();
    let job = api.get(&format!("/repos/octo/greeter/actions/jobs/{id}")).await.1;
    assert_eq!(
        (&job["steps"][1]["conclusion"], &job["runner_name"]),
        (&json!("failure"), &json!("GitHub Actions 1"))
    );
    let http = reqwest::Client::builder()
        .user_agent("agentd-test")
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let link = async || {
        let url = format!("{}/repos/octo/greeter/actions/jobs/{id}/logs", sim.api_url());
        let answer = http.get(url).bearer_auth("sim-token").send().await.unwrap();
        assert_eq!(answer.status(), 302);
        answer.headers()["location"].to_str().unwrap().to_owned()
    };
    let there = link().await;
    assert!(!there.starts_with(&sim.base_url()), "{there}");
    let whole = http.get(&there).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(whole.len(), 6 + 1_000_000 + 10);
    let end = http.get(&there).header("range", "bytes=1000000-").send().await.unwrap();
    assert_eq!(end.headers()["content-range"].to_str().unwrap(), "bytes 1000000-1000015/1000016");
    assert!(end.bytes().await.unwrap().ends_with(b"error: no\n"));
    assert_eq!(http.get(&there).header("range", "bytes=9999999-").send().await.unwrap().status(), 416);
    // The clock of the simulator goes on by more than a minute.
    sim.world().clock = Clock::fixed(clock.now() + TimeDelta::seconds(61));
    assert_eq!(http.get(&there).send().await.unwrap().status(), 403);
    assert_eq!(sim.violations(), Vec::<String>::new());
    http.get(link().await).bearer_auth("sim-token").send().await.unwrap();
    assert_eq!(sim.violations().len(), 1, "{:?}", sim.violations());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_jobs_run_again_and_only_the_newest_attempt_counts() {
    let sim = world(Clock::system()).await;
    let api = Caller::new(&sim);
    let first = api.get("/repos/octo/greeter/commits/work/check-runs").await.1["check_runs"][0]["id"].clone();
    let run = api.get(&format!("/repos/octo/greeter/actions/jobs/{first}")).await.1["run_id"].clone();
    let path = format!("/repos/octo/greeter/actions/runs/{run}");
    assert_eq!(api.get(&path).await.1["run_attempt"], 1);
    assert_eq!(api.send("POST", &format!("{path}/rerun-failed-jobs"), json!({})).await.0, 201);
    let now = api.get(&path).await.1;
    assert_eq!((&now["run_attempt"], &now["conclusion"]), (&json!(2), &json!("success")));
    assert_eq!(api.send("POST", &format!("{path}/rerun-failed-jobs"), json!({})).await.0, 403);
    let latest = api.get("/repos/octo/greeter/commits/work/check-runs").await.1;
    assert_eq!(latest["total_count"], 2);
    assert_eq!(api.get("/repos/octo/greeter/commits/work/check-runs?filter=all").await.1["total_count"], 3);
    assert_eq!(rollup(&api).await["state"], "ERROR");
    let refused = json!({"on": "work", "name": "build", "kind": "run", "outcome": "failure", "job": {"log_status": 410}});
    let id = sim.admin("POST", &format!("{ON}/checks"), &refused).unwrap()["id"].clone();
    assert_eq!(api.get(&format!("/repos/octo/greeter/actions/jobs/{id}/logs")).await.0, 410);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_pushed_by_force_when_an_admin_says_onto_what() {
    let sim = world(Clock::system()).await;
    let before = agentd::sim::bare::log(&sim.git_dir(REPO).unwrap(), "work");
    let forced = json!({"branch": "work", "onto": "main", "message": "Forced", "files": {"c.txt": "c\n"}});
    let made = sim.admin("POST", &format!("{ON}/commits"), &forced).unwrap();
    let after = agentd::sim::bare::log(&sim.git_dir(REPO).unwrap(), "work");
    assert_eq!((json!(after[0].0), after.len()), (made["sha"].clone(), 2));
    assert!(!after.iter().any(|(id, _)| *id == before[0].0));
}
