//! A store behind TLS: certificates of both sides and a key, and nothing said to a server that cannot show who it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::command::Desk;
use super::moving::{document, run_ids};
use super::server::{Server, is_there};
use crate::outside::world::World;

/// A certificate and its key.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

fn openssl(args: &[&str]) {
    let done = Command::new("openssl").args(args).output().expect("openssl is needed to make certificates");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Somebody who signs.
fn authority(folder: &Path, name: &str) -> Pair {
    let pair =
        Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) };
    let (certificate, key) = (pair.certificate.to_str().unwrap(), pair.key.to_str().unwrap());
    let subject = format!("/CN={name}");
    let begin =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    openssl(&[&begin[..], &["-subj", &subject, "-keyout", key, "-out", certificate]].concat());
    pair
}

/// One whom the authority signed for this host.
fn signed(folder: &Path, by: &Pair, name: &str) -> Pair {
    let pair = authority(folder, name);
    let request = folder.join(format!("{name}.csr"));
    let extensions = folder.join(format!("{name}.ext"));
    std::fs::write(
        &extensions,
        "basicConstraints = CA:FALSE\nsubjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth, clientAuth\n",
    )
    .unwrap();
    let [request, extensions] = [&request, &extensions].map(|path| path.to_str().unwrap());
    let subject = format!("/CN={name}");
    openssl(&["req", "-new", "-key", pair.key.to_str().unwrap(), "-subj", &subject, "-out", request]);
    let [ca, ca_key] = [&by.certificate, &by.key].map(|path| path.to_str().unwrap());
    let begin =
        ["x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2"];
    openssl(&[&begin[..], &["-extfile", extensions, "-out", pair.certificate.to_str().unwrap()]].concat());
    pair
}

/// Lines of `[cluster]` for a server behind TLS.
fn lines(port: u16, ca: &Path, own: Option<&Pair>) -> String {
    let mut lines = format!(
        "store = \"nats\"\nurls = [\"tls://127.0.0.1:{port}\"]\nreplicas = 1\ntls_ca = \"{}\"\nnkey = \"${{SEED}}\"\n",
        ca.display()
    );
    if let Some(own) = own {
        lines +=
            &format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n", own.certificate.display(), own.key.display());
    }
    lines
}

/// A server that shows a certificate, asks for one, and for a key.
fn server(ca: &Pair, own: &Pair, user: &nkeys::KeyPair) -> Server {
    Server::with(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n\
         accounts {{ A {{ jetstream: enabled, users: [ {{ nkey: {} }} ] }} }}",
        own.certificate.display(),
        own.key.display(),
        ca.certificate.display(),
        user.public_key()
    ))
}

#[track_caller]
fn cannot_connect(desk: &Desk, seed: &str, why: &str) {
    let found = desk.doctor(&["--create"], &[("SEED", seed)]);
    let told: Vec<&String> =
        found.iter().filter(|one| one.starts_with("problem servers: cannot connect")).collect();
    assert!(told.len() == 1 && told[0].contains(why), "nothing says {why:?}: {found:#?}");
    assert!(!found.iter().any(|one| one.contains("was made")), "{found:#?}");
}

#[test]
fn k_013_a_server_that_cannot_show_who_it_is_or_does_not_know_the_node_is_refused() {
    if !is_there("k_013_tls") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (ca, other) = (authority(folder.path(), "ca"), authority(folder.path(), "other"));
    let (there, here) = (signed(folder.path(), &ca, "there"), signed(folder.path(), &ca, "here"));
    let stranger = signed(folder.path(), &other, "stranger");
    let user = nkeys::KeyPair::new_user();
    let (seed, wrong) = (user.seed().unwrap(), nkeys::KeyPair::new_user().seed().unwrap());
    let server = server(&ca, &there, &user);
    let desk = Desk::new(&lines(server.port, &other.certificate, Some(&here)));
    cannot_connect(
        &desk,
        &seed,
        "UnknownIssuer; the server does not show a certificate that `cluster.tls_ca`",
    );
    desk.configure(&lines(server.port, &ca.certificate, None));
    cannot_connect(
        &desk,
        &seed,
        "the server does not take the certificate of this node (`cluster.tls_cert`)",
    );
    desk.configure(&lines(server.port, &ca.certificate, Some(&stranger)));
    cannot_connect(
        &desk,
        &seed,
        "the server does not take the certificate of this node (`cluster.tls_cert`)",
    );
    desk.configure(&lines(server.port, &ca.certificate, Some(&here)));
    cannot_connect(&desk, &wrong, "uthorization");
    // One without TLS gets nothing in plain words, although it would take them.
    let plain = Server::start();
    desk.configure(&lines(plain.port, &ca.certificate, Some(&here)));
    cannot_connect(&desk, &seed, "it does not begin with TLS, and gets nothing in the open");
    // All is as it has to be.
    desk.configure(&lines(server.port, &ca.certificate, Some(&here)));
    let made = desk.doctor(&["--create"], &[("SEED", &seed)]);
    let has = |begins: &str| made.iter().any(|one| one.starts_with(begins));
    assert!(has("ok servers: ") && has("ok encryption: ") && has("ok stream: "), "{made:#?}");
    assert!(!has("problem"), "{made:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn k_013_a_run_works_behind_tls_with_certificates_of_both_sides_and_a_key() {
    if !is_there("k_013_run") {
        return;
    }
    let world = World::new(1).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(folder.path(), "ca");
    let (there, here) = (signed(folder.path(), &ca, "there"), signed(folder.path(), &ca, "here"));
    let user = nkeys::KeyPair::new_user();
    let server = server(&ca, &there, &user);
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let cluster = lines(server.port, &ca.certificate, Some(&here));
    let cluster = format!("[cluster]\nname = \"test\"\nnode = \"here\"\nlease = \"3s\"\n{cluster}");
    world.write(".agentd.env", &format!("SEED={}\n", user.seed().unwrap()));
    world.write("cluster.toml", &format!("{overlay}\n{cluster}"));
    let (state, bare) = (world.dir.path().join("state"), world.dir.path().join("bare"));
    let (code, made) = document(&world, "cluster.toml", &state, &["cluster", "doctor", "--create"]).await;
    assert_eq!(code, Some(0), "{made:#}");
    let (code, output) = document(&world, "cluster.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let run = run_ids(&state).pop().unwrap();
    let (code, verified) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
    assert_eq!((code, &verified["ok"]), (Some(0), &json!(true)), "{verified:#}");
    world.finish().await;
}
