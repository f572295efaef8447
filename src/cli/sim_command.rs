//! `agentd sim`: the simulator until it is told to stop.

use super::args::SimArgs;
use super::context::Context;
use super::error::CommandError;
use super::stopping::listen;
use crate::sim::{Scenario, SimError, SimOptions, Simulator};

/// Serves a scenario on loopback and says how to reach it.
pub fn run(context: &Context, args: &SimArgs) -> Result<(), CommandError> {
    if !args.listen.ip().is_loopback() {
        return Err(CommandError::invalid(format!(
            "--listen {}: the simulator serves on loopback only",
            args.listen
        ))
        .hint("name 127.0.0.1 or [::1]; whoever reaches it may do anything in it"));
    }
    let scenario = match &args.scenario {
        Some(path) => Scenario::from_file(path)?,
        None => Scenario::example()?,
    };
    let names: Vec<String> = scenario.repositories.iter().map(|repository| repository.name.clone()).collect();
    let token = scenario.tokens.first().map(|token| token.token.clone()).unwrap_or_default();
    let options = SimOptions { addr: args.listen, work_dir: args.keep.clone(), ..SimOptions::default() };
    context.block_on(async {
        let shutdown = listen()?;
        let simulator = Simulator::start(scenario, options).await?;
        let remotes: Vec<String> = names
            .iter()
            .filter_map(|name| name.split_once('/'))
            .map(|(owner, name)| simulator.remote_url(owner, name))
            .collect();
        if context.output.json() {
            context.output.json_line(&serde_json::json!({
                "base_url": simulator.base_url(),
                "api_url": simulator.api_url(),
                "graphql_url": simulator.graphql_url(),
                "remotes": remotes,
                "anthropic_base_url": simulator.model_url_anthropic(),
                "openai_base_url": simulator.model_url_openai(),
                "openai_responses_base_url": simulator.model_url_responses(),
                "gemini_base_url": simulator.model_url_gemini(),
                "admin_url": format!("{}/_sim", simulator.base_url()),
            }))?;
        } else {
            let line = |name: &str, value: &str| context.output.line(format!("{name:<20}{value}"));
            line("GITHUB_API_URL", &simulator.api_url())?;
            line("GITHUB_GRAPHQL_URL", &simulator.graphql_url())?;
            line("GITHUB_TOKEN", &token)?;
            for remote in &remotes {
                line("remote", remote)?;
            }
            line("anthropic base_url", &simulator.model_url_anthropic())?;
            line("openai base_url", &simulator.model_url_openai())?;
            line("responses base_url", &simulator.model_url_responses())?;
            line("gemini base_url", &simulator.model_url_gemini())?;
            line("state, admin", &format!("{}/_sim", simulator.base_url()))?;
            context.output.note(pointed(&simulator));
            context.output.note("serving until Ctrl-C");
        }
        shutdown.stopped().await;
        for violation in simulator.violations() {
            context.output.note(format!("violation: {violation}"));
        }
        simulator.shutdown().await;
        Ok(())
    })?
}

/// Configuration that points a repository at the simulator, for `--config FILE`.
fn pointed(simulator: &Simulator) -> String {
    format!(
        "\nTo point a repository here, for example with --config sim.toml (docs/simulator.md walks through it):\n\n\
         [github]\napi_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n\
         [providers.sim]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{SIM_MODEL_KEY}}\"\n\
         [[session.targets]]\nprovider = \"sim\"\nmodel = \"sim-model\"\nprice = {{ input = 3.0, output = 15.0 }}\n",
        simulator.api_url(),
        simulator.model_url_anthropic(),
    )
}

impl From<SimError> for CommandError {
    fn from(error: SimError) -> Self {
        match error {
            SimError::Listen { .. } => Self::failed(error.to_string()),
            _ => Self::invalid(error.to_string()).hint("docs/simulator.md describes scenario files"),
        }
    }
}
