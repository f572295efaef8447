//! Tools of the user's managers work in the sandbox, and what stands beside them stays hidden.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::agents::bench::{no_landlock, no_sandbox};
use crate::outside::solo::{calls, left, reports, solo};
use crate::outside::world::{World, text};

const EVERYTHING: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"all\"\n";

/// Shims as the managers write them: each leads to a program elsewhere below the home.
const SHIMS: &[(&str, &str, &str)] = &[
    (
        ".pyenv/shims/of-pyenv",
        "#!/bin/sh\nexec \"$PYENV_ROOT/libexec/pyenv\" exec of-pyenv\n",
        ".pyenv/versions/3.12/bin/of-pyenv",
    ),
    (".nvm/versions/node/v22/bin/of-nvm", "#!/bin/sh\nexec ../nothing\n", ""),
    (
        ".asdf/shims/of-asdf",
        "#!/bin/sh\nexec \"$ASDF_DATA_DIR/installs/tool/$(sed -n 's/^tool //p' \"$HOME/.tool-versions\")/bin/of-asdf\"\n",
        ".asdf/installs/tool/1.2/bin/of-asdf",
    ),
    (
        ".local/share/mise/shims/of-mise",
        "#!/bin/sh\ngrep -q tool \"$HOME/.config/mise/config.toml\" && exec \"$MISE_DATA_DIR/installs/tool/1/bin/of-mise\"\n",
        ".local/share/mise/installs/tool/1/bin/of-mise",
    ),
    (
        ".cargo/bin/of-rustup",
        "#!/bin/sh\nexec \"$RUSTUP_HOME/toolchains/stable/bin/of-rustup\"\n",
        ".rustup/toolchains/stable/bin/of-rustup",
    ),
    (
        ".local/bin/of-local",
        "#!/bin/sh\nexec \"$PYTHONUSERBASE/share/pipx/venvs/tool/bin/of-local\"\n",
        ".local/share/pipx/venvs/tool/bin/of-local",
    ),
    (".more/bin/of-more", "#!/bin/sh\nexec \"$(dirname \"$0\")/../inner/of-more\"\n", ".more/inner/of-more"),
];

/// Credentials in those folders and beside them.
const SECRETS: &[&str] = &[
    ".netrc",
    ".npmrc",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".config/mise/config.toml",
    ".local/share/keyrings/login.keyring",
    ".local/share/uv/credentials/credentials.toml",
    ".local/state/tool/token",
    ".cargo/credentials.toml",
    ".nvm/versions/node/v22/etc/npmrc",
    ".pyenv/versions/3.12/pip.conf",
    ".pyenv/.git/config",
    ".asdf/plugins/tool/.env",
    ".local/share/mise/installs/tool/1/auth.json",
    ".local/share/pipx/venvs/tool/pip.conf",
    ".more/deploy.key",
];
const MARK: &str = "q7-only-for-the-owner";

fn executable(world: &World, path: &str, text: &str) {
    world.write(path, text);
    let place = world.dir.path().join(path);
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What `run_command` answered, in order.
fn answers(world: &World) -> Vec<String> {
    let record = left(world, "run.json");
    let outputs = record["items"].as_array().unwrap().iter();
    let outputs = outputs.filter(|item| item["type"] == "tool_call_output_item");
    outputs.map(|item| item["output"].to_string()).collect()
}

async fn tried(mode: &str) {
    let command = |argv: Value| ("run_command", json!({ "argv": argv }));
    let names: Vec<String> =
        SHIMS.iter().map(|(shim, ..)| shim.rsplit('/').next().unwrap().to_owned()).collect();
    let mut replies: Vec<_> = names.iter().map(|name| calls(&[command(json!(["sh", "-c", name]))])).collect();
    replies.push(calls(&[command(json!(["sh", "attack.sh"]))]));
    replies.push(reports("Done.", json!([])));
    let more = format!("[sandbox]\nmode = \"{mode}\"\nreadable = [\"~/.more\"]\n");
    let world = solo(replies, Some(EVERYTHING), &more).await;
    let home = world.dir.path().to_owned();
    for (shim, script, program) in SHIMS {
        let name = shim.rsplit('/').next().unwrap();
        match program.is_empty() {
            true => executable(&world, shim, &format!("#!/bin/sh\necho {name} runs\n")),
            false => {
                executable(&world, shim, script);
                executable(&world, program, &format!("#!/bin/sh\necho {name} runs\n"));
            }
        }
    }
    std::fs::create_dir_all(home.join(".nvm/versions/node/v22/lib")).unwrap();
    std::fs::create_dir_all(home.join(".local/lib/python3.12")).unwrap();
    executable(&world, ".pyenv/libexec/pyenv", "#!/bin/sh\nexec \"$PYENV_ROOT/versions/3.12/bin/$2\"\n");
    world.write(".tool-versions", "tool 1.2\n");
    let mut attack = String::new();
    for secret in SECRETS {
        let secret_text = match *secret {
            ".config/mise/config.toml" => format!("[env]\nTOKEN = \"{MARK}\"\n[tools]\ntool = \"1\"\n"),
            ".pyenv/.git/config" => format!("[remote \"origin\"]\n\turl = https://me:{MARK}@host/x.git\n"),
            _ => format!("token = {MARK}\n"),
        };
        world.write(secret, &secret_text);
        attack.push_str(&format!("cat '{}'\n", home.join(secret).display()));
    }
    attack.push_str("cat ~/.config/mise/config.toml; env\n");
    attack.push_str(&format!("grep -rs {} {}\necho tried\n", &MARK[..6], home.display()));
    // The worktree is made from what is committed; the script comes to it by `worktree.copy`.
    world.write("shop/attack.sh", &attack);
    let overlay = std::fs::read_to_string(home.join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[worktree]\ncopy = [\"attack.sh\"]\n"));
    let folders: Vec<String> =
        SHIMS.iter().map(|(shim, ..)| home.join(shim).parent().unwrap().display().to_string()).collect();
    let path = format!("{}:{}", folders.join(":"), std::env::var_os("PATH").unwrap().display());
    let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "solo"]);
    run.env("PATH", path);
    let done = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let told = answers(&world);
    for (name, answer) in names.iter().zip(&told) {
        assert!(answer.contains(&format!("{name} runs")), "{mode}: {name}: {answer}\n{}", text(&done.stderr));
    }
    let attacked = &told[names.len()];
    assert!(attacked.contains("tried"), "{mode}: {attacked}");
    assert!(!attacked.contains(MARK), "{mode}: {attacked}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_managers_work_in_bubblewrap_and_credentials_beside_them_are_hidden() {
    match no_sandbox() {
        Some(why) => eprintln!("skipped, there is no bubblewrap here: {why}"),
        None => tried("bubblewrap").await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_managers_work_in_landlock_and_credentials_beside_them_are_hidden() {
    match no_landlock() {
        Some(why) => eprintln!("skipped: {why}"),
        None => tried("landlock").await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_home_itself_is_nothing_that_can_be_asked_for() {
    for place in ["~/", "/", "relative/folder", "~/../x"] {
        let world = solo(Vec::new(), None, &format!("[sandbox]\nreadable = [\"{place}\"]\n")).await;
        let mut check = world.command_in(&["config", "check"]);
        let done = tokio::task::spawn_blocking(move || check.output().unwrap()).await.unwrap();
        assert_eq!(done.status.code(), Some(4), "{place}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains("sandbox.readable"), "{}", text(&done.stderr));
    }
}
