//! Remotes: asking, bringing, pushing with a lease, and what goes wrong on the way.

use agentd::git::{
    CommitMessage, GitError, Identity, PoolPlan, Population, PushOutcome, Remote, RemoteAuth, Worktree,
};
use agentd::sys::files;
use secrecy::SecretString;

use super::{Ground, branch};

async fn commit(worktree: &Worktree, file: &str) -> agentd::domain::name::CommitId {
    files::write_public(worktree.path().join(file).as_path(), b"text\n").unwrap();
    let message = CommitMessage { subject: file.into(), body: String::new(), trailers: Vec::new() };
    worktree.commit_all(&message, &Identity::agentd()).await.unwrap().unwrap()
}

#[tokio::test]
async fn fetching_touches_no_branch_no_tracking_ref_and_no_fetch_head() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let theirs = ground.push_from_elsewhere("develop", "theirs.txt").await;
    let before = (
        ground.main_state().await,
        ground.git(&["for-each-ref", "refs/heads", "refs/remotes", "refs/tags"]).await,
    );
    let checkout = ground.checkout().await;
    assert_eq!(checkout.remote_branch(&remote, &branch("develop")).await.unwrap().as_ref(), Some(&theirs));
    assert_eq!(checkout.remote_branch(&remote, &branch("nothing")).await.unwrap(), None);
    assert!(!checkout.has_commit(&theirs).await.unwrap());
    assert_eq!(checkout.fetch(&remote, &branch("nothing")).await.unwrap(), None);
    assert_eq!(checkout.fetch(&remote, &branch("develop")).await.unwrap().as_ref(), Some(&theirs));
    assert!(checkout.has_commit(&theirs).await.unwrap());
    let after = (
        ground.main_state().await,
        ground.git(&["for-each-ref", "refs/heads", "refs/remotes", "refs/tags"]).await,
    );
    assert_eq!(after, before);
}

#[tokio::test]
async fn many_who_fetch_a_branch_that_moved_have_it_all() {
    let ground = Ground::new().await;
    let (remote, checkout) = (ground.origin().await, ground.checkout().await);
    for round in 0..4 {
        let theirs = ground.push_from_elsewhere("develop", &format!("theirs-{round}.txt")).await;
        let fetches = (0..8).map(|_| async { checkout.fetch(&remote, &branch("develop")).await });
        for fetched in futures::future::join_all(fetches).await {
            assert_eq!(fetched.unwrap().as_ref(), Some(&theirs));
        }
    }
}

#[tokio::test]
async fn a_push_goes_forward_and_never_over_the_work_of_others() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let tree = ground.prepare_with(7, &remote).await.unwrap().worktree;
    let checkout = ground.checkout().await;
    let ours = branch("feature/issue-7");
    let first = commit(&tree, "first").await;
    assert_eq!(checkout.push(&remote, &ours, &first, None).await.unwrap(), PushOutcome::Pushed);
    assert_eq!(checkout.push(&remote, &ours, &first, Some(&first)).await.unwrap(), PushOutcome::UpToDate);
    let second = commit(&tree, "second").await;
    assert_eq!(checkout.push(&remote, &ours, &second, Some(&first)).await.unwrap(), PushOutcome::Pushed);
    assert_eq!(checkout.remote_branch(&remote, &ours).await.unwrap(), Some(second.clone()));
    // Not even our own last push is replaced by what was rewritten since.
    ground.git_in(tree.path(), &["commit", "-q", "--amend", "-m", "rewritten"]).await;
    let rewritten = tree.head().await.unwrap().unwrap();
    let refused = PushOutcome::NotFastForward { remote: second.clone() };
    assert_eq!(checkout.push(&remote, &ours, &rewritten, Some(&second)).await.unwrap(), refused);
    ground.git_in(tree.path(), &["reset", "-q", "--keep", second.as_str()]).await;
    // Nor someone else's commit, unseen or seen.
    let theirs = ground.push_from_elsewhere("feature/issue-7", "theirs").await;
    let third = commit(&tree, "third").await;
    let stale = PushOutcome::Stale { actual: Some(theirs.clone()) };
    assert_eq!(checkout.push(&remote, &ours, &third, Some(&second)).await.unwrap(), stale);
    assert_eq!(checkout.push(&remote, &ours, &third, None).await.unwrap(), stale, "expected to be absent");
    let refused = PushOutcome::NotFastForward { remote: theirs.clone() };
    assert!(!checkout.has_commit(&theirs).await.unwrap());
    assert_eq!(checkout.push(&remote, &ours, &third, Some(&theirs)).await.unwrap(), refused);
    checkout.fetch(&remote, &ours).await.unwrap();
    assert_eq!(checkout.push(&remote, &ours, &third, Some(&theirs)).await.unwrap(), refused);
    assert_eq!(checkout.remote_branch(&remote, &ours).await.unwrap(), Some(theirs));
}

#[tokio::test]
async fn d33_a_remote_that_refuses_is_quoted() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let tree = ground.prepare_with(7, &remote).await.unwrap().worktree;
    let made = commit(&tree, "first").await;
    let hook = ground.at("~/origin.git/hooks/pre-receive");
    files::write_public(hook.as_path(), b"#!/bin/sh\necho 'protected: ask an owner' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(hook.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let checkout = ground.checkout().await;
    let outcome = checkout.push(&remote, &branch("feature/issue-7"), &made, None).await.unwrap();
    let PushOutcome::Refused { detail, .. } = outcome else { panic!("{outcome:?}") };
    assert!(
        detail.contains("protected: ask an owner") && detail.contains("pre-receive hook declined"),
        "{detail}"
    );
    files::remove_file(hook.as_path()).unwrap();
    ground.git_in(&ground.at("~/origin.git"), &["branch", "feature", "main"]).await;
    let outcome = checkout.push(&remote, &branch("feature/issue-7"), &made, None).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Refused { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_remote_that_is_not_there_or_not_reachable_is_named() {
    let ground = Ground::new().await;
    let checkout = ground.checkout().await;
    let ask = async |url: &str| {
        let remote = Remote::new("origin", url, RemoteAuth::Token(SecretString::from("s3cret-token")));
        checkout.remote_branch(&remote, &branch("main")).await.unwrap_err()
    };
    let gone = ask(&ground.at("~/no.git").to_string()).await;
    assert!(matches!(gone, GitError::RemoteNotFound { .. }), "{gone}");
    let down = ask("http://user:hidden@127.0.0.1:9/o/n.git").await;
    assert!(matches!(down, GitError::Network { .. }), "{down}");
    assert!(
        !down.to_string().contains("hidden") && down.to_string().contains("http://127.0.0.1:9/o/n.git"),
        "{down}"
    );
    let odd = ask("ext::sh -c touch% /tmp/agentd-ext-ran").await;
    assert!(!std::path::Path::new("/tmp/agentd-ext-ran").exists(), "{odd}");
}

/// A remote that wants a token, as it would see requests.
async fn token_remote(status: &'static str) -> (String, std::sync::Arc<tokio::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/o/n.git", listener.local_addr().unwrap());
    let seen = std::sync::Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let log = std::sync::Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 8192];
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            log.lock().await.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
            let head = format!(
                "HTTP/1.1 {status}\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            drop(stream.write_all(head.as_bytes()).await);
        }
    });
    (url, seen)
}

#[tokio::test]
async fn d28_the_token_is_sent_first_and_a_refused_one_is_not_replaced_by_somebody_elses() {
    let ground = Ground::new().await;
    let (url, seen) = token_remote("401 Unauthorized").await;
    let helper = "[credential]\n\thelper = \"!f() { echo username=u; echo password=p; touch $HOME/helper-ran; }; f\"\n";
    ground.write("~/.gitconfig", &format!("[user]\n\tname = A\n\temail = a@b\n{helper}"));
    let remote = Remote::new("origin", &url, RemoteAuth::Token(SecretString::from("s3cret-token")));
    let error = ground.checkout().await.remote_branch(&remote, &branch("main")).await.unwrap_err();
    assert!(matches!(error, GitError::Auth { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    let requests = seen.lock().await;
    use base64::Engine as _;
    let pair = base64::engine::general_purpose::STANDARD.encode("x-access-token:s3cret-token");
    assert!(requests[0].contains(&format!("Authorization: Basic {pair}")), "{requests:?}");
    assert!(!ground.exists("~/helper-ran"));
    assert!(!ground.read(".git/config").contains("s3cret"));
}

#[tokio::test]
async fn the_users_own_credentials_are_used_where_no_token_is_given() {
    let ground = Ground::new().await;
    let (url, seen) = token_remote("401 Unauthorized").await;
    let helper = "[credential]\n\thelper = \"!f() { echo username=u; echo password=p; }; f\"\n";
    ground.write("~/.gitconfig", &format!("[user]\n\tname = A\n\temail = a@b\n{helper}"));
    let remote = Remote::new("origin", &url, RemoteAuth::User);
    let error = ground.checkout().await.remote_branch(&remote, &branch("main")).await.unwrap_err();
    assert!(matches!(error, GitError::Auth { .. }), "{error}");
    assert!(seen.lock().await.iter().any(|request| request.contains("Authorization: Basic dTpw")));
}

/// Git's side of a filter that runs on: what stands for whole files becomes the pointer, and the pointer the whole file.
const LFS: &str = r#"#!/usr/bin/env python3
import sys
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 6\n"
if sys.argv[1:] != ["filter-process"]:
    sys.exit(0)
read, write = sys.stdin.buffer, sys.stdout.buffer
def packets():
    found = []
    while True:
        size = read.read(4)
        if not size:
            sys.exit(0)
        if size == b"0000":
            return found
        found.append(read.read(int(size, 16) - 4))
def send(*lines):
    for line in lines:
        write.write(b"%04x" % (len(line) + 4) + line)
    write.write(b"0000")
    write.flush()
packets()
send(b"git-filter-server\n", b"version=2\n")
packets()
send(b"capability=clean\n", b"capability=smudge\n")
while True:
    command, content = packets()[0], b"".join(packets())
    send(b"status=success\n")
    smudges = command == b"command=smudge\n"
    send(b"whole\n" if smudges and content == POINTER else POINTER if content == b"whole\n" else content)
    send()
"#;

#[tokio::test]
async fn d91_files_that_were_left_as_pointers_are_filled_in_once_git_lfs_is_there() {
    if agentd::sys::sandbox::which("git-lfs".as_ref(), env!("PATH").as_ref()).is_some() {
        eprintln!("skipped: git-lfs is installed here");
        return;
    }
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    ground.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 6\n";
    for file in ["old.bin", "changed.bin"] {
        ground.write(file, pointer);
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "lfs"]).await;
    let stays = ["files under Git LFS stay pointers (git-lfs is not installed)"];
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert_eq!(ready.warnings, stays);
    ground.write(".worktrees/issue-7/changed.bin", "mine\n");
    // It is said each time.
    assert_eq!(ground.prepare_with(7, &remote).await.unwrap().warnings, stays);
    let root = ground.repo.join(".worktrees");
    let pool = PoolPlan { root, members: 1, population: Population::default() };
    assert_eq!(ground.checkout().await.fill_pool(&pool).await.unwrap().made, 1);
    ground.write("~/bin/git-lfs", LFS);
    let program = ground.at("~/bin/git-lfs");
    std::fs::set_permissions(program.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert_eq!(ready.warnings, [""; 0]);
    let read = |file: &str| ground.read(&format!(".worktrees/issue-7/{file}"));
    assert_eq!((read("old.bin"), read("changed.bin")), ("whole\n".to_owned(), "mine\n".to_owned()));
    let changes = ready.worktree.status().await.unwrap();
    assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["changed.bin"]);
    // The same with a worktree that was made before.
    ground.prepare_with(8, &remote).await.unwrap();
    assert_eq!(ground.checkout().await.fill_pool(&pool).await.unwrap().made, 1, "it was taken");
    assert_eq!(ground.read(".worktrees/issue-8/old.bin"), "whole\n");
}

#[tokio::test]
async fn d91_content_under_lfs_is_uploaded_before_the_push_and_its_absence_is_said() {
    if agentd::sys::sandbox::which("git-lfs".as_ref(), env!("PATH").as_ref()).is_some() {
        eprintln!("skipped: git-lfs is installed here");
        return;
    }
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    ground.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    ground.write("picture.bin", "version https://git-lfs.github.com/spec/v1\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "lfs"]).await;
    // As `git lfs install` writes it, of a program that is gone.
    let user = "[user]\n\tname = A\n\temail = a@b\n";
    let filter = "[filter \"lfs\"]\n\tsmudge = echo whole\n\tclean = false\n\trequired = true\n";
    ground.write("~/.gitconfig", &format!("{user}{filter}"));
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert_eq!(ready.warnings, ["files under Git LFS stay pointers (git-lfs is not installed)"]);
    let picture = std::fs::read_to_string(ready.worktree.path().join("picture.bin").as_path()).unwrap();
    assert!(picture.starts_with("version https://git-lfs"), "they do: {picture}");
    let made = commit(&ready.worktree, "first").await;
    ground.write("~/bin/git-lfs", "#!/bin/sh\necho \"$@\" >> $HOME/lfs-calls\n");
    let program = ground.at("~/bin/git-lfs");
    std::fs::set_permissions(program.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let pushed =
        ground.checkout().await.push(&remote, &branch("feature/issue-7"), &made, None).await.unwrap();
    assert_eq!(pushed, PushOutcome::Pushed);
    assert_eq!(ground.read("~/lfs-calls"), format!("push {} {made}\n", remote.url()));
}
