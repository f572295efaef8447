//! What GitHub, MCP servers and people say.

use super::*;

pub fn limits_of_github() -> Parser {
    of_answers(
        "limits of GitHub",
        &[
            "403\ndate: Sat, 21 Nov 2026 08:00:00 GMT\nx-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1795248090\nx-ratelimit-resource: core\n\nAPI rate limit exceeded",
            "429\nretry-after: 99999999999999999\n\nslow\n===\n429\n\nsecondary rate limit\n===\n200\n\n",
        ],
        |answers| {
            let answers = answers.iter().map(|(status, headers, body)| (*status, headers, body.as_str()));
            size(&github::read_limits(answers))
        },
    )
}

pub fn parsers() -> Vec<Parser> {
    let mut all = vec![
        parser(
            "signatures of webhooks",
            &[
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
                "{\"action\":\"labeled\"}",
            ],
            |bytes| {
                let header = String::from_utf8_lossy(bytes);
                usize::from(http::is_signed(b"a secret of sixteen", bytes, &header))
            },
        ),
        parser(
            "MCP messages",
            &[
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"isError":false,"structuredContent":{"a":1}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","description":"d","inputSchema":{"type":"object","properties":{"a":{"$ref":"other"}}}}]}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#,
            ],
            |bytes| {
                let message = serde_json::from_slice::<rmcp::model::ServerJsonRpcMessage>(bytes);
                let whole = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
                let result = serde_json::from_value(whole["result"].clone())
                    .map(rmcp::model::CallToolResponse::Complete);
                let read = result.ok().map(|result| size(&mcp::read_answer("server", Ok(result))));
                size(&message.is_ok()) + read.unwrap_or(0)
            },
        ),
        parser("answers of policy programs", &[r#"{"decision":"allow","reason":"r"}"#], |bytes| {
            size(&policy_program::read_answer(bytes))
        }),
        parser("policy questions", &[r#"{"kind":"tool","tool":"x","arguments":{"path":"a"}}"#], |bytes| {
            serde_json::from_slice::<Value>(bytes).map_or(0, |value| size(&read_question(&value)))
        }),
    ];
    all.extend([
        of_text(
            "issue text",
            &["# Title\n\n- [ ] a\n<!-- b -->\n### What happened?\n\n_No response_\n", "@you closes #1 /cmd"],
            |text| {
                let incoming = shown_markdown::shown(text);
                let line = untrusted::plain_line(text, 256);
                untrusted::fence("issue", &incoming).len()
                    + untrusted::fence("title", &line).len()
                    + untrusted::visible(text).len()
            },
        ),
        of_text(
            "text for GitHub",
            &["fixes #12, see @org/team <b>x</b> `a`", "/deploy\n\n```\nx\n```"],
            |text| {
                outgoing::body(text, Some(1)).len()
                    + outgoing::title(text).len()
                    + outgoing::commit_text(text, None).len()
                    + outgoing::plain_line(text, 100).len()
                    + outgoing::cut(text, 100, "cut").len()
            },
        ),
        parser(
            "issues from files",
            &["# Title\n\nBody\n", "Title\n=====\n\n```\n# no\n```\n"],
            in_folder("7.md", |folder| {
                let repo = RepoName::parse("o/n").unwrap_or_else(|error| panic!("{error}"));
                size(&issue::file::read(&folder.join("7.md"), &repo).is_ok())
            }),
        ),
        parser(
            "git's configuration",
            &[
                "local\0core.hookspath\n/x\0global\0filter.lfs.clean\ngit-lfs\0",
                "worktree\0url.x.insteadof\ny\0",
            ],
            |bytes| size(&git::hardening::judge(bytes)),
        ),
        of_text("what git says when it fails", &["fatal: x\nremote: y\n", "error: a\r\nhint: b"], |text| {
            git::error::last_lines(text).len()
        }),
        of_text(
            "names of git",
            &[
                "refs/heads/x",
                "0123456789012345678901234567890123456789",
                "git@github.com:o/n.git",
                "https://u:p@h:1/o/n.git",
                "[::1]:80",
            ],
            |text| {
                size(&BranchName::parse(text))
                    + size(&CommitId::parse(text))
                    + size(&RepoName::from_remote_url(text))
                    + size(&egress::split(text))
            },
        ),
    ]);
    all
}
