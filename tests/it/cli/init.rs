//! `agentd init`, from outside: what it writes, what it leaves as it is, and what it says comes next.

use super::*;

#[test]
fn init_writes_what_can_be_used_and_overwrites_nothing() {
    let dir = repository();
    let done = agentd(dir.path(), &["init", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(!out(&done).contains("sentinel-value"));
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!((told["written"].as_array().unwrap().len(), told["kept"].as_array().unwrap().len()), (16, 0));
    let folder = dir.path().join(".agent");
    let text = std::fs::read_to_string(folder.join("agentd.toml")).unwrap();
    let named = text.lines().next().unwrap().strip_prefix("#:schema ").unwrap();
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(named)).unwrap()).unwrap();
    let values = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
    assert!(jsonschema::is_valid(&schema, &values), "what init writes fits the schema that it names");

    let env = Env::new(dir.path(), [("GITHUB_TOKEN", "t"), ("ANTHROPIC_API_KEY", "k")]);
    let request = Request {
        explicit: None,
        base: dir.path(),
        repo: None,
        agent: None,
        flags: &[],
        entry: None,
        env: &env,
    };
    let config = Config::load(request).unwrap();
    let entry = &config.repositories[0];
    assert_eq!(entry.name.as_ref().unwrap().to_string(), "octo/cat");
    assert_eq!((entry.origin_branch.as_deref(), entry.agent.as_str()), (Some("trunk"), "resolver"));
    assert_eq!(config.verify.commands, [["cargo", "test"]]);
    config.session().unwrap();
    config.provider("anthropic").unwrap();
    let policy = PolicySource::read(&dir.path().join(&config.policy.files[0])).unwrap();
    let rules = read_policies(&[policy]).unwrap();
    assert!(rules.covers(ProposalKind::Tool) && rules.covers(ProposalKind::Handoff));

    file(dir.path(), ".agent/policy.toml", "# mine\n");
    let again = agentd(dir.path(), &["init"]);
    assert!(
        out(&again).contains("kept   .agent/policy.toml") && !out(&again).contains("wrote"),
        "{}",
        out(&again)
    );
    assert_eq!(std::fs::read_to_string(dir.path().join(".agent/policy.toml")).unwrap(), "# mine\n");
}

#[test]
fn init_without_remote_and_tests_says_what_is_left_to_do() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(agentd(dir.path(), &["init"]).status.code(), Some(4), "not a repository");
    git(dir.path(), &["init", "-q"]);
    let done = agentd(dir.path(), &["init"]);
    for part in ["There is no remote", "origin_branch", "verify.commands", "git commit -m agentd"] {
        assert!(out(&done).contains(part), "{}", out(&done));
    }
    assert!(!out(&done).contains("push"), "there is nobody to push to: {}", out(&done));
    let policy = PolicySource::read(&dir.path().join(".agent/policy.toml")).unwrap();
    read_policies(&[policy]).unwrap();
    let done = agentd(dir.path(), &["config", "explain", "verify"]);
    assert!(out(&done).contains("verify.commands  []"), "{}", out(&done));
}

#[test]
fn init_beside_a_configuration_asks_for_what_is_missing_there_and_names_its_files() {
    let dir = repository();
    file(
        dir.path(),
        "agentd.toml",
        "[[repositories]]\nname = \"octo/cat\"\npath = \".\"\norigin_branch = \"trunk\"\n\
         [[session.targets]]\nprovider = \"local\"\nmodel = \"m\"\n\
         [providers.local]\nkind = \"openai\"\napi_key = \"${LOCAL_KEY}\"\n",
    );
    let told = out(&agentd(dir.path(), &["init"]));
    for part in [
        "`verify.commands` in agentd.toml",
        "Add files = [\".agent/policy.toml\"] under [policy] in agentd.toml",
        "Put GITHUB_TOKEN into the environment; to read it from .agentd.env",
        "Put LOCAL_KEY into",
        " .agentd.env, which git ignores",
    ] {
        assert!(told.contains(part), "`{part}` is not in {told}");
    }
    assert!(!told.contains("origin_branch") && !told.contains("ANTHROPIC"), "{told}");
    file(dir.path(), ".agentd.env", "LOCAL_KEY=k\n");
    git(dir.path(), &["check-ignore", "-q", ".agentd.env"]);
    let told = out(&agentd(dir.path(), &["init"]));
    assert!(!told.contains("LOCAL_KEY"), "{told}");
}

#[test]
fn where_a_repository_has_no_main_checkout_init_writes_nothing_and_all_say_what_to_do() {
    let dir = repository();
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("project");
    let bare = project.join(".bare");
    std::fs::create_dir(&project).unwrap();
    git(dir.path(), &["clone", "-q", "--bare", ".", &bare.to_string_lossy()]);
    git(&bare, &["worktree", "add", "-q", "--detach", "../main"]);
    let says_so = |at: &Path, what: &str| {
        for args in [&["init"][..], &["doctor"], &["run", "--issue", "7"], &["worktrees", "list"]] {
            let done = agentd(at, args);
            let told = out(&done) + &err(&done);
            assert!(!done.status.success() && told.contains(what), "{args:?} in {}: {told}", at.display());
            assert!(told.contains("git clone URL FOLDER") && !told.contains("git init"), "{args:?}: {told}");
        }
        assert!(!at.join(".agent").exists());
    };
    says_so(&project.join("main"), "is a worktree of the bare repository");
    says_so(&bare, "is a bare repository");
    file(&project, ".git", "gitdir: ./.bare\n");
    says_so(&project.join("main"), "is a worktree of the bare repository");
    says_so(&project, "is a bare repository");
}

/// In a folder of the repository, in a linked worktree of it, in a place with blanks, and where its rules ignore what `init` writes.
#[test]
#[expect(clippy::disallowed_methods, reason = "a person's own shell")]
fn the_commit_that_init_prints_works_from_where_it_was_started() {
    for case in ["root", "folder", "linked", "ignored", "spaced"] {
        let dir = repository();
        let root = match case {
            "spaced" => dir.path().join("a b; c"),
            _ => dir.path().to_owned(),
        };
        if case == "spaced" {
            git(dir.path(), &["clone", "-q", ".", &root.to_string_lossy()]);
        }
        git(&root, &["config", "user.email", "a@b"]);
        git(&root, &["config", "user.name", "a"]);
        std::fs::create_dir(root.join("folder")).unwrap();
        git(&root, &["worktree", "add", "-q", "-b", "other", "linked"]);
        if case == "ignored" {
            file(&root, ".gitignore", "target/\nCargo.lock\n.agent\n");
        }
        let at = if matches!(case, "folder" | "linked" | "spaced") {
            root.join(if case == "linked" { "linked" } else { "folder" })
        } else {
            root.clone()
        };
        let done = agentd(&at, &["init"]);
        let told = out(&done);
        assert_eq!(told.contains("git ignores .agent/"), case == "ignored", "{told}");
        file(&root, ".agent/.agentd.env", "GITHUB_TOKEN=secret\n");
        let line = told.lines().find_map(|line| line.strip_prefix("Commit it: ")).unwrap();
        let (commits, push) = line.rsplit_once(" && ").unwrap();
        assert!(push.ends_with(" push"), "{line}");
        let ran = Command::new("sh").args(["-c", commits]).current_dir(&at).output().unwrap();
        assert!(ran.status.success(), "{case}: {line}: {}", err(&ran));
        let show = Command::new("git").args(["ls-files", ".agent"]).current_dir(&root).output().unwrap();
        let committed = out(&show);
        assert!(
            committed.contains(".agent/policy.toml") && committed.contains(".agent/resolver/agent.json"),
            "{case}: {committed}"
        );
        assert!(!committed.contains(".agentd.env"), "no secret is taken by force: {committed}");
    }
}

#[test]
fn init_finds_makefiles_of_each_name_and_python_of_old_and_refuses_a_file_in_its_place() {
    let verified = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q"]);
        for (name, text) in files {
            file(dir.path(), name, text);
        }
        agentd(dir.path(), &["init"]);
        let text = std::fs::read_to_string(dir.path().join(".agent/agentd.toml")).unwrap();
        toml::from_str::<toml::Table>(&text).unwrap()["verify"]["commands"].to_string()
    };
    let make = "[[\"make\", \"test\"]]";
    assert_eq!(verified(&[("GNUmakefile", "all test: build\n\ttrue\n")]), make);
    assert_eq!(verified(&[("makefile", "test:\n\ttrue\n")]), make);
    assert_eq!(
        verified(&[("Makefile", "test:\n\ttrue\n"), ("GNUmakefile", "all:\n")]),
        "[]",
        "make reads the other one"
    );
    assert_eq!(verified(&[("setup.py", "")]), "[[\".venv/bin/python\", \"-m\", \"pytest\"]]");

    let dir = repository();
    file(dir.path(), ".agent", "notes\n");
    let refused = agentd(dir.path(), &["init"]);
    assert_eq!(refused.status.code(), Some(4), "{}", err(&refused));
    assert!(err(&refused).contains(".agent is a file, and agentd has its folder there"), "{}", err(&refused));
}

#[test]
fn init_with_a_program_where_an_agent_is_there_says_that_it_changed_nothing() {
    let dir = repository();
    let first = out(&agentd(dir.path(), &["init"]));
    let told = out(&agentd(dir.path(), &["init", "--backend", "codex"]));
    let words = "agent.json was there and does not change: for codex write \"backend\": \"codex\"";
    assert!(told.contains(words) && !first.contains("was there and"), "{told}");
}

#[test]
fn init_takes_the_first_of_two_kinds_without_a_terminal_and_says_so() {
    let dir = repository();
    file(dir.path(), "Makefile", "test:\n\ttrue\n");
    file(dir.path(), ".gitignore", "/target\n*.log");
    let told = out(&agentd(dir.path(), &["init"]));
    for part in [
        "Taken for a project of the kind Cargo without a lock file; Make would fit as well.",
        "added  Cargo.lock to .gitignore",
        "Commit it: git add .agent .gitignore && git commit",
    ] {
        assert!(told.contains(part), "`{part}` is not in {told}");
    }
    let ignored = std::fs::read_to_string(dir.path().join(".gitignore")).unwrap();
    assert_eq!(ignored, "/target\n*.log\nCargo.lock\n", "what was there stays");
    let config = std::fs::read_to_string(dir.path().join(".agent/agentd.toml")).unwrap();
    assert!(config.contains("sweep_limit = 5") && config.contains("max_cost_per_day = 20.0"), "{config}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn init_names_a_program_that_is_missing_here() {
    let dir = repository();
    agentd::sys::files::remove_file(&dir.path().join("Cargo.toml")).unwrap();
    file(dir.path(), "justfile", "test:\n    true\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.arg("init").current_dir(dir.path()).env_clear().env("HOME", dir.path()).env("PATH", "/nowhere");
    let done = command.output().unwrap();
    assert!(out(&done).contains("`just` is not installed here"), "{}", out(&done));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn the_unit_keeps_the_flags_and_the_path_that_it_was_written_with() {
    let dir = repository();
    file(dir.path(), "mine.toml", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.args([
        "init",
        "--service",
        "--config",
        "mine.toml",
        "--state-dir",
        "/tmp/a state",
        "--repo",
        "octo/cat",
    ]);
    command
        .current_dir(dir.path())
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .env("PATH", "/one/bin:/two/bin");
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let units = std::fs::read_dir(dir.path().join("config/systemd/user")).unwrap();
    let unit = std::fs::read_to_string(units.flatten().next().unwrap().path()).unwrap();
    let config = dir.path().join("mine.toml");
    let flags =
        format!(" --config {} --state-dir \"/tmp/a state\" --repo octo/cat daemon\n", config.display());
    assert!(unit.contains(&flags), "{unit}");
    assert!(unit.contains("\nEnvironment=\"PATH=/one/bin:/two/bin\"\n"), "{unit}");
}

/// Nobody else would have what is there, and no definition there is read.
#[test]
fn init_writes_nothing_through_a_link_that_leads_out_of_the_repository() {
    let (dir, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(".agent")).unwrap();
    let done = agentd(dir.path(), &["init"]);
    assert_eq!(done.status.code(), Some(4), "{}", out(&done));
    for part in
        ["leads out of the repository", &elsewhere.path().display().to_string(), "Nothing was written"]
    {
        assert!(err(&done).contains(part), "`{part}` is not in {}", err(&done));
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    // One that stays inside is the repository's own.
    agentd::sys::files::remove_file(&dir.path().join(".agent")).unwrap();
    std::fs::create_dir(dir.path().join("agents")).unwrap();
    std::os::unix::fs::symlink("agents", dir.path().join(".agent")).unwrap();
    let done = agentd(dir.path(), &["init"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
}
