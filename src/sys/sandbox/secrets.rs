//! Finds secrets in the folders of the system, which are hidden: by place, by who may read them, and by content.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Hidden wherever they are.
const KNOWN: &[&str] = &[
    // Passwords and who may become whom.
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security",
    "/etc/netrc",
    "/etc/krb5.keytab",
    "/etc/ssh",
    // Keys of certificates.
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    // Networks.
    "/etc/NetworkManager",
    "/etc/netplan",
    "/etc/wpa_supplicant",
    "/etc/wpa_supplicant.conf",
    "/etc/ppp",
    "/etc/chatscripts",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.d",
    "/etc/ipsec.secrets",
    "/etc/swanctl",
    "/etc/cni",
    "/etc/snmp",
    // Machines of machines.
    "/etc/docker",
    "/etc/containers",
    "/etc/containerd",
    "/etc/crio",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/nomad.d",
    "/etc/consul.d",
    "/etc/vault.d",
    "/etc/cloud",
    "/etc/waagent.conf",
    "/etc/boto.cfg",
    "/etc/salt",
    "/etc/puppet",
    "/etc/puppetlabs",
    "/etc/chef",
    "/etc/ansible",
    "/etc/gitlab-runner",
    "/etc/gitlab",
    // What services are started with.
    "/etc/systemd",
    "/etc/default",
    "/etc/sysconfig",
    "/etc/environment",
    "/etc/fstab",
    "/etc/samba",
    "/etc/postfix",
    "/etc/exim4",
    "/etc/msmtprc",
    "/etc/cron.d",
    "/etc/crontab",
    "/etc/restic",
    "/etc/rclone.conf",
    // Of git and of agentd.
    "/etc/gitconfig",
    "/etc/agentd",
];
/// Folders that are looked through, and whether the content of files is as well.
const LOOKED_THROUGH: [(&str, bool); 3] = [("/etc", true), ("/usr/local/etc", true), ("/opt", false)];
/// Folders of nothing but what everyone has.
const PASSED_OVER: [&str; 4] =
    ["/etc/ssl/certs", "/etc/ca-certificates", "/etc/alternatives", "/etc/pki/ca-trust"];
/// Ends of names of files that are keys.
const KEYS: [&str; 7] = ["key", "p12", "pfx", "jks", "keytab", "kdbx", "ppk"];
/// The names of files and folders in a home in which tools keep credentials.
const CREDENTIALS: [&str; 20] = [
    ".netrc",
    "_netrc",
    ".npmrc",
    "npmrc",
    ".yarnrc.yml",
    ".pypirc",
    "pip.conf",
    "pypirc",
    ".git-credentials",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "auth.json",
    "auth.toml",
    "hosts.yml",
    "settings.toml.bak",
    ".env",
    ".ssh",
    ".aws",
    ".gnupg",
];
/// Folders of packages: published by others, with many files and with names that mean something else.
const PACKAGES: [&str; 5] = ["site-packages", "dist-packages", "node_modules", "gems", "registry"];
/// The number of entries that are visited. What lies deeper is left as it is.
const MOST_ENTRIES: usize = 30_000;
/// Behind the scheme of an address.
const ADDRESS: &str = "://";
/// Larger files are no configuration.
const LARGEST_READ: u64 = 128 << 10;

/// What is there of it.
pub(super) fn find() -> Vec<PathBuf> {
    let known = KNOWN.iter().map(PathBuf::from).filter(|place| place.exists());
    let mut found: Vec<PathBuf> = known.collect();
    let mut left = MOST_ENTRIES;
    for (folder, contents) in LOOKED_THROUGH {
        look_through(Path::new(folder), contents, &mut found, &mut left);
    }
    found
}

/// Credentials in a folder of tools: by name, keys by their suffix, and git configurations with a password in the URL
/// of a remote.
pub fn credentials_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([folder.to_owned()]);
    let mut left = MOST_ENTRIES;
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if left == 0 {
                return found;
            }
            left -= 1;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let Ok(kind) = entry.file_type() else { continue };
            let key = || {
                let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
                name.starts_with("id_") && end.is_empty() || KEYS.contains(&end.to_ascii_lowercase().as_str())
            };
            let of_git = || name == "config" && folder.ends_with(".git") && is_told(&path);
            if CREDENTIALS.contains(&name.as_str()) || (kind.is_file() && (key() || of_git())) {
                found.push(path);
            } else if kind.is_dir() && !PACKAGES.contains(&name.as_str()) {
                folders.push_back(path);
            }
        }
    }
    found
}

/// Whether a small file tells a secret.
fn is_told(path: &Path) -> bool {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_READ).read_to_end(&mut text));
    read.is_ok() && tells_a_secret(&text)
}

fn look_through(folder: &Path, contents: bool, found: &mut Vec<PathBuf>, left: &mut usize) {
    // What lies higher is looked at first.
    let mut folders = VecDeque::from([folder.to_owned()]);
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            if found.contains(&path) || PASSED_OVER.iter().any(|known| path == Path::new(known)) {
                continue;
            }
            if !is_for_everyone(&meta) || (meta.is_file() && is_secret(&path, &meta, contents)) {
                found.push(path);
            } else if meta.is_dir() {
                folders.push_back(path);
            }
        }
    }
}

/// Whether every user of the machine may read it. Other files are not for a sandbox either. A link counts as its
/// target.
#[cfg(unix)]
fn is_for_everyone(meta: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let needed = if meta.is_dir() { 0o005 } else { 0o004 };
    meta.is_symlink() || meta.permissions().mode() & needed == needed
}

#[cfg(not(unix))]
fn is_for_everyone(_meta: &Metadata) -> bool {
    true
}

fn is_secret(path: &Path, meta: &Metadata, contents: bool) -> bool {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    if KEYS.contains(&end.as_str()) {
        return true;
    }
    if !contents || meta.len() > LARGEST_READ {
        return false;
    }
    is_told(path)
}

/// A private key, the token of a registry, or an address with a password. One pass finds them, because every run looks.
fn tells_a_secret(text: &[u8]) -> bool {
    static WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "three short words make no automaton too large")]
        AhoCorasick::new(["PRIVATE KEY-----", "_authToken", ADDRESS]).expect("the words can be looked for")
    });
    WORDS.find_iter(text).any(|found| {
        let word = &text[found.range()];
        word != ADDRESS.as_bytes() || has_password(&text[found.end()..])
    })
}

/// Whether what follows a scheme is `name:password@host`.
fn has_password(address: &[u8]) -> bool {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/\"'<>".contains(byte);
    let authority = address.split(ends).next().unwrap_or_default();
    let user = authority.rsplitn(2, |byte| *byte == b'@').nth(1).unwrap_or_default();
    let password = user.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
    // A placeholder is none.
    !password.is_empty() && !password.contains(&b'$') && !password.contains(&b'%')
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::sys::files;

    #[test]
    fn what_is_not_for_everyone_or_tells_a_secret_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let file = |name: &str, text: &str, mode: u32| {
            files::create_dir(root.join(name).parent().unwrap()).unwrap();
            files::write_public(&root.join(name), text.as_bytes()).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        file("passwd", "root:x:0:0::/root:/bin/sh\n", 0o644);
        file("shadow", "root:!:1::::::\n", 0o640);
        file("server.key", "x", 0o644);
        file("web/cert.pem", "-----BEGIN CERTIFICATE-----\n", 0o644);
        file("web/both.pem", "-----BEGIN RSA PRIVATE KEY-----\n", 0o644);
        file("pip.conf", "[global]\nindex-url = https://me:s3cret@pypi.example/simple\n", 0o644);
        file("proxy.conf", "# http://user:$PASSWORD@proxy.example/ or http://proxy.example:3128/\n", 0o644);
        file("closed/inner", "x", 0o644);
        fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("nowhere", root.join("link")).unwrap();
        let (mut found, mut left) = (Vec::new(), 100);
        look_through(root, true, &mut found, &mut left);
        found.sort();
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["closed", "pip.conf", "server.key", "shadow", "web/both.pem"]);
    }
}
