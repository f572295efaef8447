//! Configuration: sample files that must pass and must fail, layers, placeholders, explain, trust.

use std::path::{Path, PathBuf};

use agentd::config::{Config, ConfigError, Entry, Env, Flag, ProviderKind, Publish, Request, Source};
use agentd::domain::name::RepoName;
use secrecy::ExposeSecret as _;

/// A directory tree with `agentd.toml`s in it and the environment around it.
struct Place {
    dir: tempfile::TempDir,
    variables: Vec<(String, String)>,
    flags: Vec<Flag>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, variables: Vec::new(), flags: Vec::new() }
    }

    fn with(text: &str) -> Self {
        let place = Self::new();
        place.file("agentd.toml", text);
        place
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test's own file")]
        std::fs::write(&path, text).unwrap();
        path
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn env(&self) -> Env {
        Env::new(self.dir.path(), self.variables.clone())
    }

    fn load(&self) -> Result<Config, ConfigError> {
        self.load_with(None, None)
    }

    fn load_with(&self, explicit: Option<&Path>, agent: Option<&str>) -> Result<Config, ConfigError> {
        let env = self.env();
        let request = Request {
            explicit,
            base: self.dir.path(),
            repo: None,
            agent,
            flags: &self.flags,
            entry: None,
            env: &env,
        };
        Config::load(request)
    }

    /// An error as a person sees it, with the temporary directory taken out.
    fn told(&self, error: &ConfigError) -> String {
        let dir = self.dir.path().display().to_string();
        error.to_string().replace(&format!("{dir}/agentd.toml:"), "agentd.toml:").replace(&dir, "DIR")
    }
}

fn samples(kind: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config").join(kind);
    let mut samples: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    samples.sort();
    assert!(!samples.is_empty());
    samples
}

#[test]
fn sample_files_that_are_right_are_read_and_can_be_used() {
    for (name, text) in samples("valid") {
        let place = Place::with(&text).variable("TEST_TOKEN", "t").variable("TEST_KEY", "k");
        let config = place.load().unwrap_or_else(|error| panic!("{name}: {error}"));
        if text.contains("session.targets") {
            config.session().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn sample_files_that_are_wrong_say_what_where_and_what_to_do() {
    for (name, text) in samples("invalid") {
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#? ")).collect();
        let place = Place::with(&text);
        let error = match place.load() {
            Ok(config) => config.session().err().unwrap_or_else(|| panic!("{name} passed")),
            Err(error) => error,
        };
        let told = place.told(&error);
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told.len(), expected.len(), "{name}: {told:#?}");
        for (told, expected) in told.iter().zip(&expected) {
            assert!(told.starts_with(expected), "{name}:\n  told     {told}\n  expected {expected}");
        }
    }
}

#[test]
fn every_key_of_the_interface_reaches_the_resolved_value() {
    let (_, text) = samples("valid").into_iter().find(|(name, _)| name == "everything.toml").unwrap();
    let place = Place::with(&text).variable("TEST_TOKEN", "t0ken").variable("TEST_KEY", "k3y");
    let config = place.load().unwrap();
    let name = RepoName::parse("octo/cat").unwrap();
    let entry = config.repository(Some(&name), None);
    assert_eq!(entry.path.as_deref(), Some(place.dir.path()));
    assert_eq!(
        (entry.remote.as_str(), entry.origin_branch.as_deref(), entry.publish, entry.depends),
        ("upstream", Some("develop"), Publish::Branch, false)
    );
    assert_eq!(entry.sweep.schedule.as_deref(), Some("0 3 * * 1-5"));
    assert_eq!((entry.sweep.limit, entry.sweep.timezone), (Some(5), chrono_tz::Europe::Berlin));
    assert_eq!(config.github.graphql_url, "https://git.example/api/graphql");
    assert_eq!(config.github.labels.trigger, "bot");
    assert_eq!(config.github.labels.done, "agentd:done");
    assert!(config.budgets.max_cost_is_explicit);
    assert_eq!(config.budgets.max_cost.micros(), 2_500_000);
    let session = config.session().unwrap();
    assert_eq!(session.settings.targets[0].context_limit(), Some(2744), "A-018");
    assert_eq!(session.settings.targets[0].temperature, Some(0.5), "A-095");
    assert_eq!(session.settings.targets[1].temperature, Some(0.1), "A-095");
    assert_eq!(session.settings.tool_timeout.as_millis(), 300);
    let anthropic = config.provider("anthropic").unwrap();
    assert_eq!(anthropic.kind, ProviderKind::Anthropic);
    assert_eq!(anthropic.base_url, "https://api.anthropic.com");
    assert_eq!(anthropic.api_key.unwrap().expose_secret(), "k3y");
    let local = config.provider("local").unwrap();
    assert_eq!((local.base_url.as_str(), local.api_key.is_none()), ("http://127.0.0.1:11434/v1", true));
    // Only what is used is resolved.
    let unused = config.provider("unused").unwrap_err().to_string();
    assert!(unused.contains("NOT_SET_ANYWHERE") && unused.contains("providers.unused.api_key"), "{unused}");
}

#[test]
fn a_089_a_higher_layer_wins_and_explain_names_it() {
    let mut place = Place::with("[session]\nmax_turns = 2\nmax_retries = 2\n")
        .variable("GITHUB_API_URL", "http://127.0.0.1:1/api");
    let xdg = place.dir.path().join("xdg");
    place = place.variable("XDG_CONFIG_HOME", xdg.to_str().unwrap());
    place.file(
        "xdg/agentd/agentd.toml",
        "[session]\nmax_turns = 5\nmax_retries = 5\nmax_tool_calls_per_turn = 5\nllm_timeout = \"5s\"\n",
    );
    place.file(".agent/resolver/agentd.toml", "[session]\nmax_tool_calls_per_turn = 4\nmax_turns = 4\n");
    place.file(".agent/agentd.toml", "[session]\nmax_turns = 99\n");
    let explicit = place.file("here/mine.toml", "\n\n[session]\nmax_turns = 1\n");
    place.flags.push(Flag { name: "--max-steps", key: "budgets.max_steps", value: 7.into() });
    let config = place.load_with(Some(Path::new("here/mine.toml")), None).unwrap();
    let rows = config.explain();
    let told = |key: &str| {
        let row = rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("no {key}"));
        let source = row.source.to_string().replace(&format!("{}/", place.dir.path().display()), "");
        format!("{} from {source}", row.value)
    };
    assert_eq!(told("session.max_turns"), "1 from here/mine.toml:4");
    assert_eq!(told("session.max_retries"), "2 from agentd.toml:3");
    assert_eq!(told("session.max_tool_calls_per_turn"), "4 from .agent/resolver/agentd.toml:2");
    assert_eq!(told("session.llm_timeout"), "\"5s\" from xdg/agentd/agentd.toml:5");
    assert_eq!(told("budgets.max_steps"), "7 from --max-steps");
    assert_eq!(told("github.api_url"), "\"http://127.0.0.1:1/api\" from environment variable GITHUB_API_URL");
    assert_eq!(told("github.graphql_url"), "\"http://127.0.0.1:1/api/graphql\" from default");
    assert_eq!(told("session.tool_timeout"), "\"1m\" from default");
    assert_eq!(config.layers().next(), Some(explicit.as_path()));
    assert_eq!(config.layers().count(), 4, ".agent/agentd.toml counts only where agentd.toml is absent");
}

#[test]
fn a_089_a_config_flag_that_names_no_file_is_an_error() {
    let error = Place::new().load_with(Some(Path::new("nope.toml")), None).unwrap_err().to_string();
    assert!(error.ends_with("nope.toml: no such file"), "{error}");
}

#[test]
fn a_090_tables_of_two_layers_merge_and_arrays_replace() {
    let mut place = Place::with(
        "[providers.a]\nkind = \"openai\"\n[[session.targets]]\nprovider = \"a\"\nmodel = \"high\"\n",
    );
    let xdg = place.dir.path().join("xdg");
    place = place.variable("XDG_CONFIG_HOME", xdg.to_str().unwrap());
    place.file(
        "xdg/agentd/agentd.toml",
        "[providers.a]\nbase_url = \"http://h/v1\"\n[providers.b]\nkind = \"anthropic\"\n\
         [[session.targets]]\nprovider = \"b\"\nmodel = \"low\"\n[[session.targets]]\nprovider = \"b\"\nmodel = \"low2\"\n",
    );
    let config = place.load().unwrap();
    assert_eq!(config.provider("a").unwrap().base_url, "http://h/v1");
    assert_eq!(config.provider("b").unwrap().kind, ProviderKind::Anthropic);
    let models: Vec<_> =
        config.session().unwrap().settings.targets.into_iter().map(|target| target.model).collect();
    assert_eq!(models, ["high"]);
}

#[test]
fn a_091_only_the_layers_own_env_file_is_consulted() {
    let mut place = Place::with("[commit]\nauthor_name = \"${WHO}\"\n").variable("WHO", "process");
    let xdg = place.dir.path().join("xdg");
    place = place.variable("XDG_CONFIG_HOME", xdg.to_str().unwrap());
    place.file("xdg/agentd/agentd.toml", "[commit]\nauthor_email = \"${WHO}@h\"\n");
    place.file("xdg/agentd/.agentd.env", "WHO=xdg\n");
    let config = place.load().unwrap();
    assert_eq!(config.commit.author_name.as_deref(), Some("process"));
    assert_eq!(config.commit.author_email.as_deref(), Some("xdg@h"));
    place.file(".agentd.env", "WHO=beside\n");
    assert_eq!(place.load().unwrap().commit.author_name.as_deref(), Some("beside"));
}

#[test]
fn a_091_an_agent_named_by_a_variable_has_its_layer_wherever_its_checkout_is_named() {
    let place = Place::new().variable("AGENT", "fixer");
    let here = place.dir.path().display().to_string();
    place.file(".agent/fixer/agentd.toml", "[verify]\ntimeout = \"3m\"\n");
    for (path, agent) in [(".", "${AGENT}"), ("./", "fixer"), (here.as_str(), "fixer")] {
        let two = "[[repositories]]\nname = \"o/other\"\nagent = \"other\"\n";
        let entry = format!("[[repositories]]\npath = \"{path}\"\nagent = \"{agent}\"\n");
        place.file("agentd.toml", &format!("{two}{entry}"));
        let config = place.load().unwrap();
        assert_eq!(config.repositories[1].agent, "fixer");
        assert_eq!(config.verify.timeout.0.as_secs(), 180, "{path} {agent}");
    }
}

#[test]
fn a_094_explain_and_debug_show_placeholders_and_never_values() {
    let place =
        Place::with("[providers.anthropic]\napi_key = \"${KEY}\"\n[commit]\nauthor_name = \"${KEY}\"\n")
            .variable("KEY", "sentinel-value")
            .variable("GITHUB_TOKEN", "sentinel-value");
    let config = place.load().unwrap();
    assert_eq!(config.commit.author_name.as_deref(), Some("sentinel-value"));
    let rows = serde_json::to_string(&config.explain()).unwrap();
    assert!(rows.contains("${KEY}") && !rows.contains("sentinel-value"), "{rows}");
    let provider = format!("{:?}{:?}", config.provider("anthropic").unwrap(), config.github_credentials());
    assert!(!provider.contains("sentinel-value"), "{provider}");
    let known = config.secret_values();
    assert!(known.iter().any(|known| known.kind == "KEY" && known.value == "sentinel-value"));
}

#[test]
fn d30_work_without_github_needs_no_token_and_a_wrong_one_is_told() {
    let place = Place::new();
    let config = place.load().unwrap();
    assert!(config.github_credentials_if_any().unwrap().is_none());
    assert!(config.github_credentials().unwrap_err().to_string().contains("GITHUB_TOKEN"));
    let place = Place::with("[github]\ntoken = \"${GITHUB_TOKEN}\"\n");
    assert!(place.load().unwrap().github_credentials_if_any().unwrap().is_none());
    let place = Place::with("[github]\ntoken = \"\"\n");
    assert!(place.load().unwrap().github_credentials_if_any().is_err());
}

#[test]
fn d85_a_managed_clone_decides_only_agent_lower_budgets_and_verify() {
    let place = Place::with(
        "[[repositories]]\nname = \"o/n\"\n[budgets]\nmax_steps = 10\n[policy]\nfiles = [\"mine.toml\"]\n",
    )
    .variable("GITHUB_TOKEN", "sentinel-value");
    let config = place.load().unwrap();
    let file = place.file(
        "clone/agentd.toml",
        "version = \"1.0\"\n[[repositories]]\nname = \"o/n\"\nagent = \"theirs\"\npublish = \"none\"\n\
         [budgets]\nmax_steps = 5\nmax_cost = 99.0\nmax_wall_time = \"5m\"\n\
         [policy]\nfiles = [\"theirs.toml\"]\n[verify]\ncommands = [[\"make\"]]\n[commit]\nauthor_name = \"x\"\n",
    );
    let name = RepoName::parse("o/n").unwrap();
    let clone = place.dir.path().join("clone");
    let config = config.in_clone(&clone, &name, &place.env());
    assert_eq!(config.repository(Some(&name), None).agent, "theirs");
    assert_eq!((config.budgets.max_steps, config.budgets.max_wall_time.as_secs()), (5, 300));
    assert_eq!(config.budgets.max_cost.dollars(), 10.0);
    assert_eq!(config.verify.commands, [["make"]]);
    assert_eq!(config.policy.files, [PathBuf::from("mine.toml")]);
    let refused = |config: &Config| -> Vec<String> {
        config.clone_file().unwrap().refused.iter().map(|refused| refused.key.clone()).collect()
    };
    assert_eq!(
        refused(&config),
        ["repositories[0].publish", "budgets.max_cost", "policy.files", "commit.author_name"]
    );
    assert!(matches!(config.source("budgets.max_steps"), Source::File { path, line: 7 } if path == file));

    place.file("clone/agentd.toml", "[verify]\ncommands = [[\"curl\", \"${GITHUB_TOKEN}\"]]\n");
    let config = place.load().unwrap().in_clone(&clone, &name, &place.env());
    assert_eq!(config.verify.commands, Vec::<Vec<String>>::new());
    assert_eq!(refused(&config), ["verify.commands"]);
}

#[test]
fn d85_a_managed_clone_has_the_configuration_of_no_other_repository() {
    let others = "[[repositories]]\nname = \"o/other\"\nagent = \"other\"\n";
    let place = Place::with(&format!("{others}[[repositories]]\nname = \"o/n\"\nagent = \"own\"\n"));
    let (name, clone) = (RepoName::parse("o/n").unwrap(), place.dir.path().join("clone"));
    for file in [None, Some("[budgets]\nmax_steps = 2\n"), Some("not TOML")] {
        if let Some(text) = file {
            place.file("clone/agentd.toml", text);
        }
        let config = place.load().unwrap().in_clone(&clone, &name, &place.env());
        let agents: Vec<&str> = config.repositories.iter().map(|one| one.agent.as_str()).collect();
        assert_eq!(agents, ["own"], "{file:?}");
        assert_eq!(config.clone_file().unwrap().refused.len(), usize::from(file == Some("not TOML")));
        assert_eq!(
            config.budgets.max_steps,
            if file.is_some_and(|text| text.contains("max_steps")) { 2 } else { 12 }
        );
    }
}

#[test]
fn the_schema_knows_every_table_and_refuses_unknown_keys() {
    let schema = agentd::config::schema();
    let validator = jsonschema::validator_for(schema).unwrap();
    for (name, text) in samples("valid") {
        let value: serde_json::Value = toml::from_str(&text).unwrap();
        assert!(validator.is_valid(&value), "{name}");
    }
    assert!(!validator.is_valid(&serde_json::json!({ "sesion": {} })));
    assert_eq!(schema["properties"]["budgets"]["properties"]["max_steps"]["default"], 12);
}

#[test]
fn d85_of_one_among_several_repositories_its_own_file_counts_and_the_entry_that_names_it_wins() {
    let place = Place::new();
    let checkout = place.dir.path().join("shop");
    place.file(
        "agentd.toml",
        "[[repositories]]\nname = \"o/other\"\n[[repositories]]\nname = \"o/shop\"\npath = \"shop\"\npublish = \"branch\"\n\
         [github]\nissue_field = \"desk\"\n[budgets]\nmax_steps = 7\nmax_cost = 3.0\n",
    );
    let own = place.file(
        "shop/.agent/agentd.toml",
        "[[repositories]]\npath = \".\"\norigin_branch = \"develop\"\npublish = \"none\"\nagent = \"fixer\"\n\
         [github]\nissue_field = \"shop\"\n[budgets]\nmax_steps = 5\n[verify]\ncommands = [[\"make\"]]\n",
    );
    place.file("shop/.agent/fixer/agentd.toml", "[verify]\ntimeout = \"3m\"\n");
    let env = place.env();
    let operator = place.load().unwrap();
    let name = RepoName::parse("o/shop").unwrap();
    let config = Config::load(Request {
        explicit: None,
        base: &checkout,
        repo: Some(&name),
        agent: None,
        flags: &[],
        entry: Some(Entry { operator: &operator, index: 1 }),
        env: &env,
    })
    .unwrap();
    assert_eq!(config.repositories.len(), 1);
    let entry = &config.repositories[0];
    assert_eq!((entry.publish, entry.origin_branch.as_deref()), (Publish::Branch, Some("develop")));
    assert_eq!(entry.path.as_deref(), Some(checkout.as_path()));
    assert_eq!(config.base(), checkout);
    assert_eq!((config.budgets.max_steps, config.budgets.max_cost.dollars()), (5, 3.0));
    assert_eq!(config.github.issue_field, "desk", "who talks to GitHub is the operator's");
    assert_eq!(config.verify.commands, [["make"]]);
    assert_eq!(
        config.verify.timeout.0.as_secs(),
        180,
        "the layer of the agent that the checkout's entry names"
    );
    let source = |key: &str| config.source(key);
    assert_eq!(source("repositories[0].origin_branch"), Source::File { path: own.clone(), line: 3 });
    let desk = place.dir.path().join("agentd.toml");
    assert_eq!(source("repositories[0].publish"), Source::File { path: desk.clone(), line: 6 });
    assert_eq!(source("github.issue_field"), Source::File { path: desk, line: 8 });
}

#[test]
fn an_entry_without_name_and_path_is_about_the_checkout_around_its_file_or_the_only_one_here() {
    let unnamed = "[[repositories]]\norigin_branch = \"main\"\n";
    let path = |place: &Place, index: usize| place.load().unwrap().repositories[index].path.clone();
    for file in [".agent/agentd.toml", "agentd.toml"] {
        let place = Place::new();
        place.file(file, unnamed);
        let told = place.told(&place.load().unwrap_err());
        assert!(told.contains("needs `path` (the main checkout)"), "no checkout: {told}");
        place.file(".git/HEAD", "ref: refs/heads/main\n");
        assert_eq!(path(&place, 0).as_deref(), Some(place.dir.path()));
        // Beside others only in the checkout's own file, and once.
        place.file(file, &format!("[[repositories]]\nname = \"octo/dog\"\n{unnamed}"));
        assert_eq!((path(&place, 0), path(&place, 1).as_deref()), (None, Some(place.dir.path())));
        place.file(file, &format!("{unnamed}{unnamed}"));
        assert!(place.told(&place.load().unwrap_err()).contains("`repositories[1]`: needs `path`"));
    }
    let elsewhere = Place::new();
    let place = Place::new();
    place.file(".git/HEAD", "ref: refs/heads/main\n");
    let only = elsewhere.file("only.toml", unnamed);
    let config = place.load_with(Some(&only), None).unwrap();
    assert_eq!(config.repositories[0].path.as_deref(), Some(place.dir.path()));
    let several =
        elsewhere.file("several.toml", &format!("[[repositories]]\nname = \"octo/dog\"\n{unnamed}"));
    let told = place.load_with(Some(&several), None).unwrap_err().to_string();
    assert!(told.contains("`repositories[1]`: needs `path`"), "{told}");
}
