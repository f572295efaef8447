//! Nodes whose clones have no contents of files that nobody works with (`clone = "blobless"`): a run goes on in another clone, which never had
//! what it began from.

use std::process::Command;

use super::assignments::third_visit;
use super::daemons::Daemon;
use super::server::{Server, is_there, make_streams};
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{until, until_or};
use crate::outside::reload::managed;
use crate::outside::world::{World, basic};

/// A node that manages its own clone of the repository.
fn node(world: &World, server: &Server, name: &str) -> Node {
    let dir = world.dir.path();
    let text = std::fs::read_to_string(dir.join("elsewhere/agentd.toml")).unwrap();
    let policy = dir.join("elsewhere/.agent/policy.toml");
    let config = text
        .replace("origin_branch = \"develop\"\n", "origin_branch = \"develop\"\nclone = \"blobless\"\n")
        .replace("[\".agent/policy.toml\"]", &format!("[{policy:?}]"));
    assert!(config.contains("blobless") && config.contains("elsewhere/.agent"), "{config}");
    let cluster = format!(
        "[cluster]\nstore = \"nats\"\nname = \"test\"\nnode = \"{name}\"\nurls = [\"{}\"]\nreplicas = 1\nlease = \"3s\"\n",
        server.url()
    );
    world.write(&format!("{name}.toml"), &format!("{config}\n{cluster}"));
    let place = dir.join(name);
    std::fs::create_dir_all(&place).unwrap();
    let (state, config) = (place.join("state"), dir.join(format!("{name}.toml")));
    Node { checkout: place, state, config, env: Vec::new() }
}

/// Whether a node's clone has a content, without asking the remote for it.
fn has(node: &Node, blob: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["cat-file", "-e", blob]).current_dir(node.state.join("repos/demo/shop/checkout"));
    git.env("GIT_NO_LAZY_FETCH", "1").output().unwrap().status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_046_a_run_goes_on_in_a_blobless_clone_that_never_had_the_files_that_it_began_from() {
    if !is_there("k_046_blobless") {
        return;
    }
    let world = managed(2).await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    let (a, b) = (node(&world, &server, "a"), node(&world, &server, "b"));
    let shop = world.shop();
    let began_from = world.git(&shop, &["rev-parse", "HEAD:lib/cart.sh"]).await.trim().to_owned();
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    third_visit(&world, &a, 20_000).await;
    // The origin branch goes on: the other's clone is made with another content of a file that the run has changed.
    let text = std::fs::read_to_string(shop.join("lib/cart.sh")).unwrap();
    world.write("shop/lib/cart.sh", &text.replace("# Cart functions.", "# The functions of a cart."));
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "words"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    let second = Daemon::start(&world, &b);
    until_or("the other stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    assert!(has(&a, &began_from) && !has(&b, &began_from), "what it began from is in the first clone alone");
    first.kill();
    let ended = || b.journal().into_iter().find(|line| line["kind"] == "run_ended").unwrap_or_default();
    let said = || format!("{}\n{:#}", [&a, &b].map(Node::said).join("\n---\n"), ended());
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan"].map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1], "no finished visit is made again: {}", said());
    until("its end is told", || b.said().contains("a run ended")).await;
    second.stop().await;
    world.finish().await;
}
