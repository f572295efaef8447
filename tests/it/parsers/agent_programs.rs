//! What agent programs say.

use super::*;

pub fn parsers() -> Vec<Parser> {
    let programs: [(&str, Backend, &[&str]); 5] = [
        (
            "events of Claude Code",
            Backend::ClaudeCode,
            &[concat!(
                r#"{"type":"system","session_id":"s","model":"m"}"#,
                "\n",
                r#"{"type":"assistant","message":{"id":"a","model":"m","usage":{"input_tokens":10,"output_tokens":1},"content":[{"type":"text","text":"x"}]}}"#,
                "\n",
                r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s","num_turns":2,"total_cost_usd":0.5,"usage":{"input_tokens":30,"cache_read_input_tokens":9},"structured_output":{"a":1}}"#,
                "\n"
            )],
        ),
        (
            "events of Codex",
            Backend::Codex,
            &[concat!(
                r#"{"type":"thread.started","thread_id":"t"}"#,
                "\n",
                r#"{"type":"turn.started"}"#,
                "\n",
                r#"{"type":"item.completed","item":{"type":"agent_message","text":"x"}}"#,
                "\n",
                r#"{"type":"turn.completed","usage":{"input_tokens":300,"cached_input_tokens":80,"output_tokens":15}}"#,
                "\n"
            )],
        ),
        (
            "events of Gemini CLI",
            Backend::Gemini,
            &[concat!(
                r#"{"type":"init","session_id":"s","model":"m"}"#,
                "\n",
                r#"{"type":"message","role":"assistant","content":"x","delta":true}"#,
                "\n",
                r#"{"type":"tool_use"}"#,
                "\n",
                r#"{"type":"result","status":"error","error":{"message":"no"},"stats":{"input_tokens":100,"cached":40,"output_tokens":7}}"#,
                "\n"
            )],
        ),
        (
            "events of OpenCode",
            Backend::OpenCode,
            &[concat!(
                r#"{"type":"step_start","sessionID":"s"}"#,
                "\n",
                r#"{"type":"text","sessionID":"s","part":{"text":"x"}}"#,
                "\n",
                r#"{"type":"step_finish","sessionID":"s","part":{"cost":0.1,"tokens":{"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}}}}"#,
                "\n",
                r#"{"type":"error","error":{"data":{"message":"no"}}}"#,
                "\n"
            )],
        ),
        (
            "messages of ACP",
            Backend::Acp,
            &[concat!(
                r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"text":"x"}}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"toolCall":{"kind":"edit","locations":[{"path":"a"}],"rawInput":{"command":["a"]}},"options":[{"kind":"reject_once","optionId":"n"}]}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"usage_update","cost":{"amount":0.5,"currency":"USD"}}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}}"#,
                "\n"
            )],
        ),
    ];
    let parser_of = |(name, backend, seeds)| {
        parser(name, seeds, move |bytes| size(&wait(agents::read_output(backend, bytes))))
    };
    programs.into_iter().map(parser_of).collect()
}
