//! What a program that is named by its path makes readable: itself and its own folder, never the home, agentd's state or the checkout.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::agents::bench::{fixer, journal, no_landlock, no_sandbox};
use crate::outside::solo::{calls, left, reports, run, solo};
use crate::outside::world::World;

/// What each of the private files says.
const MARK: &str = "q7-only-for-the-owner";
/// Places below the home in which a program may stand, and what must not be read from there.
const PRIVATE: &[&str] = &[
    "notes.txt",
    ".ssh/id_ed25519",
    ".aws/credentials",
    "state/seal-of-mine.txt",
    "shop/.git/private.txt",
    "shop/untracked.txt",
    "work/other/private.txt",
    "tools/deploy.key",
    "elsewhere/.ssh/config",
];

fn executable(place: &Path, text: &str) {
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    agentd::sys::files::write_public(place, text.as_bytes()).unwrap();
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Reads all that is private, then what stands beside a program of its own folder.
fn script(home: &Path) -> String {
    let tries: String = PRIVATE
        .iter()
        .map(|file| format!("cat '{}' >> found.txt 2>/dev/null\n", home.join(file).display()))
        .collect();
    format!(
        "#!/bin/sh\ncat >/dev/null\n{tries}cat \"$(dirname \"$(readlink -f \"$0\")\")/beside.txt\" > beside.txt 2>/dev/null\necho tried\n"
    )
}

async fn tried(mode: &str) {
    // The program as it is named, the file that it is, and whether its own folder is harmless.
    let cases = [
        ("fix.sh", "fix.sh", false),
        ("work/fix.sh", "work/fix.sh", false),
        ("shop/fix.sh", "shop/fix.sh", false),
        ("state/fix.sh", "state/fix.sh", false),
        ("elsewhere/fix.sh", "elsewhere/fix.sh", false),
        ("linked.sh", "tools/fix.sh", false),
        ("tools/fix.sh", "tools/fix.sh", true),
        ("links/fix.sh", "tools/fix.sh", true),
    ];
    let world = World::new(0).await;
    let home = world.dir.path().to_owned();
    for file in PRIVATE {
        world.write(file, MARK);
    }
    // A state directory that others can read is refused.
    std::fs::set_permissions(home.join("state"), std::fs::Permissions::from_mode(0o700)).unwrap();
    world.write("work/other/.git/HEAD", "ref: refs/heads/main\n");
    world.write("tools/beside.txt", "beside");
    let overlay = std::fs::read_to_string(home.join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{mode}\"\n"));
    for (named, file, is_harmless) in cases {
        executable(&home.join(file), &script(&home));
        if named != file {
            std::fs::create_dir_all(home.join(named).parent().unwrap()).unwrap();
            symlink(home.join(file), home.join(named)).unwrap();
        }
        fixer(&world, "command", &json!({"argv": [home.join(named)]}));
        let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert!(journal(&world, &output).contains("tried"), "{mode}: {named} did not run: {output:#}");
        let read = |name: &str| {
            std::fs::read_to_string(home.join("shop/.worktrees/issue-7").join(name)).unwrap_or_default()
        };
        assert_eq!(read("found.txt"), "", "{mode}: {named} read what is private");
        if is_harmless {
            assert_eq!(read("beside.txt"), "beside", "{mode}: {named} reads what stands beside it");
        }
        std::fs::remove_file(home.join(named)).unwrap();
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_shows_its_own_folder_alone_in_bubblewrap() {
    match no_sandbox() {
        Some(why) => eprintln!("skipped, there is no bubblewrap here: {why}"),
        None => tried("bubblewrap").await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_shows_its_own_folder_alone_in_landlock() {
    match no_landlock() {
        Some(why) => eprintln!("skipped: {why}"),
        None => tried("landlock").await,
    }
}

/// As for `sandbox.readable`: somebody who writes that means something else.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_to_read_the_whole_home_does_not_start() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no bubblewrap here: {why}");
        return;
    }
    let world = World::new(0).await;
    executable(&world.dir.path().join("tools/agent.sh"), "#!/bin/sh\n");
    for named in ["~/", "/", ".."] {
        let argv = [world.dir.path().join("tools/agent.sh")];
        fixer(&world, "command", &json!({"argv": argv, "readable": [named]}));
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!(
            (code, &output["stop_detail"]),
            (Some(4), &json!("config_invalid")),
            "{named}: {output:#}"
        );
        assert!(output.to_string().contains("program.readable names"), "{named}: {output:#}");
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_a_model_names_by_its_path_shows_nothing() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no bubblewrap here: {why}");
        return;
    }
    let policy =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"all\"\n";
    let named = calls(&[("run_command", json!({"argv": ["../../../tools/tell.sh"]}))]);
    let linked = "ln -s ../../../tools/tell.sh tell.sh; ls -l tell.sh";
    let made = calls(&[("run_command", json!({"argv": ["sh", "-c", linked]}))]);
    let by_link = calls(&[("run_command", json!({"argv": ["./tell.sh"]}))]);
    let done = reports("Done.", json!([]));
    let world = solo(vec![named, made, by_link, done], Some(policy), "").await;
    let home = world.dir.path().to_owned();
    executable(
        &home.join("tools/tell.sh"),
        "#!/bin/sh\ncat \"$(dirname \"$(readlink -f \"$0\")\")/private.txt\"\n",
    );
    world.write("tools/private.txt", MARK);
    let (_, output) = run(&world).await;
    let record = left(&world, "run.json").to_string();
    assert!(record.contains("tools/tell.sh") && record.contains("exit_code"), "{output:#}");
    assert!(!record.contains(MARK), "{record}");
    world.sim.shutdown().await;
}
