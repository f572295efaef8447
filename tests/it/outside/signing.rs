//! `commit.gpgSign`: a key that is not to be had is found out before a model is asked, and one that is there signs.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::solo::{calls, newest, reports, solo};
use super::world::{World, text};

async fn signs(more: &[(&str, &str)]) -> World {
    let write = json!({ "path": "lib/one.sh", "content": "echo new\n" });
    let replies = vec![calls(&[("write_file", write)]), reports("Written.", json!([]))];
    let world = solo(replies, None, "").await;
    for (key, value) in [("commit.gpgSign", "true")].iter().chain(more) {
        world.git(&world.shop(), &["config", "--global", key, value]).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_cannot_be_signed_is_found_out_before_anything_is_paid_for() {
    let world = signs(&[("gpg.program", "/bin/false")]).await;
    for args in [
        &["run", "--issue", "7", "--agent", "solo", "--dry-run"][..],
        &["run", "--issue", "7", "--agent", "solo"],
    ] {
        let (code, output) = world.json(args).await;
        let told = output.to_string();
        assert!(code == Some(1) && told.contains("could not be signed"), "{args:?}: {output:#}");
    }
    assert!(world.sim.model_requests().is_empty(), "no model was asked");
    assert!(!world.shop().join(".worktrees/issue-7").exists(), "nothing was begun");
    let (code, told) = world.json(&["doctor"]).await;
    assert!(code == Some(1) && told.to_string().contains("could not be signed"), "{told:#}");
    world.git(&world.shop(), &["config", "--global", "commit.gpgSign", "false"]).await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.finish().await;
}

/// Its trial is well, and then the agent of the key has gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_paid_for_and_could_not_be_signed_is_committed_later_without_a_model() {
    for later in ["resume", "label"] {
        let world = signs(&[]).await;
        let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
        world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
        let (program, times) = (world.dir.path().join("gpg"), world.dir.path().join("times"));
        let script = format!(
            "#!/bin/sh\necho >> {0}\n[ $(wc -l < {0}) = 2 ] && {{ echo 'gpg: no agent' >&2; exit 1; }}\ncat > /dev/null\n\
             printf '\\n[GNUPG:] SIG_CREATED \\n' >&2\n\
             printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n'\n",
            times.display()
        );
        std::fs::write(&program, &script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        world
            .git(&world.shop(), &["config", "--global", "gpg.program", &program.display().to_string()])
            .await;
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("git_error")), "{output:#}");
        assert!(output.to_string().contains("could not be signed"), "{output:#}");
        let told = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
        assert!(told.contains("commits and publishes it without asking the model"), "{told}");
        let asked = world.sim.model_requests().len();
        let (code, output) = if later == "resume" {
            world.json(&["runs", "resume", "latest"]).await
        } else {
            world.sim.add_label("demo/shop", 7, "agentd", "ada");
            world.json(&["daemon", "--once"]).await
        };
        assert_eq!(code, Some(0), "{later}: {output:#}");
        assert_eq!(world.sim.model_requests().len(), asked, "{later}: the work was done");
        let commit = world.git(&world.shop(), &["cat-file", "commit", "feature/issue-7"]).await;
        assert!(commit.contains("gpgsig -----BEGIN PGP SIGNATURE-----"), "{commit}");
        assert_eq!(world.sim.pulls("demo/shop").len(), 1);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_there_signs_what_is_pushed_and_its_trial_leaves_nothing() {
    let world = signs(&[("gpg.format", "ssh")]).await;
    let key = world.dir.path().join("signing");
    let mut keygen = std::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    if !keygen.status().is_ok_and(|made| made.success()) {
        eprintln!("skipped: there is no ssh-keygen");
        return;
    }
    let public = key.with_extension("pub");
    world.git(&world.shop(), &["config", "--global", "user.signingKey", &public.display().to_string()]).await;
    let loose = || {
        text(
            &std::process::Command::new("git")
                .args(["count-objects"])
                .current_dir(world.shop())
                .output()
                .unwrap()
                .stdout,
        )
    };
    let before = loose();
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--dry-run"]).await;
    assert_eq!((code, loose()), (Some(0), before), "{output:#}");
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let commit = world.git(&world.shop(), &["cat-file", "commit", "feature/issue-7"]).await;
    assert!(commit.contains("gpgsig -----BEGIN SSH SIGNATURE-----"), "{commit}");
    let (_, told) = world.json(&["doctor"]).await;
    assert!(told.to_string().contains("a commit can be signed"), "{told:#}");
    // The doctor's question to the model is not in the script.
    world.sim.shutdown().await;
}
