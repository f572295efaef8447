//! The tools that a server lists, page by page. An error in one tool costs only that tool.

use std::collections::BTreeSet;

use rmcp::ServiceError;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::{Peer, RoleClient};
use serde_json::Value;

/// Most pages.
const PAGES: usize = 200;
/// Most tools of one server: models are sent all of them.
const TOOLS: usize = 1000;
/// Longest name of a tool, in bytes.
const NAME: usize = 256;
/// Longest description, in bytes.
const DESCRIPTION: usize = 32 * 1024;
/// Largest input schema, in bytes.
const SCHEMA: usize = 256 * 1024;

/// What a server lists.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub tools: Vec<Tool>,
    /// What of it cannot be used: the tool's name, and why.
    pub left_out: Vec<(String, String)>,
}

/// Asks for all pages.
pub(super) async fn list(peer: &Peer<RoleClient>) -> Result<Listing, ServiceError> {
    let mut listing = Listing::default();
    let mut seen = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let next = match peer.send_request(request).await? {
            ServerResult::ListToolsResult(page) => {
                page.tools.into_iter().for_each(|tool| listing.take(tool));
                page.next_cursor
            }
            // One of them is not as it should be: each by itself.
            ServerResult::CustomResult(page) => listing.page(page.0)?,
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        let Some(next) = next else { return Ok(listing) };
        if listing.tools.len() >= TOOLS {
            listing.leave(
                "…",
                format!("the server lists more than {TOOLS} tools; those that follow are left out"),
            );
            return Ok(listing);
        }
        if !seen.insert(next.clone()) {
            listing.leave("…", "the server's list of tools begins again and again".to_owned());
            return Ok(listing);
        }
        cursor = Some(next);
    }
    listing.leave("…", format!("the server's list of tools has more than {PAGES} pages"));
    Ok(listing)
}

impl Listing {
    fn page(&mut self, mut page: Value) -> Result<Option<String>, ServiceError> {
        let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
        let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
            return Err(ServiceError::UnexpectedResponse);
        };
        for tool in tools {
            let name = tool.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned();
            let (schema, is_object) = (tool.get("inputSchema").cloned(), tool.is_object());
            match (schema, serde_json::from_value::<Tool>(tool)) {
                (_, Ok(tool)) => self.take(tool),
                (None, Err(_)) if is_object => self.leave(&name, "it has no inputSchema".to_owned()),
                (Some(schema), Err(_)) if !schema.is_object() => {
                    self.leave(&name, "its inputSchema is not an object".to_owned());
                }
                (_, Err(error)) => self.leave(&name, error.to_string()),
            }
        }
        Ok(next)
    }

    fn take(&mut self, tool: Tool) {
        let description = tool.description.as_ref().map_or(0, |text| text.len());
        let schema = serde_json::to_vec(&tool.input_schema).map_or(usize::MAX, |text| text.len());
        let why = if tool.name.trim().is_empty() {
            "it has no name".to_owned()
        } else if tool.name.len() > NAME {
            format!("its name has {} bytes, more than {NAME}", tool.name.len())
        } else if description > DESCRIPTION {
            format!("its description has {description} bytes, more than {DESCRIPTION}")
        } else if schema > SCHEMA {
            format!("its inputSchema has {schema} bytes, more than {SCHEMA}")
        } else if self.tools.iter().any(|known| known.name == tool.name) {
            "another tool of the server has the same name".to_owned()
        } else if self.tools.len() >= TOOLS {
            format!("the server lists more than {TOOLS} tools")
        } else {
            self.tools.push(tool);
            return;
        };
        self.leave(&tool.name, why);
    }

    /// If many tools cannot be used, the message names the first ones.
    fn leave(&mut self, name: &str, why: String) {
        const TOLD: usize = 20;
        if self.left_out.len() >= TOLD {
            return;
        }
        let plain = |text: &str| -> String {
            text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).take(200).collect()
        };
        self.left_out.push((plain(name), plain(&why)));
    }
}

/// Neither of the terminal's controls nor one that changes how text reads.
pub(super) fn is_plain(c: char) -> bool {
    let hidden = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !hidden
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(tools: Value) -> Listing {
        let mut listing = Listing::default();
        listing.page(json!({ "tools": tools })).unwrap();
        listing
    }

    #[test]
    fn a_tool_that_is_none_costs_itself() {
        let schema = json!({ "type": "object" });
        let good = json!({ "name": "good", "inputSchema": schema });
        for (tool, why) in [
            (json!({ "name": "x" }), "it has no inputSchema"),
            (json!({ "name": "x", "inputSchema": [] }), "its inputSchema is not an object"),
            (json!({ "name": "x", "inputSchema": null }), "its inputSchema is not an object"),
            (json!({ "name": 7, "inputSchema": schema }), "invalid type"),
            (json!({ "inputSchema": schema }), "missing field"),
            (json!({ "name": " ", "inputSchema": schema }), "it has no name"),
            (json!({ "name": "n".repeat(257), "inputSchema": schema }), "its name has 257 bytes"),
            (
                json!({ "name": "x", "description": "d".repeat(40_000), "inputSchema": schema }),
                "its description has",
            ),
            (
                json!({ "name": "x", "inputSchema": { "type": "object", "description": "d".repeat(300_000) } }),
                "its inputSchema has",
            ),
            (good.clone(), "another tool of the server has the same name"),
            (json!("not even an object"), "invalid type"),
        ] {
            let listing = listed(json!([good, tool]));
            assert_eq!(listing.tools.len(), 1, "{tool}");
            let [(_, told)] = &listing.left_out[..] else { panic!("{tool}: {listing:?}") };
            assert!(told.contains(why), "{told}");
        }
        let names = listed(json!([{ "name": "a\u{1b}[2Jb\u{202e}c" }])).left_out;
        assert_eq!(names[0].0, "a\u{fffd}[2Jb\u{fffd}c");
    }

    #[test]
    fn there_are_so_many_tools_and_no_more() {
        let tools: Vec<Value> =
            (0..TOOLS + 50).map(|at| json!({ "name": format!("t{at}"), "inputSchema": {} })).collect();
        let listing = listed(json!(tools));
        assert_eq!((listing.tools.len(), listing.left_out.len()), (TOOLS, 20));
    }
}
