//! The tools for a host with a model of its own: their definitions, and one call for a user.
//!
//! `cargo run --example tools -- DIRECTORY` lists them; with `USER-UUID TOOL JSON` behind it one is called.
#![expect(clippy::print_stdout, reason = "an example talks to a person")]

use std::path::Path;

use agentd::domain::run::PrincipalSource;
use agentd::service::{Service, Setup, bind_mcp_tools, execute_tool_call, user};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first() else {
        return Err("usage: tools DIRECTORY [USER-UUID TOOL JSON]".into());
    };
    let service = Service::open(Setup::in_directory(Path::new(directory))?).await?;
    match &arguments[1..] {
        [user_id, tool, json] => {
            let user = user(user_id, PrincipalSource::Bearer)?;
            let result = execute_tool_call(&service, tool, &serde_json::from_str(json)?, &user).await;
            println!("{}", serde_json::to_string_pretty(&result)?);
        }
        _ => {
            // These go into the `tools` of a chat completion as they are.
            for tool in bind_mcp_tools(&service) {
                println!("{}: {}", tool.function.name, tool.function.description);
            }
        }
    }
    service.close().await;
    Ok(())
}
