//! The real programs, headless and caged, each against the simulator's model; skipped where one is not installed.
//! `npm install @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai`, and their folder in `PATH`.

use serde_json::{Value, json};

use super::backends::STEPS;
use super::bench::{events, fixer, journal, no_sandbox, rules};
use crate::outside::world::{GREEN, World, text};

/// The line that fixes the issue.
const LINE: &str = "sed -i 's/\\$1 - \\$2/$1 * (100 - $2) \\/ 100/' lib/cart.sh";

/// One of the real programs, and how it is brought to the simulator's model.
struct Real {
    backend: &'static str,
    program: &'static str,
    /// Its own shell: name, and the argument with the line.
    shell: (&'static str, &'static str),
    /// agentd's `edit_file` as its model sees it.
    edit: &'static str,
    model: &'static str,
}

const CLAUDE: Real = Real {
    backend: "claude-code",
    program: "claude",
    shell: ("Bash", "command"),
    edit: "mcp__agentd__edit_file",
    model: "recorded-model",
};
const CODEX: Real = Real {
    backend: "codex",
    program: "codex",
    shell: ("exec_command", "cmd"),
    edit: "mcp__agentd/edit_file",
    model: "recorded-model",
};
const GEMINI: Real = Real {
    backend: "gemini",
    program: "gemini",
    shell: ("run_shell_command", "command"),
    edit: "mcp_agentd_edit_file",
    model: "gemini-2.5-pro",
};
const OPENCODE: Real = Real {
    backend: "opencode",
    program: "opencode",
    shell: ("bash", "command"),
    edit: "agentd_edit_file",
    model: "simulated/recorded-model",
};

/// Adds to the scaffolded agent and its policy what `docs/agents.md` shows first.
fn recipe(world: &World) {
    let page = include_str!("../../../docs/agents.md");
    let block = |language: &str| {
        let start = page.find(&format!("```{language}\n")).unwrap() + language.len() + 4;
        &page[start..start + page[start..].find("```").unwrap()]
    };
    let shown: Value = serde_json::from_str(&format!("{{{}}}", block("json"))).unwrap();
    let path = world.shop().join(".agent/resolver/agent.json");
    let mut agent: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    agent["runner"]["agentd"].as_object_mut().unwrap().extend(shown["agentd"].as_object().unwrap().clone());
    world.write("shop/.agent/resolver/agent.json", &agent.to_string());
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    world.write("shop/.agent/policy.toml", &format!("{policy}\n{}", block("toml")));
}

impl Real {
    /// Says why the test is skipped, where it is.
    #[expect(clippy::print_stderr, reason = "a skipped test says why")]
    fn is_missing(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let why = no_sandbox().map(|why| format!("there is no sandbox here: {why}")).or_else(|| {
            let found = agentd::sys::sandbox::which(self.program.as_ref(), &path);
            found.is_none().then(|| format!("{} is not installed", self.program))
        });
        if let Some(why) = &why {
            eprintln!("skipped: {why}");
        }
        why.is_some()
    }

    /// A world whose model calls one tool and then says that it is done.
    async fn world(&self, tool: &str, arguments: Value) -> World {
        let model = self.model.rsplit('/').next().unwrap_or_default();
        World::of(1, |scenario| {
            scenario.model.names.clear();
            scenario.model.replies = serde_json::from_value(json!([
                {"model": model, "when": {"turn": 1, "offers": tool}, "usage": {"input": 100, "output": 20},
                 "tool_calls": [{"name": tool, "arguments": arguments}]},
                {"model": model, "when": {"turn": 2}, "text": "The percentage is taken as a share now.",
                 "usage": {"input": 200, "output": 30}},
                // What programs ask beside: a title, a second look at the prompt.
                {"times": 0, "text": "A cart"},
            ]))
            .unwrap();
        })
        .await
    }

    /// Arguments of its own shell for a line.
    fn line(&self, line: &str) -> Value {
        json!({self.shell.1: line, "description": "fix it"})
    }

    /// The definition's program, and agentd's further variables.
    fn setup(&self, world: &World) -> (Value, Vec<(&'static str, String)>) {
        let api = world.sim.api_url();
        let mut program = json!({"model": self.model, "network": true, "timeLimit": "90s"});
        let mut with = |keys: Value| {
            for (key, value) in keys.as_object().unwrap() {
                program[key] = value.clone();
            }
        };
        let variables = match self.backend {
            "claude-code" => {
                with(json!({"maxTurns": 5, "environment": ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"]}));
                vec![
                    ("ANTHROPIC_BASE_URL", world.sim.model_url_anthropic()),
                    ("ANTHROPIC_API_KEY", "a-key-of-the-simulator".to_owned()),
                ]
            }
            "codex" => {
                let provider = format!(
                    "model_provider = \"sim\"\n[model_providers.sim]\nname = \"sim\"\nbase_url = \"{api}/model/openai-responses/v1\"\n\
                     env_key = \"SIM_KEY\"\nwire_api = \"responses\"\nrequest_max_retries = 0\nstream_max_retries = 0\n"
                );
                world.write(".codex/config.toml", &provider);
                with(json!({"home": [".codex/config.toml"], "environment": ["SIM_KEY"]}));
                vec![("SIM_KEY", "a-key-of-the-simulator".to_owned())]
            }
            "gemini" => {
                let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
                world.write(".gemini/settings.json", &settings.to_string());
                with(
                    json!({"home": [".gemini/settings.json"], "environment": ["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"]}),
                );
                vec![
                    ("GEMINI_API_KEY", "a-key-of-the-simulator".to_owned()),
                    ("GOOGLE_GEMINI_BASE_URL", format!("{api}/model/gemini")),
                ]
            }
            _ => {
                with(json!({"environment": ["OPENCODE_CONFIG_CONTENT"]}));
                let provider = json!({"provider": {"simulated": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": format!("{api}/model/openai/v1"), "apiKey": "a-key-of-the-simulator"},
                    "models": {"recorded-model": {}},
                }}});
                vec![("OPENCODE_CONFIG_CONTENT", provider.to_string())]
            }
        };
        (program, variables)
    }

    /// Runs the issue with it; `change` has the last word on the definition's program.
    async fn run(&self, world: &World, change: impl FnOnce(&mut Value)) -> (Option<i32>, Value) {
        let (mut program, variables) = self.setup(world);
        change(&mut program);
        self.started(world, &program, variables).await
    }

    async fn started(
        &self,
        world: &World,
        program: &Value,
        variables: Vec<(&'static str, String)>,
    ) -> (Option<i32>, Value) {
        fixer(world, self.backend, program);
        let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (done.status.code(), serde_json::from_slice(&done.stdout).unwrap())
    }

    /// The definition's program and agentd's further variables where its model is an endpoint: it holds no key, and has
    /// no other network.
    fn by_endpoint(&self, world: &World) -> (Value, Vec<(&'static str, String)>) {
        let api = world.sim.api_url();
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let (url, header, variables) = match self.backend {
            "claude-code" => (
                world.sim.model_url_anthropic(),
                "x-api-key = \"${MODEL_KEY}\"",
                "url_variable = \"ANTHROPIC_BASE_URL\"\nkey_variable = \"ANTHROPIC_API_KEY\"\n",
            ),
            "codex" => (
                format!("{api}/model/openai-responses/v1"),
                "authorization = \"Bearer ${MODEL_KEY}\"",
                "key_variable = \"SIM_KEY\"\n",
            ),
            "gemini" => (
                format!("{api}/model/gemini"),
                "x-goog-api-key = \"${MODEL_KEY}\"",
                "url_variable = \"GOOGLE_GEMINI_BASE_URL\"\nkey_variable = \"GEMINI_API_KEY\"\n",
            ),
            _ => (format!("{api}/model/openai/v1"), "authorization = \"Bearer ${MODEL_KEY}\"", ""),
        };
        world.write(
            "overlay.toml",
            &format!(
                "{overlay}[[session.targets]]\nprovider = \"anthropic\"\nmodel = \"gemini-2.5-pro\"\n\
                 price = {{ input = 3.0, output = 15.0 }}\n\
                 [sandbox.endpoints.sim]\nurl = \"{url}\"\nheaders = {{ {header} }}\n{variables}"
            ),
        );
        let (mut program, mut variables) = self.setup(world);
        program["network"] = json!(false);
        program["endpoints"] = json!(["sim"]);
        let inside = "http://127.0.0.1:3128/sim";
        match self.backend {
            "claude-code" | "gemini" => program["environment"] = json!([]),
            "codex" => {
                program["environment"] = json!([]);
                let path = world.dir.path().join(".codex/config.toml");
                let config = std::fs::read_to_string(path).unwrap();
                let outside = format!("{api}/model/openai-responses/v1");
                world.write(".codex/config.toml", &config.replace(&outside, inside));
            }
            _ => {
                for (_, value) in &mut variables {
                    *value = value.replace(&format!("{api}/model/openai/v1"), inside);
                    *value = value.replace("a-key-of-the-simulator", "held-by-agentd");
                }
            }
        }
        (program, variables)
    }

    /// The agent that `agentd init --backend` writes, as it is: all four steps, by an endpoint, with no other setting.
    /// `by_hand`: the one that `agentd init` writes, with what the documentation says to add.
    async fn works_as_init_wrote_it(&self, by_hand: bool) {
        if self.is_missing() {
            return;
        }
        let (tool, line) = (self.shell.0, self.line(LINE));
        let world = World::of(1, |scenario| {
            scenario.model.names.clear();
            let mut replies = Vec::new();
            for (words, said) in STEPS {
                let said: Value = serde_json::from_str(said).unwrap();
                if words.starts_with("Carry") {
                    replies.push(json!({"when": {"anywhere": words, "turn": 1, "offers": tool}, "times": 0,
                        "tool_calls": [{"name": tool, "arguments": line}], "usage": {"input": 100, "output": 20}}));
                }
                let mut reply = json!({"when": {"anywhere": words, "offers": tool}, "times": 0, "usage": {"input": 100, "output": 20}});
                match self.backend {
                    // It is asked for its output by a tool.
                    "claude-code" => reply["tool_calls"] = json!([{"name": "StructuredOutput", "arguments": said}]),
                    _ => reply["text"] = json!(said.to_string()),
                }
                replies.push(reply);
            }
            replies.push(json!({"times": 0, "text": "A cart"}));
            scenario.model.replies = serde_json::from_value(Value::Array(replies)).unwrap();
        })
        .await;
        std::fs::remove_dir_all(world.shop().join(".agent")).unwrap();
        let args = ["init", "--backend", self.backend];
        let done = world.agentd(if by_hand { &args[..1] } else { &args }).await;
        assert!(done.status.success(), "{}", text(&done.stderr));
        if by_hand {
            recipe(&world);
        }
        let api = world.sim.api_url();
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let (github, _) = overlay.split_once("[providers").unwrap();
        let address = match self.backend {
            "codex" => format!("[providers.openai]\nbase_url = \"{api}/model/openai-responses/v1\"\n"),
            "gemini" => format!("[providers.gemini]\nbase_url = \"{api}/model/gemini\"\n"),
            _ => format!("[providers.anthropic]\nbase_url = \"{}\"\n", world.sim.model_url_anthropic()),
        };
        world.write(
            "overlay.toml",
            &format!("{github}{address}[verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n"),
        );
        let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
        for key in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"] {
            command.env(key, "a-key-of-the-simulator");
        }
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let output: Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr)));
        let end = (output["stop_detail"].as_str(), output["iterations"].as_u64());
        assert_eq!(end, (Some("completed"), Some(4)), "{:?}\n{output:#}", world.sim.violations());
        assert!(!output["warnings"].to_string().contains("cost_unknown"), "{output:#}");
        world.assert_one_of_each();
        world.sim.shutdown().await;
    }

    /// A reply that costs more than the run may, and then a tool that takes long: it ends before that does.
    async fn ends_at_the_cap(&self) {
        if self.is_missing() {
            return;
        }
        let model = self.model.rsplit('/').next().unwrap_or_default();
        let (tool, arguments) = (self.shell.0, self.line("sleep 60"));
        let world = World::of(1, |scenario| {
            scenario.model.names.clear();
            scenario.model.replies = serde_json::from_value(json!([
                {"model": model, "when": {"turn": 1, "offers": tool}, "usage": {"input": 100, "output": 1_000_000},
                 "tool_calls": [{"name": tool, "arguments": arguments}]},
                {"times": 0, "text": "A cart", "usage": {"input": 1, "output": 1}},
            ]))
            .unwrap();
        })
        .await;
        let (program, variables) = self.by_endpoint(&world);
        let began = std::time::Instant::now();
        let (code, output) = self.started(&world, &program, variables).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
        assert!(began.elapsed().as_secs() < 55, "it was ended while its tool ran");
        let out = output["totals"]["tokens_out"].as_u64().unwrap();
        assert!((1_000_000..1_000_100).contains(&out), "counted once: {output:#}");
        world.sim.shutdown().await;
    }

    /// From the label to the pull request with its own tools.
    async fn fixes(&self) {
        if self.is_missing() {
            return;
        }
        let world = self.world(self.shell.0, self.line(LINE)).await;
        let (program, variables) = self.setup(&world);
        fixer(&world, self.backend, &program);
        let file = "shop/.agent/agentd.toml";
        let config = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
        let (before, after) = config.split_once("[[repositories]]\n").unwrap();
        let after: String = after
            .lines()
            .filter(|line| !line.starts_with("agent ="))
            .map(|line| format!("{line}\n"))
            .collect();
        world.write(file, &format!("{before}[[repositories]]\nagent = \"fixer\"\n{after}"));
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let mut command = world.command_in(&["--json", "daemon", "--once"]);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        let end = &report["ended"][0]["stop_detail"];
        assert_eq!(end, "completed", "{:?}\n{report:#}", world.sim.violations());
        let (_, output) = world.json(&["runs", "show", "latest"]).await;
        world.assert_one_of_each();
        let told = journal(&world, &output);
        assert!(told.contains("The percentage is taken as a share now."), "{told}");
        assert!(told.contains(&format!("\"provider\":\"{}\"", self.backend)), "{told}");
        // What its model used: two requests of the script, and where it asks beside, more.
        let used = |of: &str| output["totals"][of].as_u64().unwrap_or_default();
        assert!(used("tokens_in") >= 300 && used("tokens_out") >= 50, "{output:#}");
        world.sim.shutdown().await;
    }

    /// From issue to pull request with agentd's tools, which it finds by itself.
    async fn finds_the_tools(&self) {
        if self.is_missing() {
            return;
        }
        let edit = json!({"path": "lib/cart.sh", "old": "$1 - $2", "new": "$1 * (100 - $2) / 100"});
        let world = self.world(self.edit, edit).await;
        let (code, output) = self.run(&world, |_| ()).await;
        assert_eq!(code, Some(0), "{:?}\n{output:#}", world.sim.violations());
        world.assert_one_of_each();
        let decided = events(&world, &output)
            .into_iter()
            .find(|event| event["data"]["callId"] == "agent-1-1.1" && !event["data"]["decision"].is_null());
        let decided = decided.unwrap_or_else(|| panic!("no call at the desk: {:?}", world.sim.violations()));
        assert_eq!(decided["data"]["resource"]["name"], "edit_file", "{decided:#}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_works_as_init_wrote_it() {
    CLAUDE.works_as_init_wrote_it(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recipe_of_the_documentation_works_as_it_stands() {
    CLAUDE.works_as_init_wrote_it(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_works_as_init_wrote_it() {
    CODEX.works_as_init_wrote_it(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_works_as_init_wrote_it() {
    GEMINI.works_as_init_wrote_it(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_works_as_init_wrote_it() {
    OPENCODE.works_as_init_wrote_it(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_goes_from_label_to_pull_request() {
    CLAUDE.fixes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_goes_from_label_to_pull_request() {
    CODEX.fixes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_goes_from_label_to_pull_request() {
    GEMINI.fixes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_goes_from_label_to_pull_request() {
    OPENCODE.fixes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_cap_ends_claude_code_while_it_works() {
    CLAUDE.ends_at_the_cap().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_cap_ends_codex_while_it_works() {
    CODEX.ends_at_the_cap().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_cap_ends_gemini_while_it_works() {
    GEMINI.ends_at_the_cap().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_cap_ends_opencode_while_it_works() {
    OPENCODE.ends_at_the_cap().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_claude_code_finds_agentds_tools() {
    CLAUDE.finds_the_tools().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_codex_finds_agentds_tools() {
    CODEX.finds_the_tools().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_gemini_finds_agentds_tools() {
    GEMINI.finds_the_tools().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_opencode_finds_agentds_tools() {
    OPENCODE.finds_the_tools().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_claude_code_asks_the_policy_where_it_is_told_to() {
    if CLAUDE.is_missing() {
        return;
    }
    let rule = format!(
        "[[rule]]\nid = \"sed\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\nreason = \"the fix\"\n\
         when = {{ argv = [[\"sh\", \"-c\", {}]] }}\n",
        json!(LINE)
    );
    let asked = |program: &mut Value| program["permissions"] = json!("policy");
    // Nothing allows a shell: its work is not done.
    let world = CLAUDE.world("Bash", CLAUDE.line(LINE)).await;
    world.verify(GREEN);
    let (code, output) = CLAUDE.run(&world, asked).await;
    assert_eq!((code, output["change"].as_str()), (Some(0), Some("none")), "{output:#}");
    assert!(journal(&world, &output).contains("\"permission-"), "the question is on the record: {output:#}");
    world.sim.shutdown().await;
    // A rule allows it.
    let world = CLAUDE.world("Bash", CLAUDE.line(LINE)).await;
    rules(&world, &rule);
    let (code, output) = CLAUDE.run(&world, asked).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.sim.shutdown().await;
}
