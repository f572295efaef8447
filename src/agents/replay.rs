//! Reads the output of a program without the program. For tests with output that no program writes.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::events::Signal;
use super::lines::{Line, Lines};
use super::program::{Before, OutputFormat, read_line};
use crate::domain::agent_program::Backend;
use crate::engine::agent_output::{AgentOutput, AgentProgress};
use crate::engine::agent_task::AgentTask;
use crate::engine::agent_tools::AgentTools;

/// Reads the whole standard output of a program of this kind and gives what it means.
#[doc(hidden)]
pub async fn read_output(backend: Backend, output: &[u8]) -> AgentOutput {
    let progress = AgentProgress::default();
    let OutputFormat::Events(mut reader) = super::program(backend).output_format(Before::default()) else {
        // Nobody answers: what the program asks for is not allowed.
        let (tools, _) = AgentTools::new(Arc::from([]));
        let (prompt, cancel) = ("Work.".to_owned(), CancellationToken::new());
        let task = AgentTask {
            earlier: Default::default(),
            prompt,
            resume: None,
            anew: None,
            read_only: false,
            schema: None,
            progress: progress.clone(),
            tools,
            orders: None,
            cancel,
        };
        super::acp::read_output(&task, output).await;
        return progress.so_far();
    };
    let mut lines = Lines::new(output);
    while let Ok(Line::Text(line)) = lines.next().await {
        if read_line(reader.as_mut(), &line, &progress) != Signal::More {
            break;
        }
    }
    progress.so_far()
}
