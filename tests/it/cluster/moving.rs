//! Moving house: a state directory goes into a cluster's store and comes back, whatever is cut off on the way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentd::domain::canonical::sha256_hex;
use agentd::domain::name::RepoName;
use agentd::store::port::{Cell, Holders as _, LeaseKey};
use agentd::store::run_dir::StateDir;
use async_nats::jetstream::Context;
use serde_json::{Value, json};

use super::eater;
use super::server::{self, Server, connect, is_there, make_streams};
use crate::outside::world::{World, text};

const LASTS: Duration = Duration::from_secs(60);

/// Does something with a client that has all rights, in the middle of an asynchronous test.
pub fn with_client<T, F: Future<Output = T>>(url: &str, work: impl FnOnce(Context) -> F) -> T {
    tokio::task::block_in_place(|| server::with_client(url, work))
}

/// Lays `[cluster]` over the world's configuration, in a file of its own.
pub fn clustered(world: &World, url: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let cluster = format!(
        "[cluster]\nstore = \"nats\"\nname = \"test\"\nnode = \"here\"\nurls = [\"{url}\"]\nreplicas = 1\nlease = \"3s\"\n"
    );
    world.write("cluster.toml", &format!("{overlay}\n{cluster}"));
}

/// `agentd --config FILE` with a state directory of the world.
pub async fn agentd(world: &World, file: &str, state: &Path, args: &[&str]) -> Output {
    let mut command = world.command(&["--config"]);
    command.arg(world.dir.path().join(file)).args(args).env("AGENTD_STATE_DIR", state);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The same with `--json`, and the document.
pub async fn document(world: &World, file: &str, state: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let done = agentd(world, file, state, &[&["--json"], args].concat()).await;
    let document = serde_json::from_slice(&done.stdout);
    (done.status.code(), document.unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr))))
}

/// The files below a folder with their hashes.
pub fn hashes(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, sha256_hex(&std::fs::read(&path).unwrap()));
                }
            }
        }
    }
    found
}

pub fn runs(state: &Path) -> PathBuf {
    state.join("repos/demo/shop/runs")
}

/// The ids of the runs of a state directory, oldest first.
pub fn run_ids(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(runs(state)).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Imports until some answers have come; then there are none any more, and the process is killed.
async fn cut_off(world: &World, server: &Server) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let cut = eater::between(
        server.address(),
        Arc::new(move |answer| {
            let kept = text(&answer).contains("\"seq\":") && text(&answer).contains("\"stream\":\"");
            let number = counted.fetch_add(usize::from(kept), Ordering::Relaxed);
            (number < 25).then_some(answer)
        }),
    );
    clustered(world, &format!("nats://{cut}"));
    let mut command = world.command(&["--config"]);
    command.arg(world.dir.path().join("cluster.toml")).args(["cluster", "import"]);
    let mut import = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while count.load(Ordering::Relaxed) < 25 {
        assert!(begin.elapsed() < LASTS, "it sends less than that");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    import.kill().unwrap();
    assert!(!import.wait().unwrap().success());
}

/// Exports on a host that never had any of it, and on the one that has the key, and compares.
async fn exported(world: &World, state: &Path, good: &[String], cells: &[Cell]) {
    let files = StateDir::new(state.to_owned());
    let lease_file = world.shop().join(".git/agentd/issue-7.json");
    let recorded = |path: &Path| -> Value {
        serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()["record"].clone()
    };
    let mapping = recorded(&lease_file);
    std::fs::remove_file(&lease_file).unwrap();
    let bare = world.dir.path().join("bare");
    for (own, out) in [(bare.as_path(), "elsewhere"), (state, "here")] {
        let place = world.dir.path().join(out);
        let place_name = place.to_str().unwrap();
        let (code, said) =
            document(world, "cluster.toml", own, &["cluster", "export", place_name, "--leases"]).await;
        assert_eq!((code, &said["runs"], &said["seals"]), (Some(0), &json!(2), &json!(2)), "{said:#}");
        assert_eq!(run_ids(&place), *good);
        for run in good {
            assert_eq!(hashes(&runs(&place).join(run)), hashes(&runs(state).join(run)), "{run}");
            // Without the cluster, and on both sides.
            for side in [place.as_path(), state] {
                let (code, verified) = document(world, "overlay.toml", side, &["runs", "verify", run]).await;
                assert_eq!(code, Some(0), "{verified:#}");
                assert_eq!(verified["proof"]["signature"], json!("valid"), "{verified:#}");
            }
        }
        assert_eq!(
            std::fs::read(place.join("seals.jsonl")).unwrap(),
            std::fs::read(state.join("seals.jsonl")).unwrap()
        );
        let out = StateDir::new(place.clone());
        for cell in cells {
            assert_eq!(out.store().get(cell).unwrap().1, files.store().get(cell).unwrap().1, "{cell:?}");
        }
        assert_eq!(recorded(&lease_file), mapping);
        assert_eq!(place.join("seal.key").exists(), out.path().ends_with("here"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h_48_an_import_that_is_cut_off_and_repeated_ends_as_if_it_was_not_and_an_export_gives_all_back() {
    if !is_there("h_48") {
        return;
    }
    let world = World::new(3).await;
    let state = world.dir.path().join("state");
    for _ in 0..2 {
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{output:#}");
    }
    let good = run_ids(&state);
    let files = StateDir::new(state.clone());
    let (repo, day) = (RepoName::parse("demo/shop").unwrap(), Cell::Spend("2026-11-24".parse().unwrap()));
    let grant = Cell::Approval { repo: repo.clone(), proposal_hash: "ab12".into() };
    files.store().put(&day, Some("{\"spent\":1}")).unwrap();
    files.store().put(&grant, Some("{\"an\":\"approval\"}")).unwrap();
    // A run whose journal is not its own.
    let broken = good[0].replace(&good[0][..8], "00000000");
    for (name, _) in hashes(&runs(&state).join(&good[0])) {
        let target = runs(&state).join(&broken).join(&name);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(runs(&state).join(&good[0]).join(&name), target).unwrap();
    }
    let server = Server::start();
    make_streams(&server.url(), 1);

    // Only said.
    clustered(&world, &server.url());
    let (code, said) = document(&world, "cluster.toml", &state, &["cluster", "import", "--dry-run"]).await;
    assert_eq!(
        (code, &said["runs"], &said["left"].as_array().unwrap().len()),
        (Some(0), &json!(2), &1),
        "{said:#}"
    );
    assert!(connect(&server.url()).seal_chains().unwrap().is_empty(), "nothing was written");

    cut_off(&world, &server).await;

    // While a daemon has the state directory, nothing is brought.
    clustered(&world, &server.url());
    let held = files.store().take(&LeaseKey::Daemon, "daemon", LASTS).unwrap();
    let refused = agentd(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("a daemon works with the state directory"),
        "{}",
        text(&refused.stderr)
    );
    drop(held);

    let (code, said) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!((code, &said["ok"], &said["seals"]), (Some(0), &json!(true), &json!(2)), "{said:#}");
    assert_eq!(said["left"][0]["what"], json!(format!("demo/shop {broken}")), "{said:#}");
    assert!(said["left"][0]["why"].as_str().unwrap().contains("is of another run"), "{said:#}");
    assert!(said["leases"] == json!(1), "{said:#}");
    // Again: nothing is left to do, and everything is as it was.
    let (code, again) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!(
        (code, &again["runs"], &again["runs_there_already"]),
        (Some(0), &json!(0), &json!(2)),
        "{again:#}"
    );
    assert_eq!((&again["cells"], &again["cells_kept"]), (&json!(0), &json!([])), "{again:#}");

    // It would be found beside the others, as nobody's.
    std::fs::remove_dir_all(runs(&state).join(&broken)).unwrap();

    // While a node works on an issue, nothing is taken out.
    let node = connect(&server.url());
    let key = LeaseKey::Issue { repo, file: "issue-7.json".into() };
    let lease = node.take(&key, "instance", LASTS).unwrap();
    let refused = agentd(&world, "cluster.toml", &state, &["cluster", "export", "out"]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("works on demo/shop#7"), "{}", text(&refused.stderr));
    lease.release().unwrap();
    drop(node);

    exported(&world, &state, &good, &[day, grant]).await;
    // And the work goes on there, without a cluster.
    let (code, output) =
        document(&world, "overlay.toml", &world.dir.path().join("here"), &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let last = run_ids(&world.dir.path().join("here")).pop().unwrap();
    let (code, verified) =
        document(&world, "overlay.toml", &world.dir.path().join("here"), &["runs", "verify", &last]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    world.assert_one_of_each();
    world.finish().await;
}

/// Otherwise a daemon that goes on there would do again what it does not remember.
#[tokio::test(flavor = "multi_thread")]
async fn h_48_what_was_heard_since_goes_along_in_both_directions_and_nothing_of_either_side_is_lost() {
    if !is_there("h_48_since") {
        return;
    }
    let world = World::new(0).await;
    let state = world.dir.path().join("state");
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let inbox = Cell::Inbox { repo: RepoName::parse("demo/shop").unwrap(), issue: 7.into() };
    let files = StateDir::new(state.clone());
    let in_files = || files.store().get(&inbox).unwrap().1.unwrap();
    let cluster = StateDir::on_nats("/nowhere".into(), connect(&server.url()));
    let in_store = || cluster.store().get(&inbox).unwrap().1.unwrap();
    let moved = async |args: &[&str]| {
        let (code, said) = document(&world, "cluster.toml", &state, &[&["cluster"], args].concat()).await;
        assert_eq!(said["cells_kept"], json!([]), "{said:#}");
        (code, said)
    };
    let out = ["export", state.to_str().unwrap()];
    files.store().put(&inbox, Some("{\"heard\":1}")).unwrap();
    assert_eq!(moved(&["import"]).await.0, Some(0));
    cluster.store().put(&inbox, Some("{\"heard\":2}")).unwrap();
    // A repeated import takes nothing back.
    assert_eq!((moved(&["import"]).await.0, in_store()), (Some(0), "{\"heard\":2}".to_owned()));
    assert_eq!((moved(&out).await.0, in_files()), (Some(0), "{\"heard\":2}".to_owned()));
    files.store().put(&inbox, Some("{\"heard\":3}")).unwrap();
    assert_eq!((moved(&["import"]).await.0, in_store()), (Some(0), "{\"heard\":3}".to_owned()));
    // Both went on.
    cluster.store().put(&inbox, Some("{\"heard\":4}")).unwrap();
    files.store().put(&inbox, Some("{\"heard\":5}")).unwrap();
    let (code, said) = moved(&out).await;
    assert_eq!((code, in_files()), (Some(1), "{\"heard\":5}".to_owned()), "{said:#}");
    assert!(said["problems"][0].as_str().unwrap().contains("something else is there already"), "{said:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_48_a_run_with_two_chains_is_named_with_both_of_its_heads_and_neither_is_changed() {
    if !is_there("h_48_two_chains") {
        return;
    }
    let world = World::new(1).await;
    let state = world.dir.path().join("state");
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let run = run_ids(&state).pop().unwrap();
    let server = Server::start();
    make_streams(&server.url(), 1);
    let subject = format!("agentd.test.log.demo.shop.{run}");
    let own = std::fs::read_to_string(runs(&state).join(&run).join("events.jsonl")).unwrap();
    let first = own.lines().next().unwrap();
    let other = format!("{first}\n{{\"somebody\":\"else\"}}\n");
    with_client(&server.url(), async |context| {
        context.publish(subject, other.clone().into()).await.unwrap().await.unwrap();
    });
    clustered(&world, &server.url());
    let (code, said) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!(code, Some(1), "{said:#}");
    let problem = said["problems"][0].as_str().unwrap();
    let head: Value = serde_json::from_str(own.lines().last().unwrap()).unwrap();
    assert!(problem.contains("two chains") && problem.contains(head["hash"].as_str().unwrap()), "{problem}");
    assert!(problem.contains("in the store with"), "{problem}");
    let there = StateDir::on_nats("/nowhere".into(), connect(&server.url()));
    let run = there.runs(None).unwrap().pop().unwrap();
    assert_eq!(there.store().log(&run).unwrap().read(0).unwrap().0, other.into_bytes());
    world.finish().await;
}

/// What is damaged stays where it is, and does not hold its issue back.
#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_damaged_run_was_left_out_of_the_move_is_worked_on_again() {
    if !is_there("damaged_run_left") {
        return;
    }
    let world = World::new(2).await;
    let state = world.dir.path().join("state");
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let journal = runs(&state).join(run_ids(&state).pop().unwrap()).join("events.jsonl");
    let whole = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &whole[..whole.len() / 2]).unwrap();
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let (_, said) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert!(
        said["left"].to_string().contains("events.jsonl") || said.to_string().contains("left"),
        "{said:#}"
    );
    let (code, output) = document(&world, "cluster.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{output:#}");
    assert_eq!(std::fs::read(&journal).unwrap(), whole[..whole.len() / 2], "it stays as it is");
    world.finish().await;
}
