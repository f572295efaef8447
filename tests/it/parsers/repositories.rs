//! What repositories hold.

use super::*;

const POLICY: &str = include_str!("../../data/attacks/policy.toml");
const AGENT: &str = r#"{"version": "1.0.0", "name": "solo", "displayName": "Solo", "description": "Works.",
 "parameters": {"issue": {"type": "number", "description": "N", "required": true, "cli": "--issue"}},
 "runner": {"flow": {"systemPromptPath": "prompts/system.md", "prompts": {"registry": "steps_registry.json"}},
 "verdict": {"type": "count:iteration", "config": {"maxIterations": 1}},
 "boundaries": {"permissionMode": "acceptEdits", "sandbox": {"enabled": true, "network": {"mode": "custom", "trustedDomains": ["*.example.org:8443"]}}}}}"#;
const REGISTRY: &str = r#"{"agentId": "solo", "version": "1.0.0", "c1": "steps", "entryStep": "initial.issue",
 "steps": {"initial.issue": {"stepId": "initial.issue", "name": "Work", "stepKind": "work", "c2": "initial", "c3": "issue",
 "edition": "default", "uvVariables": ["issue"], "usesStdin": false}}}"#;
const CONFIG: &str = "version = \"1.0\"\n[[repositories]]\nname = \"o/n\"\nagent = \"solo\"\nsweep = \"0 3 * * 1-5\"\n[budgets]\nmax_wall_time = \"15m\"\n\
                      [policy]\nfiles = [\"p.toml\"]\n[redaction]\npatterns = [\"[a-z]+\"]\n[verify]\ncommands = [[\"make\", \"test\"]]\n";

pub fn parsers() -> Vec<Parser> {
    let load = |folder: &Path| {
        let env = Env::new(folder, [("HOME", "/nowhere")]);
        let request = Request {
            explicit: None,
            base: folder,
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        match Config::load(request) {
            Ok(config) => config.explain().len(),
            Err(error) => error.to_string().len(),
        }
    };
    let of_clone = |folder: &Path| {
        let env = Env::new("/nowhere", [("HOME", "/nowhere")]);
        let request = Request {
            explicit: None,
            base: Path::new("/nowhere"),
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        let repo = RepoName::parse("o/n").unwrap_or_else(|error| panic!("{error}"));
        Config::load(request).map_or(0, |config| size(&config.in_clone(folder, &repo, &env).clone_file()))
    };
    let agent = |file: &'static str, other: (&'static str, &'static str)| {
        in_folder(file, move |folder| {
            let own = folder.join(".agent/solo");
            let beside = folder.join(other.0);
            std::fs::create_dir_all(&own)
                .and_then(|()| std::fs::write(beside, other.1))
                .unwrap_or_else(|error| panic!("{error}"));
            match definition::load(folder, &own, &BTreeSet::new()) {
                Ok(loaded) => size(&loaded.diagnostics),
                Err(refused) => refused.to_string().len(),
            }
        })
    };
    vec![
        parser("agentd.toml", &[CONFIG], in_folder("agentd.toml", load)),
        parser("agentd.toml of a clone", &[CONFIG], in_folder("agentd.toml", of_clone)),
        parser(
            "agent.json",
            &[AGENT],
            agent(".agent/solo/agent.json", (".agent/solo/steps_registry.json", REGISTRY)),
        ),
        parser(
            "steps_registry.json",
            &[REGISTRY],
            agent(".agent/solo/steps_registry.json", (".agent/solo/agent.json", AGENT)),
        ),
        of_text("policy files", &[POLICY], |text| {
            let source = PolicySource { name: "p".into(), text: text.to_owned() };
            match read_policies(&[source]) {
                Ok(rules) => rules.rules().len(),
                Err(error) => error.to_string().len(),
            }
        }),
        of_text(
            "prompts",
            &["---\ntitle: x\noptions:\n  edition: [default]\n---\n# {uv-issue} {input_text}\n", "plain"],
            |text| {
                let parts = frontmatter::split(text);
                size(&parts.is_ok()) + Template::parse(text).map_or(0, |template| template.body().len())
            },
        ),
        of_text("prompt addresses", &["steps/initial/issue"], |text| size(&PromptAddress::parse(text))),
    ]
}
