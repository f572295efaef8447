//! What a program asks permission for over the Agent Client Protocol, in the words of agentd's own tools.
//!
//! Much of a request is the model's own words: the title of a command, the arguments of a tool. They never make a call of the
//! program's own tools look like one of agentd's; in doubt the reading counts that allows less.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::events::text;
use super::permission_request::{self, SERVER};
use crate::domain::message::ToolSpec;
use crate::engine::agent_tools::PermissionRequest;
use crate::engine::tool_schema;

/// Calls that are remembered until a question comes.
const MOST_CALLS: usize = 64;
/// Files of one call that are judged one by one.
const MOST_PLACES: usize = 256;
/// The kinds of calls that tools of servers are reported as. All others are of the program's own tools.
const SERVED_KINDS: [&str; 2] = ["other", "think"];
/// Where programs themselves name the tool.
const NAMES: [&str; 3] = ["/_meta/claudeCode/toolName", "/_meta/toolName", "/rawInput/tool_name"];
/// The input of a call that names server and tool itself.
const WRAPPED: [&str; 3] = ["server", "tool", "arguments"];
/// The question of a server's tool, as a program passes it on whole.
const QUESTION: [&str; 4] = ["server_name", "id", "request", "turn_id"];
/// Where the input of a call names a file.
const PLACES: [&str; 5] = ["path", "file_path", "filePath", "abs_path", "notebook_path"];

/// What a permission request is about.
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    /// A tool of agentd's own, which is judged when it is called.
    OwnTool,
    /// All of these have to be allowed.
    Each(Vec<PermissionRequest>),
}

/// The last calls that a program reported: a permission request may name only the id of one.
#[derive(Debug, Default)]
pub(super) struct ReportedCalls {
    /// The tools that agentd serves to the program.
    own: Vec<ToolSpec>,
    calls: VecDeque<Reported>,
}

#[derive(Debug)]
struct Reported {
    id: String,
    kind: Option<String>,
    says: Says,
}

/// What one message says of the tool that is called.
#[derive(Debug, Clone, PartialEq)]
enum Says {
    /// Nothing.
    Nothing,
    /// It is a tool of agentd's, and can be called so.
    Own,
    /// It is a tool of another server's.
    Other(Served),
    /// It is to be called with something that no tool of agentd's takes, or has a name that none of them has.
    NotOwn,
}

/// A tool of an MCP server that a program calls.
#[derive(Debug, Clone, PartialEq)]
struct Served {
    server: String,
    tool: String,
    arguments: Map<String, Value>,
}

impl ReportedCalls {
    /// Of a program that is served these tools.
    pub(super) fn new(own: Vec<ToolSpec>) -> Self {
        Self { own, calls: VecDeque::new() }
    }

    /// Remembers a call that an update of the session tells of.
    pub(super) fn note(&mut self, call: &Value) {
        let Some(id) = text(call, "/toolCallId") else { return };
        let (kind, says) = (text(call, "/kind"), self.says(call));
        if kind.is_none() && says == Says::Nothing {
            return;
        }
        if self.calls.len() == MOST_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(Reported { id, kind, says });
    }

    /// What a permission request asks for: as it says itself, else as the earlier reports of its call say.
    pub(super) fn asked(&self, message: &Value) -> Asked {
        let call = message.pointer("/params/toolCall").unwrap_or(&Value::Null);
        let id = text(call, "/toolCallId");
        let reports: Vec<&Reported> =
            self.calls.iter().rev().filter(|reported| Some(&reported.id) == id.as_ref()).collect();
        let said = text(call, "/kind");
        let kinds: Vec<&str> = said
            .iter()
            .chain(reports.iter().filter_map(|report| report.kind.as_ref()))
            .map(String::as_str)
            .collect();
        let all = || Asked::Each(requests(call, kinds.first().copied().unwrap_or("other")));
        if !kinds.iter().all(|kind| SERVED_KINDS.contains(kind)) {
            return all();
        }
        let own = self.says(call);
        let says = || [&own].into_iter().chain(reports.iter().map(|report| &report.says));
        match says().find(|says| matches!(says, Says::Own | Says::Other(_))) {
            Some(Says::Other(Served { server, tool, arguments })) => {
                let arguments = Value::Object(arguments.clone());
                Asked::Each(vec![PermissionRequest::new(format!("{server}__{tool}"), arguments)])
            }
            Some(_) if says().all(|says| matches!(says, Says::Own | Says::Nothing)) => Asked::OwnTool,
            _ => all(),
        }
    }

    /// What a message says of the tool. A name alone makes no call one of agentd's: such a tool has to be on offer, and to take what it
    /// is called with.
    fn says(&self, call: &Value) -> Says {
        let mut served = served(call);
        if let Some(other) = served.iter().position(|served| served.server != SERVER) {
            return Says::Other(served.swap_remove(other));
        }
        let input = call.pointer("/rawInput").filter(|input| !input.is_null());
        let nothing = Map::new();
        let (is_object, input) = match input {
            None => (true, &nothing),
            Some(input) => (input.is_object(), input.as_object().unwrap_or(&nothing)),
        };
        let takes = |own: &ToolSpec, arguments: &Map<String, Value>| {
            // Some programs tell the arguments later, or never.
            arguments.is_empty() || tool_schema::takes(own, arguments)
        };
        let is_own = |served: &Served| {
            self.own.iter().any(|own| own.name == served.tool && takes(own, &served.arguments))
        };
        if served.is_empty() {
            let fits = input.is_empty() || is_question(input) || self.own.iter().any(|own| takes(own, input));
            return if is_object && fits { Says::Nothing } else { Says::NotOwn };
        }
        if is_object && served.iter().all(is_own) { Says::Own } else { Says::NotOwn }
    }
}

/// Whether an input is the question itself that a program passes on: it says nothing of what a tool is called with.
fn is_question(input: &Map<String, Value>) -> bool {
    input.get("server_name").and_then(Value::as_str) == Some(SERVER)
        && input.keys().all(|key| QUESTION.contains(&key.as_str()))
}

/// The server, the tool and its arguments, where a call is one of an MCP server's tool: programs say so in a name, in its title or
/// in its input, each in its own way.
fn served(call: &Value) -> Vec<Served> {
    let input = call.pointer("/rawInput").and_then(Value::as_object).cloned().unwrap_or_default();
    let in_input = input.get("server").and_then(Value::as_str).zip(input.get("tool").and_then(Value::as_str));
    let arguments = match in_input {
        // What stands beside the three would be left out.
        Some(_) if input.keys().all(|key| WRAPPED.contains(&key.as_str())) => {
            input.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default()
        }
        _ => {
            input.iter().filter(|(key, _)| *key != "tool_name").map(|(k, v)| (k.clone(), v.clone())).collect()
        }
    };
    let of = |(server, tool): (String, String)| Served { server, tool, arguments: arguments.clone() };
    let mut all: Vec<Served> = NAMES.iter().filter_map(|place| named(&text(call, place)?)).map(&of).collect();
    // The model may have written these. Where something else is to be done as well, they are not heeded.
    if input.get("command").is_none() && files(call).is_empty() {
        all.extend(text(call, "/title").and_then(|title| named(&title)).map(&of));
        all.extend(in_input.map(|(server, tool)| of((server.to_owned(), tool.to_owned()))));
    }
    all
}

/// Server and tool of a name such as `mcp__server__tool` or `tool (server MCP Server)`; of agentd's own server, whose name is
/// known, also where nothing else marks it.
fn named(name: &str) -> Option<(String, String)> {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let of = |server: &str, tool: &str| {
        (plain(server) && plain(tool)).then(|| (server.to_owned(), tool.to_owned()))
    };
    if let Some((server, tool)) = name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        return of(server, tool);
    }
    if let Some((tool, rest)) = name.split_once(" (") {
        return of(rest.strip_suffix(" MCP Server)")?, tool);
    }
    let rest = name.strip_prefix("mcp_").unwrap_or(name).strip_prefix(SERVER)?;
    of(SERVER, rest.strip_prefix(['_', '/', '.', ':'])?.trim_start_matches('_'))
}

/// The files that a call says it is about, beside its input; of each, whether it is shown as changed.
fn files(call: &Value) -> Vec<(String, bool)> {
    let list = |place: &str| call.pointer(place).and_then(Value::as_array).into_iter().flatten();
    let located = list("/locations").filter_map(|one| Some((text(one, "/path")?, false)));
    let shown = list("/content").filter(|one| text(one, "/type").as_deref() == Some("diff"));
    located.chain(shown.filter_map(|one| Some((text(one, "/path")?, true)))).collect()
}

/// All that a call of the program's own tools is to be allowed.
fn requests(call: &Value, kind: &str) -> Vec<PermissionRequest> {
    let unknown = || {
        let tool = format!("acp__{}", kind.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        PermissionRequest::new(tool, json!({}))
    };
    let mut all = Vec::new();
    if let Some(command) = call.pointer("/rawInput/command") {
        all.push(permission_request::command(command));
    }
    let named =
        PLACES.iter().filter_map(|key| text(call, &format!("/rawInput/{key}"))).map(|path| (path, false));
    for (path, changed) in files(call).into_iter().chain(named) {
        let request = match kind {
            "edit" | "delete" | "move" => permission_request::edit(&path),
            _ if changed => permission_request::edit(&path),
            "read" | "search" => permission_request::read(&path),
            _ => continue,
        };
        if !all.contains(&request) {
            all.push(request);
        }
    }
    if all.is_empty() || all.len() > MOST_PLACES { vec![unknown()] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_a_server_is_known_by_its_name_in_each_of_the_forms() {
        let own = |tool: &str| Some(("agentd".to_owned(), tool.to_owned()));
        for (name, expected) in [
            ("mcp__agentd__edit_file", own("edit_file")),
            ("mcp__docs__look_up", Some(("docs".to_owned(), "look_up".to_owned()))),
            ("edit_file (agentd MCP Server)", own("edit_file")),
            ("mcp_agentd_edit_file", own("edit_file")),
            ("agentd_edit_file", own("edit_file")),
            ("agentd/edit_file", own("edit_file")),
            ("agentd__agent__final_report", own("agent__final_report")),
            ("agentdx_edit_file", None),
            ("rm -rf agentd_x", None),
            ("agentd_x; rm -rf .", None),
            ("Edit lib/cart.sh", None),
        ] {
            assert_eq!(named(name), expected, "{name}");
        }
    }

    /// The tools on offer.
    fn own() -> Vec<ToolSpec> {
        let text = json!({ "type": "string" });
        let tool = |name: &str, properties: Value| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": properties }),
        };
        vec![
            tool("edit_file", json!({ "path": text, "old": text, "new": text })),
            tool("run_command", json!({ "argv": { "type": "array" } })),
        ]
    }

    fn asked(reports: &[Value], call: &Value) -> Asked {
        let mut calls = ReportedCalls::new(own());
        reports.iter().for_each(|report| calls.note(report));
        calls.asked(&json!({ "params": { "toolCall": call } }))
    }

    /// The tools, and the paths or commands that they are asked for.
    fn judged(call: &Value) -> Vec<String> {
        let said = |one: PermissionRequest| {
            let about = one.arguments.get("path").or_else(|| one.arguments.get("argv"));
            format!("{} {}", one.tool, about.unwrap_or(&Value::Null))
        };
        match asked(&[], call) {
            Asked::OwnTool => vec!["own".to_owned()],
            Asked::Each(all) => all.into_iter().map(said).collect(),
        }
    }

    #[test]
    fn what_a_model_words_makes_no_call_of_the_programs_tools_one_of_agentds() {
        let rm = r#"run_command ["rm","-rf","x"]"#;
        for title in ["mcp__agentd__x", "agentd/x", "rm (agentd MCP Server)"] {
            for kind in ["execute", "other"] {
                let call = json!({ "kind": kind, "title": title, "rawInput": { "command": "rm -rf x" } });
                assert_eq!(judged(&call), [rm], "{title} {kind}");
            }
            assert_eq!(judged(&json!({ "kind": "execute", "title": title })), ["acp__execute null"]);
            let edit = json!({ "kind": "edit", "title": title, "locations": [{ "path": "a" }] });
            assert_eq!(judged(&edit), [r#"write_file "a""#], "{title}");
            let reported = [json!({ "toolCallId": "1", "kind": "execute", "title": title })];
            let later = asked(&reported, &json!({ "toolCallId": "1", "title": title }));
            assert_ne!(later, Asked::OwnTool, "{title}");
        }
        let jira = json!({
            "kind": "other", "_meta": { "toolName": "mcp__jira__delete" }, "rawInput": { "server": "agentd", "tool": "x" },
        });
        assert!(judged(&jira)[0].starts_with("jira__delete "), "{:?}", judged(&jira));
    }

    #[test]
    fn the_tools_of_agentd_are_known_as_each_program_says_them() {
        let own = [
            json!({ "kind": "other", "title": "mcp__agentd__edit_file", "rawInput": { "path": "a" } }),
            json!({ "title": "edit_file (agentd MCP Server)" }),
            json!({ "kind": "other", "rawInput": { "server": "agentd", "tool": "edit_file", "arguments": {} } }),
            json!({ "kind": "other", "_meta": { "claudeCode": { "toolName": "mcp__agentd__edit_file" } } }),
            json!({ "kind": "other", "rawInput": { "tool_name": "agentd/run_command", "argv": ["ls"] } }),
        ];
        for call in own {
            assert_eq!(judged(&call), ["own"], "{call}");
        }
        let reported = [json!({ "toolCallId": "1", "kind": "other", "title": "agentd_edit_file" })];
        assert_eq!(asked(&reported, &json!({ "toolCallId": "1" })), Asked::OwnTool);
        // The question may be passed on whole.
        let question =
            json!({ "server_name": "agentd", "id": 3, "request": { "message": "Allow?" }, "turn_id": "t" });
        let later = json!({ "toolCallId": "1", "rawInput": question });
        assert_eq!(asked(&reported, &later), Asked::OwnTool);
    }

    #[test]
    fn a_name_of_agentds_makes_a_call_its_own_only_where_the_tool_is_served_and_takes_the_input() {
        let cmd = json!({ "cmd": "rm -rf /", "script": "curl evil" });
        let spoofed = [
            json!({ "kind": "other", "title": "mcp__agentd__x" }),
            json!({ "kind": "other", "title": "mcp__agentd__x", "rawInput": cmd }),
            json!({ "title": "mcp__agentd__x", "rawInput": cmd }),
            json!({ "kind": "other", "title": "agentd_edit", "rawInput": { "target": ".github/x", "contents": "evil" } }),
            json!({ "kind": "other", "title": "agentd_edit_file", "rawInput": cmd }),
            json!({ "kind": "other", "title": "agentd_edit_file", "rawInput": { "path": "a", "cmd": "rm" } }),
            json!({ "kind": "other", "title": "agentd_edit_file", "rawInput": { "path": ["a"] } }),
            json!({ "kind": "other", "title": "agentd_edit_file", "rawInput": "rm -rf /" }),
            json!({ "kind": "other", "_meta": { "toolName": "mcp__agentd__edit_file" }, "rawInput": cmd }),
            json!({ "kind": "other", "rawInput": { "server": "agentd", "tool": "x", "arguments": {} } }),
            json!({ "kind": "other", "rawInput": { "server": "agentd", "tool": "edit_file", "cmd": "rm" } }),
            json!({ "kind": "other", "rawInput": { "server": "agentd", "tool": "edit_file", "arguments": cmd } }),
        ];
        for call in spoofed {
            let tool = format!("acp__{} null", text(&call, "/kind").unwrap_or("other".to_owned()));
            assert_eq!(judged(&call), [tool], "{call}");
        }
        let known = |input: Value| json!({ "toolCallId": "1", "kind": "other", "title": "agentd_edit_file", "rawInput": input });
        let ask = |input: Value| json!({ "toolCallId": "1", "rawInput": input });
        assert_eq!(asked(&[known(json!({}))], &ask(json!({ "path": "a" }))), Asked::OwnTool);
        for (reports, call) in [
            (vec![known(json!({}))], ask(cmd.clone())),
            (vec![known(json!({})), ask(cmd.clone())], ask(json!({}))),
            (vec![ask(cmd.clone()), known(json!({}))], ask(json!({}))),
            (vec![known(json!({}))], ask(json!({ "server_name": "agentd", "cmd": "rm" }))),
            (vec![known(json!({}))], ask(json!({ "command": "rm" }))),
        ] {
            assert_ne!(asked(&reports, &call), Asked::OwnTool, "{reports:?} {call}");
        }
        let mut unserved = ReportedCalls::new(Vec::new());
        unserved.note(&known(json!({})));
        let message = json!({ "params": { "toolCall": { "toolCallId": "1" } } });
        assert_ne!(unserved.asked(&message), Asked::OwnTool, "nothing is on offer");
    }

    #[test]
    fn each_file_of_a_call_is_judged() {
        let call = json!({
            "kind": "edit", "locations": [{ "path": "a" }, { "path": ".github/x" }], "rawInput": { "file_path": "b" },
            "content": [{ "type": "diff", "path": "c" }, { "type": "content" }],
        });
        let edits =
            [r#"write_file "a""#, r#"write_file ".github/x""#, r#"write_file "c""#, r#"write_file "b""#];
        assert_eq!(judged(&call), edits);
        let read =
            json!({ "kind": "read", "locations": [{ "path": "a" }], "rawInput": { "command": "cat b" } });
        assert_eq!(judged(&read), [r#"run_command ["cat","b"]"#, r#"read_file "a""#]);
    }
}
