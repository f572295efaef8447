//! `agentd chat`: one turn of a conversation (run_agent).

use std::io::Read as _;

use serde_json::Value;

use super::args::ChatArgs;
use super::context::Context;
use super::error::CommandError;
use super::stopping::listen;
use super::tools_command;
use crate::domain::run::{Principal, PrincipalSource};
use crate::domain::stop::StopDetail;
use crate::service::{
    AgentResponse, AgentStatus, ChatMessage, InvalidRequest, Service, messages_of, run_agent, unopened, user,
};
use crate::sys::clock::Stopwatch;

/// Longest file of messages that is read, in bytes.
const LONGEST_FILE: u64 = 64 * 1024 * 1024;

/// Answers, and gives the exit code.
pub fn run(context: &Context, args: &ChatArgs) -> Result<u8, CommandError> {
    let user = user(&args.user, PrincipalSource::Local)?;
    let history = history(args)?;
    let setup = tools_command::setup(context)?;
    let response = context.block_on(async {
        let watch = Stopwatch::start();
        let service = match Service::open(setup).await {
            Err(refusal) if context.output.json() => {
                let response = unopened(&refusal, &history, watch);
                context.output.say_only(&refusal.into());
                return Ok(response);
            }
            opened => opened?,
        };
        service.ready()?;
        tools_command::tell_warnings(context, &service);
        let answered = answered(args, &service, &history, &user).await;
        service.close().await;
        answered
    })??;
    tell(context, &response)?;
    Ok(exit_code(&response))
}

async fn answered(
    args: &ChatArgs,
    service: &Service,
    history: &[ChatMessage],
    user: &Principal,
) -> Result<AgentResponse, CommandError> {
    let mut config = service.agent_config();
    if let Some(iterations) = args.max_iterations {
        config = config.max_iterations(iterations)?;
    }
    if let Some(model) = &args.model {
        config = config.model(model);
    }
    let shutdown = listen()?;
    let answering = run_agent(service, history, user, Some(config));
    tokio::pin!(answering);
    let response = tokio::select! {
        response = &mut answering => response,
        () = shutdown.stopped() => {
            service.ask_to_stop();
            tokio::select! {
                response = &mut answering => response,
                () = shutdown.aborted() => {
                    service.abort();
                    answering.await
                }
            }
        }
    };
    Ok(response?)
}

fn history(args: &ChatArgs) -> Result<Vec<ChatMessage>, CommandError> {
    let path = args.messages.display();
    let unreadable = |error: std::io::Error| {
        CommandError::invalid(format!("{path} cannot be read: {error}"))
            .hint("write a JSON list: [{\"role\": \"user\", \"content\": \"…\"}]")
    };
    let mut text = String::new();
    let read = if args.messages.as_os_str() == "-" {
        std::io::stdin().lock().take(LONGEST_FILE).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(&args.messages).map_err(unreadable)?;
        file.take(LONGEST_FILE).read_to_string(&mut text)
    };
    read.map_err(unreadable)?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| InvalidRequest(format!("{path} is not JSON: {error}")))?;
    Ok(messages_of(&value)?)
}

fn tell(context: &Context, response: &AgentResponse) -> Result<(), CommandError> {
    let output = context.output;
    if output.json() {
        return output.document(response);
    }
    if let Some(warning) = &response.warning {
        output.note(format!("warning: {warning}"));
    }
    match (&response.error, response.meta.error_id) {
        (Some(error), Some(id)) => {
            let run = response.meta.run_id;
            output.note(format!("{error}\nerror id {id}, in the journal of run {run}"));
            Ok(())
        }
        _ => output.line(&response.final_response),
    }
}

/// 0 with an answer or a summary; else the exit code of what ended it.
fn exit_code(response: &AgentResponse) -> u8 {
    if response.status != AgentStatus::Error && response.error.is_none() {
        return 0;
    }
    let detail = StopDetail::ALL.iter().find(|detail| detail.as_str() == response.finish_reason);
    detail.map_or(1, |detail| detail.exit_code())
}

impl From<InvalidRequest> for CommandError {
    fn from(error: InvalidRequest) -> Self {
        Self::invalid(error.to_string())
    }
}
