//! Real programs over the Agent Client Protocol, caged, each with agentd's tools and against the simulator's model; skipped
//! where one is not installed. `npm install @agentclientprotocol/claude-agent-acp @zed-industries/codex-acp
//! @google/gemini-cli opencode-ai @qwen-code/qwen-code`, and their folder in `PATH`.

use serde_json::{Value, json};

use super::bench::{FIX, events, fixer, no_sandbox, rules};
use crate::outside::world::World;

/// agentd's `edit_file` as models see it.
const NAMES: [&str; 4] =
    ["mcp__agentd__edit_file", "mcp__agentd/edit_file", "mcp_agentd_edit_file", "agentd_edit_file"];

/// One of them: its command, and the model that it asks for.
struct Real {
    argv: &'static [&'static str],
    model: &'static str,
}

impl Real {
    /// Says why the test is skipped, where it is.
    #[expect(clippy::print_stderr, reason = "a skipped test says why")]
    fn is_missing(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let why = no_sandbox().map(|why| format!("there is no sandbox here: {why}")).or_else(|| {
            let found = agentd::sys::sandbox::which(self.argv[0].as_ref(), &path);
            found.is_none().then(|| format!("{} is not installed", self.argv[0]))
        });
        if let Some(why) = &why {
            eprintln!("skipped: {why}");
        }
        why.is_some()
    }

    /// What it needs of settings of its own to find the endpoint, and further variables of agentd's.
    fn settings(&self, world: &World, program: &mut Value) -> Vec<(&'static str, String)> {
        let inside = "http://127.0.0.1:3128/sim";
        match self.argv[0] {
            "codex-acp" => {
                let config = format!(
                    "model = \"{}\"\nmodel_provider = \"sim\"\n[model_providers.sim]\nname = \"sim\"\nbase_url = \"{inside}\"\n\
                     env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nrequires_openai_auth = true\n",
                    self.model
                );
                world.write(".codex/config.toml", &config);
                program["home"] = json!([".codex/config.toml"]);
            }
            "gemini" => {
                let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
                world.write(".gemini/settings.json", &settings.to_string());
                program["home"] = json!([".gemini/settings.json"]);
            }
            "opencode" => {
                let provider = json!({"model": format!("simulated/{}", self.model), "provider": {"simulated": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": inside, "apiKey": "held-by-agentd"},
                    "models": {self.model: {}},
                }}});
                program["environment"] = json!(["OPENCODE_CONFIG_CONTENT"]);
                return vec![("OPENCODE_CONFIG_CONTENT", provider.to_string())];
            }
            "qwen" => {
                program["environment"] = json!(["OPENAI_MODEL"]);
                return vec![("OPENAI_MODEL", self.model.to_owned())];
            }
            _ => {}
        }
        Vec::new()
    }

    /// From the issue to the pull request: its model calls agentd's tool, which its policy is asked about. It has no network
    /// but the endpoint, and no key.
    async fn fixes(&self, permissions: &str) {
        if self.is_missing() {
            return;
        }
        let edit = json!({"path": "lib/cart.sh", "old": "$1 - $2", "new": "$1 * (100 - $2) / 100"});
        let world = World::of(1, |scenario| {
            scenario.model.names.clear();
            // Versions of one program name agentd's tool differently.
            let mut replies: Vec<Value> = NAMES
                .iter()
                .map(|name| {
                    json!({"when": {"offers": name}, "usage": {"input": 100, "output": 20},
                        "tool_calls": [{"name": name, "arguments": edit}]})
                })
                .collect();
            // Where the tools of servers are only found by looking for them, it uses its own.
            if self.argv[0] == "qwen" {
                replies = vec![json!({"when": {"offers": "run_shell_command"}, "usage": {"input": 100, "output": 20},
                    "tool_calls": [{"name": "run_shell_command", "arguments": {"command": FIX, "description": "fix it", "is_background": false}}]})];
            }
            replies.push(json!({"times": 0, "text": "The percentage is taken as a share now.", "usage": {"input": 200, "output": 30}}));
            scenario.model.replies = serde_json::from_value(Value::Array(replies)).unwrap();
        })
        .await;
        let api = world.sim.api_url();
        let (url, variables) = match self.argv[0] {
            "claude-agent-acp" => (
                world.sim.model_url_anthropic(),
                "url_variable = \"ANTHROPIC_BASE_URL\"\nkey_variable = \"ANTHROPIC_API_KEY\"\n",
            ),
            "codex-acp" => {
                (format!("{api}/model/openai-responses/v1"), "key_variable = \"OPENAI_API_KEY\"\n")
            }
            "gemini" => (
                format!("{api}/model/gemini"),
                "url_variable = \"GOOGLE_GEMINI_BASE_URL\"\nkey_variable = \"GEMINI_API_KEY\"\n",
            ),
            _ => (
                format!("{api}/model/openai/v1"),
                "url_variable = \"OPENAI_BASE_URL\"\nkey_variable = \"OPENAI_API_KEY\"\n",
            ),
        };
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        world.write(
            "overlay.toml",
            &format!(
                "{overlay}[[session.targets]]\nprovider = \"anthropic\"\nmodel = \"{}\"\nprice = {{ input = 3.0, output = 15.0 }}\n\
                 [sandbox.endpoints.sim]\nurl = \"{url}\"\nheaders = {{ authorization = \"Bearer ${{MODEL_KEY}}\", \
                 x-api-key = \"${{MODEL_KEY}}\", x-goog-api-key = \"${{MODEL_KEY}}\" }}\n{variables}",
                self.model
            ),
        );
        let mut program =
            json!({"argv": self.argv, "endpoints": ["sim"], "timeLimit": "90s", "permissions": permissions});
        let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
        command.envs(self.settings(&world, &mut program));
        fixer(&world, "acp", &program);
        rules(
            &world,
            &format!(
                "[[rule]]\nid = \"fix\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\nreason = \"the fix\"\n\
                 when = {{ argv = [[\"sh\", \"-c\", {}]] }}\n",
                json!(FIX)
            ),
        );
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(output["stop_detail"], "completed", "{:?}\n{output:#}", world.sim.violations());
        world.assert_one_of_each();
        let told = events(&world, &output);
        let wanted = if self.argv[0] == "qwen" { "run_command" } else { "edit_file" };
        let judged = told.iter().filter(|event| event["data"]["resource"]["name"] == wanted).count();
        assert!(judged > 0 || self.argv[0] == "qwen" && permissions == "cage", "{told:#?}");
        assert!(!told.iter().any(|event| event["data"]["resource"]["name"] == "acp__other"), "{told:#?}");
        world.sim.shutdown().await;
    }
}

const CLAUDE: Real = Real { argv: &["claude-agent-acp"], model: "recorded-model" };
const CODEX: Real = Real { argv: &["codex-acp"], model: "recorded-model" };
const GEMINI: Real =
    Real { argv: &["gemini", "--acp", "--skip-trust", "-m", "gemini-2.5-pro"], model: "gemini-2.5-pro" };
const OPENCODE: Real = Real { argv: &["opencode", "acp"], model: "recorded-model" };
const QWEN: Real = Real { argv: &["qwen", "--acp", "--auth-type", "openai"], model: "recorded-model" };

#[tokio::test(flavor = "multi_thread")]
async fn claude_agent_acp_goes_from_issue_to_pull_request() {
    CLAUDE.fixes("policy").await;
    CLAUDE.fixes("cage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_acp_goes_from_issue_to_pull_request() {
    CODEX.fixes("policy").await;
    CODEX.fixes("cage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_over_acp_goes_from_issue_to_pull_request() {
    GEMINI.fixes("policy").await;
    GEMINI.fixes("cage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_over_acp_goes_from_issue_to_pull_request() {
    OPENCODE.fixes("policy").await;
    OPENCODE.fixes("cage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qwen_code_goes_from_issue_to_pull_request() {
    QWEN.fixes("policy").await;
    QWEN.fixes("cage").await;
}
