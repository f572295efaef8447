//! What a caged program may use, and the Cargo home that it downloads into.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use serde_json::{Value, json};

use super::bench::{fixer, journal, no_sandbox, script};
use crate::outside::world::{World, text};

fn overlaid(world: &World, from: &str, to: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    assert!(overlay.contains(from));
    world.write("overlay.toml", &overlay.replacen(from, to, 1));
}

fn record(world: &World, output: &Value) -> Value {
    let run = output["run_id"].as_str().unwrap();
    let path = world.dir.path().join("state/repos/demo/shop/runs").join(run).join("run.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_memory_and_files_end_where_the_configuration_says() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let limits = "[sandbox]\nmax_processes = 60\nmax_memory_mib = 200\nmax_file_mib = 5\nmax_open_files = 40\n\n[verify]";
    overlaid(&world, "[verify]", limits);
    let attack = "#!/bin/bash\ncat >/dev/null\n\
        dd if=/dev/zero of=large bs=1M count=50 2>/dev/null; echo \"file $(($(stat -c %s large) >> 20))\"; rm large\n\
        head -c 600000000 /dev/zero | tail -c 600000000 >/dev/null 2>&1 && echo 'memory all' || echo 'memory ended'\n\
        echo \"open $(bash -c 'for n in {10..99}; do eval \"exec $n</dev/null\" || break; echo .; done' 2>/dev/null | wc -l)\"\n\
        PATH=/usr/bin:$PATH perl -e '$n = 0; for (1..150) { my $p = fork(); last if !defined $p; if (!$p) { sleep 20; exit } $n++ } print \"processes $n\\n\"'\n";
    fixer(&world, "command", &json!({"argv": [script(&world, "use.sh", attack)]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let said = output["final_report"]["content"].as_str().unwrap_or_default();
    assert!(said.contains("file 5\n") && said.contains("memory ended"), "{output:#}");
    let number = |word: &str| -> u32 {
        let line = said.lines().find(|line| line.starts_with(word)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!((10..40).contains(&number("open ")), "{said}");
    let sandbox = &record(&world, &output)["sandbox"];
    assert_eq!(sandbox["name"], "bubblewrap", "{code:?} {sandbox}");
    if !sandbox["lacks"].to_string().contains("number of processes") {
        assert!((5..60).contains(&number("processes ")), "{said}");
    }
    world.finish().await;
}

/// Why agentd cannot make control groups of the newer kind here.
fn no_delegated_group() -> Option<String> {
    let root = Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        return Some("control groups are of the older kind here".to_owned());
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let place = root.join(own);
    let has = |file: &str| {
        let told = std::fs::read_to_string(place.join(file)).unwrap_or_default();
        told.split_whitespace().any(|word| word == "pids")
    };
    let trial = place.join("agentd-test-trial");
    let made = std::fs::create_dir(&trial).and_then(|()| std::fs::remove_dir(&trial));
    match made {
        Err(error) => Some(format!("the control group {} is not delegated: {error}", place.display())),
        Ok(()) if !has("cgroup.controllers") => {
            Some("the own control group does not count processes".to_owned())
        }
        Ok(()) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_group_of_the_newer_kind_is_delegated_it_counts_the_processes() {
    if let Some(why) = no_sandbox().or_else(no_delegated_group) {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new(0).await;
    overlaid(&world, "[verify]", "[sandbox]\nmax_processes = 60\n\n[verify]");
    let attack = "#!/bin/bash\ncat >/dev/null\n\
        PATH=/usr/bin:$PATH perl -e '$n = 0; for (1..150) { my $p = fork(); last if !defined $p; if (!$p) { sleep 20; exit } $n++ } print \"processes $n\\n\"'\n";
    fixer(&world, "command", &json!({"argv": [script(&world, "use.sh", attack)]}));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let said = output["final_report"]["content"].as_str().unwrap_or_default();
    let number = said.trim().rsplit(' ').next().and_then(|number| number.parse::<u32>().ok());
    assert!(number.is_some_and(|number| (5..60).contains(&number)), "{output:#}");
    let sandbox = &record(&world, &output)["sandbox"];
    assert!(!sandbox["lacks"].to_string().contains("number of processes"), "{sandbox}");
    world.finish().await;
}

/// Whether a command works, and what it says.
fn done(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| error.to_string())?;
    done.status.success().then_some(()).ok_or_else(|| text(&done.stderr))
}

/// A registry on loopback with one crate, and its address.
async fn registry(folder: &Path) -> Result<String, String> {
    let write = |path: &str, content: &str| {
        let path = folder.join(path);
        agentd::sys::files::create_dir(path.parent().unwrap()).unwrap();
        agentd::sys::files::write_public(&path, content.as_bytes()).unwrap();
    };
    let package = "[package]\nname = \"tiny-shop-dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
        description = \"x\"\nlicense = \"MIT\"\n[workspace]\n";
    write("dep/Cargo.toml", package);
    write("dep/src/lib.rs", "pub fn answer() -> u32 { 42 }\n");
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--no-verify", "--offline", "--allow-dirty", "--target-dir", "target"]);
    done(cargo.current_dir(folder.join("dep")).env_remove("CARGO_TARGET_DIR"))?;
    let packed = std::fs::read(folder.join("dep/target/package/tiny-shop-dep-0.1.0.crate")).unwrap();
    let sum = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&packed));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let config = json!({"dl": format!("http://{authority}/dl"), "api": null}).to_string();
    let index = json!({"name": "tiny-shop-dep", "vers": "0.1.0", "deps": [], "cksum": sum, "features": {}, "yanked": false});
    let (packed, index) = (Arc::new(packed), index.to_string());
    let app = Router::new().fallback(move |request: Request| {
        let answer = match request.uri().path() {
            "/index/config.json" => Some(config.clone().into_bytes()),
            "/index/ti/ny/tiny-shop-dep" => Some(index.clone().into_bytes()),
            path if path.starts_with("/dl/") => Some(packed.to_vec()),
            _ => None,
        };
        async move { answer.ok_or(http::StatusCode::NOT_FOUND) }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(authority)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verify_command_downloads_from_a_named_host_into_a_cargo_home_of_its_own() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = agentd::sys::sandbox::which("cargo".as_ref(), &path).is_none();
    if let Some(why) = no_sandbox().or_else(|| missing.then(|| "cargo is not installed".to_owned())) {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new(0).await;
    let own = world.dir.path().join("own-cargo-home");
    world.write("own-cargo-home/config.toml", "[net]\nretry = 0\n");
    world.write("own-cargo-home/credentials.toml", "[registry]\ntoken = \"canary-7f3a9c-secret\"\n");
    let authority = match registry(world.dir.path()).await {
        Ok(authority) => authority,
        Err(why) => {
            eprintln!("skipped, cargo cannot make a package here: {why}");
            return;
        }
    };
    let project = format!(
        "#!/bin/sh\ncat >/dev/null\nmkdir -p src .cargo\n\
         printf '[package]\\nname = \"shop\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\ntiny-shop-dep = \"0.1\"\\n[workspace]\\n' > Cargo.toml\n\
         printf '[source.crates-io]\\nreplace-with = \"near\"\\n[source.near]\\nregistry = \"sparse+http://{authority}/index/\"\\n' > .cargo/config.toml\n\
         printf '#[test]\\nfn it_is() {{ assert_eq!(tiny_shop_dep::answer(), 42); }}\\n' > src/lib.rs\n\
         echo target > .gitignore\ncat $CARGO_HOME/credentials.toml {}/credentials.toml | tr a-z n-za-m\necho made\n",
        own.display()
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "project.sh", &project)]}));
    let agent = std::fs::read_to_string(world.shop().join(".agent/fixer/agent.json")).unwrap();
    let network = format!(
        "\"permissionMode\":\"acceptEdits\",\"sandbox\":{{\"network\":{{\"trustedDomains\":[\"{authority}\"]}}}}"
    );
    world.write(
        "shop/.agent/fixer/agent.json",
        &agent.replace("\"permissionMode\":\"acceptEdits\"", &network),
    );
    overlaid(&world, "[[\"sh\", \"tests/run.sh\"]]", "[[\"cargo\", \"test\"]]");
    let rustup = std::env::var_os("RUSTUP_HOME").map(std::path::PathBuf::from);
    let rustup = rustup.or_else(|| Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".rustup")));
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    command.env("CARGO_HOME", &own).env("RUSTUP_HOME", rustup.unwrap());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let output: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let all = journal(&world, &output);
    assert!(all.contains("Downloaded tiny-shop-dep") && all.contains("test it_is ... ok"), "{all}");
    assert_eq!(
        (ended.status.code(), output["stop_reason"].as_str()),
        (Some(0), Some("OBJECTIVE_ACHIEVED")),
        "{output:#}"
    );
    assert!(!all.contains("pnanel-7s3n9p") && !all.contains("canary-7f3a9c"), "{all}");
    let mut left: Vec<_> = std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["config.toml", "credentials.toml"], "the user's own Cargo home stays as it was");
    world.finish().await;
}
