//! Places in which nothing can be written: it is said before a run, and no issue pays for it.

use std::path::{Path, PathBuf};

use agentd::sim::IssueFile;
use serde_json::{Value, json};

use super::daemons::{Running, until_or};
use super::doctor::answers;
use super::interruptions::SmallDisk;
use super::world::{GREEN, World, text};

/// A place in a folder in which not even root can make something.
#[cfg(target_os = "linux")]
const NOWHERE: &str = "/proc/agentd-nowhere";

/// Three issues, and a model that answers doctor.
async fn world() -> World {
    let world = World::of(0, |scenario| {
        scenario.model.replies.push(answers());
        let issues = &mut scenario.repositories[0].issues;
        let seven = issues[0].clone();
        issues.push(IssueFile { number: Some(8), title: "Eight".to_owned(), ..seven.clone() });
        issues.push(IssueFile { number: Some(12), title: "Twelve".to_owned(), ..seven });
    })
    .await;
    world.verify(GREEN);
    world
}

fn lay_over(world: &World, more: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{more}\n"));
}

fn problems<'a>(told: &'a Value, what: &str) -> Vec<&'a Value> {
    let findings = told["findings"].as_array().unwrap().iter();
    findings.filter(|one| one["what"] == what && one["state"] == "problem").collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn doctor_tries_to_write_where_worktrees_are_made() {
    let world = world().await;
    std::os::unix::fs::symlink("/proc", world.shop().join(".worktrees")).unwrap();
    let (code, told) = world.json(&["doctor"]).await;
    let found = problems(&told, "worktrees");
    assert_eq!((code, found.len()), (Some(1), 1), "{told:#}");
    assert!(found[0]["told"].as_str().unwrap().contains("no worktree can be made in"), "{told:#}");
    assert!(found[0]["remedy"].as_str().unwrap().contains("worktree.root"), "{told:#}");
    world.finish().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn where_no_worktree_can_be_made_two_issues_hear_of_it_and_the_others_wait() {
    let world = world().await;
    lay_over(&world, "[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = 1\n");
    // On a disk that has room, where git is to note its worktrees.
    std::os::unix::fs::symlink(NOWHERE, world.shop().join(".git/worktrees")).unwrap();
    for number in [7, 8, 12] {
        world.sim.add_label("demo/shop", number, "agentd", "ada");
    }
    let daemon = Running::start(&world, &[]);
    let labels = |number| world.sim.issue("demo/shop", number).unwrap().labels;
    let failed =
        || [7, 8, 12].into_iter().filter(|number| labels(*number).contains(&"agentd:failed".to_owned()));
    until_or("two have failed", || failed().count() >= 2, || format!("{:?}", labels(7))).await;
    let third = [7, 8, 12].into_iter().find(|number| !failed().any(|failed| failed == *number)).unwrap();
    let waits = async || {
        let (_, why) = world.json(&["why", &third.to_string()]).await;
        let found = why["rules"].as_array().unwrap().iter().any(|rule| rule["code"] == "host_not_ready");
        (found, why)
    };
    let mut last = Value::Null;
    for _ in 0..60 {
        let (found, why) = waits().await;
        last = why;
        if found {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
    assert!(last.to_string().contains("host_not_ready"), "{last:#}");
    assert_eq!(failed().count(), 2, "nobody took the third one up");
    assert!(labels(third).contains(&"agentd".to_owned()), "{:?}", labels(third));
    daemon.stop().await;
    world.finish().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_that_cannot_be_written_or_is_of_a_later_version_is_named() {
    let world = world().await;
    let mut command = world.command_in(&["--json", "doctor"]);
    command.env("AGENTD_STATE_DIR", NOWHERE);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let found = problems(&told, "state");
    assert_eq!(found.len(), 1, "{told:#}");
    assert!(found[0]["remedy"].as_str().unwrap().contains("--state-dir"), "{told:#}");

    world
        .write("state/daemon/state.json", &json!({ "schema_version": "agentd.daemon_state.v9" }).to_string());
    use std::os::unix::fs::PermissionsExt as _;
    let state = world.dir.path().join("state");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (code, told) = world.json(&["doctor"]).await;
    let found = problems(&told, "state");
    assert_eq!((code, found.len()), (Some(1), 1), "{told:#}");
    assert!(found[0]["told"].as_str().unwrap().contains("agentd.daemon_state.v9"), "{told:#}");
    world.finish().await;
}

/// What a run that was refused tells on a terminal.
async fn refused(world: &World) -> String {
    let mut command = world.command_in(&["run", "--issue", "7"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(!done.status.success(), "{}", text(&done.stdout));
    text(&done.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_write_a_lease_or_a_journal_hears_where_to_look() {
    let world = world().await;
    // Where its folder is to be there is a file.
    world.write("shop/.git/agentd", "x\n");
    let told = refused(&world).await;
    assert!(told.contains("the repository's git directory") && !told.contains("--state-dir"), "{told}");
    std::fs::remove_file(world.shop().join(".git/agentd")).unwrap();
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    if runs.exists() {
        std::fs::remove_dir_all(&runs).unwrap();
    }
    world.write("state/repos/demo/shop/runs", "x\n");
    let told = refused(&world).await;
    assert!(told.contains("the state directory can be written") && told.contains("--state-dir"), "{told}");
    world.finish().await;
}

/// What it leaves is the user's own from then on, and is never written again.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_init_leaves_no_file_that_is_not_whole() {
    let world = World::new(0).await;
    let other = world.dir.path().join("other");
    std::fs::create_dir_all(other.join(".agent")).unwrap();
    world.git(&other, &["init", "-q"]).await;
    let Some(disk) = SmallDisk::at(&other.join(".agent"), 8) else { return world.finish().await };
    let init = || {
        let mut command = world.command(&["init"]);
        command.current_dir(&other).output().unwrap()
    };
    let done = init();
    let told = text(&done.stderr);
    assert!(done.status.code() == Some(1) && told.contains("space"), "{told}");
    disk.grows_to(4096);
    let done = init();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let told = text(&done.stdout);
    assert!(told.contains("kept") && told.contains("wrote"), "{told}");
    // The same as where there was room from the start.
    let third = world.dir.path().join("third");
    std::fs::create_dir(&third).unwrap();
    world.git(&third, &["init", "-q"]).await;
    assert!(world.command(&["init"]).current_dir(&third).status().unwrap().success());
    let written = files_below(&third.join(".agent"));
    assert!(written.len() > 5, "{written:?}");
    for path in written {
        let name = path.strip_prefix(&third).unwrap();
        let (whole, here) = (std::fs::read(&path).unwrap(), std::fs::read(other.join(name)));
        assert!(here.is_ok_and(|here| here == whole), "{} is not whole", name.display());
    }
    drop(disk);
    world.finish().await;
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_below(&path)),
            path => found.push(path),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_record_has_no_room_names_no_file_that_is_not_there_and_says_what_helps() {
    let world = World::new(1).await;
    let state = world.dir.path().join("small");
    std::fs::create_dir(&state).unwrap();
    let Some(disk) = SmallDisk::at(&state, 64) else { return world.finish().await };
    let state_dir = state.display().to_string();
    let (_, planned) = world.json(&["--state-dir", &state_dir, "run", "--issue", "7", "--dry-run"]).await;
    assert!(planned["warnings"].to_string().contains("have to stay free for records"), "{planned:#}");
    let mut command = world.command_in(&["--state-dir", &state_dir, "run", "--issue", "7"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.code() == Some(1) && out.contains("output_write_failed"), "{out}{said}");
    assert!(said.contains("have to stay free for records"), "{said}");
    assert!(out.contains("Make room"), "{out}");
    let report = out.lines().find_map(|line| line.trim().strip_prefix("Report"));
    assert!(report.is_none_or(|path| Path::new(path.trim()).is_file()), "{out}");
    // For programs, too.
    let (code, output) = world.json(&["--state-dir", &state_dir, "run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("output_write_failed")), "{output:#}");
    let run = state.join("repos/demo/shop/runs").join(output["run_id"].as_str().unwrap());
    let detail = &output["error"]["detail_ref"];
    assert!(detail.is_null() || run.join("run.json").is_file(), "{output:#}");
    drop(disk);
    world.finish().await;
}
