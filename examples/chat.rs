//! One turn of a conversation, as a host's chat endpoint would hold it.
//!
//! `cargo run --example chat -- DIRECTORY USER-UUID "What is on my list?"` where DIRECTORY has an `agentd.toml` with a
//! model and MCP servers.
#![expect(clippy::print_stdout, reason = "an example talks to a person")]

use std::path::Path;

use agentd::domain::run::PrincipalSource;
use agentd::service::{AgentStatus, ChatMessage, Service, Setup, run_agent, user};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, user_id, request] = arguments.as_slice() else {
        return Err("usage: chat DIRECTORY USER-UUID REQUEST".into());
    };
    let service = Service::open(Setup::in_directory(Path::new(directory))?).await?;

    // The host authenticated this user; nothing in the conversation can change who it is.
    let user = user(user_id, PrincipalSource::Bearer)?;
    // The host keeps the conversation: what the user says is stored before the agent is asked …
    let mut conversation = vec![ChatMessage::user(request.clone())];
    let config = service.agent_config().max_iterations(8)?;
    let response = run_agent(&service, &conversation, &user, Some(config)).await?;

    // … and an answer only if there is one.
    match response.status {
        AgentStatus::Error => println!("{} (error id {:?})", response.final_response, response.meta.error_id),
        AgentStatus::Completed | AgentStatus::MaxIterationsReached => {
            conversation.push(ChatMessage::assistant(response.final_response.clone()));
            println!("{}", response.final_response);
            println!("[{} iterations, {} ms]", response.iterations, response.meta.execution_time_ms);
        }
    }
    service.close().await;
    Ok(())
}
