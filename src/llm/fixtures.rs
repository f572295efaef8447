//! A request that the tests of this module share.

use std::time::Duration;

use crate::domain::message::Message;
use crate::domain::model_target::ModelTarget;
use crate::engine::model::{ModelRequest, ToolChoice};

/// A request of one system and one user message.
pub(super) fn request() -> ModelRequest {
    ModelRequest {
        target: ModelTarget {
            provider: "p".into(),
            model: "m".into(),
            context_window: 8000,
            context_window_buffer: 256,
            max_output_tokens: 1000,
            temperature: None,
            images: false,
            price: None,
        },
        messages: vec![Message::System { content: "rules".into() }, Message::User { content: "task".into() }]
            .into(),
        images: [].into(),
        tools: Vec::new().into(),
        tool_choice: ToolChoice::Auto,
        stream: false,
        timeout: Duration::from_secs(5),
    }
}
