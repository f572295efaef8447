//! Reasoning kept from a reply, to be sent back unchanged to the model that gave it.
//!
//! The value is opaque to the engine: `{wire, model, blocks}`. Blocks are the provider's own, in reply order; where the
//! reply's text and calls stood between them, there are marks, because their content lives in the message. Reasoning is
//! worth nothing to another wire or model, so it is left out there.

use serde_json::{Value, json};

use crate::domain::message::ToolCall;
use crate::engine::model::ModelRequest;

/// A mark's key; its value says what stood there.
const MARK: &str = "said";

/// Where the reply's text stood.
pub(super) fn text_mark() -> Value {
    json!({ MARK: "text" })
}

/// Where a call stood; [`wrap`] adds which.
pub(super) fn call_mark() -> Value {
    json!({ MARK: "call" })
}

/// Wraps the blocks of a reply, whose call marks are as many as its calls. `None` when there is nothing but marks.
pub(super) fn wrap(
    wire: &str,
    request: &ModelRequest,
    mut blocks: Vec<Value>,
    calls: &[ToolCall],
) -> Option<Value> {
    let bare = |block: &Value| block == &text_mark() || block == &call_mark();
    if blocks.iter().all(bare) {
        return None;
    }
    let marks = blocks.iter_mut().filter(|block| block[MARK] == "call");
    for (mark, call) in marks.zip(calls) {
        mark["id"] = json!(call.id);
    }
    Some(json!({ "wire": wire, "model": request.target.model, "blocks": blocks }))
}

/// The blocks, if this wire and the request's model gave them.
pub(super) fn recall<'a>(wrapped: Option<&'a Value>, wire: &str, request: &ModelRequest) -> &'a [Value] {
    let ours = |wrapped: &'a Value| {
        let same = wrapped.get("wire")?.as_str() == Some(wire)
            && wrapped.get("model")?.as_str() == Some(&request.target.model);
        wrapped.get("blocks")?.as_array().filter(|_| same)
    };
    wrapped.and_then(ours).map_or(&[], Vec::as_slice)
}

/// A piece of an assistant message, in the order the wire gave it.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// The message's text, and its mark.
    Text(&'a str, Option<&'a Value>),
    /// One of the message's calls, and its mark.
    Call(&'a ToolCall, Option<&'a Value>),
    /// A block of reasoning, verbatim.
    Reasoning(&'a Value),
}

/// The message with its reasoning at its place. Parts without a mark (reasoning of another wire, a changed
/// conversation) follow in the usual order: text, calls. Blank text is left out, because most providers refuse it.
pub(super) fn pieces<'a>(blocks: &'a [Value], text: &'a str, calls: &'a [ToolCall]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut placed = text.trim().is_empty();
    let mut called = vec![false; calls.len()];
    for block in blocks {
        match block.get(MARK).and_then(Value::as_str) {
            Some("text") => {
                if !placed {
                    pieces.push(Piece::Text(text, Some(block)));
                }
                placed = true;
            }
            Some(_) => {
                let place = calls.iter().position(|call| block["id"].as_str() == Some(&call.id));
                if let Some(place) = place.filter(|place| !called[*place]) {
                    pieces.push(Piece::Call(&calls[place], Some(block)));
                    called[place] = true;
                }
            }
            None => pieces.push(Piece::Reasoning(block)),
        }
    }
    if !placed {
        pieces.push(Piece::Text(text, None));
    }
    let unmarked = calls.iter().zip(called).filter(|(_, done)| !done);
    pieces.extend(unmarked.map(|(call, _)| Piece::Call(call, None)));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::request;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "echo".into(), arguments: "{}".into() }
    }

    #[test]
    fn a_044_reasoning_goes_back_to_the_model_that_gave_it_and_to_no_other() {
        let wrapped = wrap("anthropic", &request(), vec![json!({ "type": "thinking" })], &[]);
        assert_eq!(recall(wrapped.as_ref(), "anthropic", &request()).len(), 1);
        assert!(recall(wrapped.as_ref(), "openai", &request()).is_empty());
        let mut other = request();
        other.target.model = "n".into();
        assert!(recall(wrapped.as_ref(), "anthropic", &other).is_empty());
        assert!(recall(None, "anthropic", &request()).is_empty());
        assert_eq!(wrap("anthropic", &request(), vec![text_mark(), call_mark()], &[call("a")]), None);
    }

    #[test]
    fn pieces_stand_where_they_stood_and_calls_that_were_dropped_stay_dropped() {
        let thought = json!({ "type": "thinking" });
        let blocks = vec![thought.clone(), call_mark(), text_mark(), call_mark(), call_mark()];
        let calls = [call("a"), call("b"), call("c")];
        let wrapped = wrap("w", &request(), blocks, &calls).unwrap();
        let blocks = recall(Some(&wrapped), "w", &request());
        let order: Vec<String> = pieces(blocks, "text", &[call("d"), call("c"), call("a")])
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text, _) => text.to_owned(),
                Piece::Call(call, _) => call.id.clone(),
                Piece::Reasoning(block) => block["type"].as_str().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(order, ["thinking", "a", "text", "c", "d"]);
    }
}
