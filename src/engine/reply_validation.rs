//! Checks a reply: it is accepted with its proposals, or rejected with guidance for the next attempt (A-044…A-049,
//! A-055, A-063…A-071, C-06). It runs nothing and asks nobody.

use serde_json::Value;

use super::arguments;
use super::envelope::{CallAnswer, CallRefusal};
use super::model::{ModelReply, ReplyStop};
use super::report::{FINAL_REPORT, ModelReport, ReportProblem, ReportShape};
use super::ruling::{Phase, Proposal, ReportCall};
use crate::domain::message::Message;
use crate::domain::untrusted::is_blank;

/// How a session ends (C-06, C-07).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionMode {
    /// A step visit. Only a final report completes it; text counts in the final turn only.
    Task,
    /// A conversation. Text completes it; the last turn is a summary without tools.
    Chat,
}

/// An accepted reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidReply {
    /// Its calls, in reply order.
    pub proposals: Vec<Proposal>,
    /// The session's report, where the reply brings it.
    pub report: Option<ModelReport>,
}

impl ValidReply {
    /// Whether the reply tried a report that was not valid (A-070).
    pub fn failed_report(&self) -> bool {
        self.report.is_none()
            && self.proposals.iter().any(|proposal| matches!(proposal.report, ReportCall::Invalid(_)))
    }
}

/// A reply that cannot be used; it counts as an attempt (A-046).
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// Stable word, see `Event::ReplyRejected`.
    pub reason: &'static str,
    /// What the model is told. It is sent with the next attempt and not kept in the conversation (A-045).
    pub guidance: String,
    /// Calls of the reply that are answered by a refusal.
    pub refused: Vec<(Proposal, CallRefusal)>,
    /// The reply tried a report (A-070).
    pub report_tried: bool,
    /// How a schema was broken (A-043).
    pub schema: Option<String>,
}

impl Rejection {
    fn new(reason: &'static str, guidance: impl Into<String>) -> Self {
        Self { reason, guidance: guidance.into(), refused: Vec::new(), report_tried: false, schema: None }
    }

    fn of_report(problem: &ReportProblem) -> Self {
        let reason = if problem.schema { "report_schema" } else { "report_invalid" };
        let guidance = format!(
            "Your final report was not accepted: {}. Correct it and call {FINAL_REPORT} again.",
            problem.message
        );
        let schema = problem.schema.then(|| problem.message.clone());
        Self { report_tried: true, schema, ..Self::new(reason, guidance) }
    }

    /// Claims of a report whose evidence does not hold (X-008).
    pub fn of_claims(problems: &[String], proposals: Vec<Proposal>) -> Self {
        let guidance = format!(
            "agentd looked at what your report cites. These claims do not hold as they stand:\n- {}\nCorrect the cites, or \
             call such a claim unverified, and call {FINAL_REPORT} again.",
            problems.join("\n- ")
        );
        let refusal = CallRefusal::InvalidArguments("a claim is not backed by what it cites".to_owned());
        let refused = proposals.into_iter().map(|proposal| (proposal, refusal.clone())).collect();
        Self { refused, ..Self::new("claims_unbacked", guidance) }
    }

    /// The provider's answer was not what its wire promises (A-055).
    pub fn invalid_reply() -> Self {
        Self::new("invalid_reply", "Your last reply could not be read. Send it again.")
    }

    /// The messages that follow the conversation in the next attempt: the rejected reply, its refused calls, the guidance.
    pub fn tail(&self, reply: Option<&ModelReply>) -> Vec<Message> {
        let mut tail = Vec::new();
        if let Some(reply) = reply {
            let tool_calls =
                self.refused.iter().map(|(proposal, _)| proposal.call.clone()).collect::<Vec<_>>();
            let silent = is_blank(&reply.text) && reply.reasoning.is_none() && tool_calls.is_empty();
            if !silent && reply.stop != ReplyStop::Refusal {
                let reasoning = reply.reasoning.clone();
                tail.push(Message::Assistant { content: reply.text.clone(), reasoning, tool_calls });
                tail.extend(self.refused.iter().map(|(proposal, refusal)| Message::Tool {
                    tool_call_id: proposal.call.id.clone(),
                    content: CallAnswer::refused(refusal).text().to_owned(),
                }));
            }
        }
        tail.push(Message::User { content: self.guidance.clone() });
        tail
    }
}

/// Reads a reply. `token_limit` is named to a model whose reply was cut (A-069).
pub fn read(
    reply: &ModelReply,
    phase: Phase,
    mode: SessionMode,
    shape: &ReportShape,
    token_limit: u64,
) -> Result<ValidReply, Box<Rejection>> {
    let cut = reply.stop == ReplyStop::Length;
    let result = if reply.stop == ReplyStop::Refusal {
        Err(Rejection::new(
            "refusal",
            "Your last reply was refused or filtered. Go on with the task as it was given.",
        ))
    } else if reply.tool_calls.is_empty() {
        read_text(reply, phase, mode, shape, cut)
    } else {
        read_calls(reply, phase, mode, shape, cut)
    };
    result.map_err(|mut rejection| {
        if cut {
            let limit =
                format!(" The reply was cut at its limit of {token_limit} output tokens; be shorter.");
            rejection.guidance.push_str(&limit);
        }
        Box::new(rejection)
    })
}

fn read_text(
    reply: &ModelReply,
    phase: Phase,
    mode: SessionMode,
    shape: &ReportShape,
    cut: bool,
) -> Result<ValidReply, Rejection> {
    let next = match (mode, phase) {
        (SessionMode::Chat, _) => "Answer in text.".to_owned(),
        (SessionMode::Task, Phase::Open) => format!("Call a tool, or end with {FINAL_REPORT}."),
        (SessionMode::Task, _) => format!("Call {FINAL_REPORT} now."),
    };
    // What nobody can see is no answer.
    if is_blank(&reply.text) {
        return Err(match &reply.reasoning {
            Some(_) => {
                Rejection::new("reasoning_only", format!("Your last reply held only reasoning. {next}"))
            }
            None => Rejection::new("empty", format!("Your last reply was empty. {next}")),
        });
    }
    let counts = mode == SessionMode::Chat || phase == Phase::Final;
    if !counts {
        let guidance = format!("A reply without a tool call does not count here. {next}");
        return Err(Rejection::new("text_only", guidance));
    }
    if cut && !shape.survives_truncation() {
        return Err(Rejection::of_report(&ReportProblem {
            schema: true,
            message: "it is incomplete".to_owned(),
        }));
    }
    let report = shape.from_text(&reply.text, cut).map_err(|problem| Rejection::of_report(&problem))?;
    Ok(ValidReply { proposals: Vec::new(), report: Some(report) })
}

fn read_calls(
    reply: &ModelReply,
    phase: Phase,
    mode: SessionMode,
    shape: &ReportShape,
    cut: bool,
) -> Result<ValidReply, Rejection> {
    let mut report = None;
    let mut failed: Option<ReportProblem> = None;
    let mut proposals = Vec::with_capacity(reply.tool_calls.len());
    for (place, call) in reply.tool_calls.iter().enumerate() {
        let is_last = place + 1 == reply.tool_calls.len();
        let was_cut = || Err("the reply was cut at its limit before they were complete".to_owned());
        let arguments = match arguments::parse(&call.arguments) {
            _ if cut && is_last && call.arguments.trim().is_empty() => was_cut(),
            Err(_) if cut && is_last => was_cut(),
            read => read,
        };
        let reports = mode == SessionMode::Task && call.name == FINAL_REPORT;
        let worth = match &arguments {
            _ if !reports => ReportCall::No,
            _ if report.is_some() => ReportCall::TooLate,
            Err(problem) => {
                failed.get_or_insert_with(|| ReportProblem::plain(problem.clone()));
                ReportCall::Invalid(problem.clone())
            }
            Ok(_) if cut && !shape.survives_truncation() => {
                let problem = ReportProblem { schema: true, message: "it is incomplete".to_owned() };
                failed.get_or_insert_with(|| problem.clone());
                ReportCall::Invalid(problem.message)
            }
            Ok(arguments) => match shape.from_call(arguments, cut) {
                Ok(good) => {
                    report = Some(good);
                    ReportCall::Captured
                }
                Err(problem) => {
                    failed.get_or_insert_with(|| problem.clone());
                    ReportCall::Invalid(problem.message)
                }
            },
        };
        proposals.push(Proposal { call: call.clone(), arguments, report: worth });
    }
    let readable =
        proposals.iter().any(|proposal| proposal.arguments.is_ok() && proposal.report == ReportCall::No);
    if report.is_some() || (readable && phase != Phase::Final) {
        return Ok(ValidReply { proposals, report });
    }
    let mut rejection = match (&failed, phase, mode) {
        (Some(problem), ..) => Rejection::of_report(problem),
        (None, Phase::Final, SessionMode::Task) => Rejection::new(
            "not_a_report",
            format!(
                "This is the final turn: only {FINAL_REPORT} is accepted. Call it now with what you have."
            ),
        ),
        (None, Phase::Final, SessionMode::Chat) => {
            Rejection::new("not_a_report", "This is the last turn: no tool is available. Answer in text.")
        }
        (None, ..) => Rejection::new(
            "malformed_calls",
            "None of your calls could be read. Write the arguments of each as one JSON object.",
        ),
    };
    rejection.refused = proposals.into_iter().map(|proposal| refusal_of(proposal, phase)).collect();
    Err(rejection)
}

fn refusal_of(proposal: Proposal, phase: Phase) -> (Proposal, CallRefusal) {
    let refusal = match (&proposal.report, &proposal.arguments) {
        (ReportCall::Invalid(problem), _) => CallRefusal::InvalidArguments(problem.clone()),
        (_, Err(problem)) => CallRefusal::InvalidArguments(problem.clone()),
        _ if phase == Phase::Stopping => CallRefusal::Stopping,
        _ => CallRefusal::FinalTurn,
    };
    (proposal, refusal)
}

/// Gives every call of a reply an id that is unique in the conversation. Wires need one, and some models repeat or omit
/// it.
pub fn name_calls(reply: &mut ModelReply, mut taken: impl FnMut(&str) -> bool) {
    let mut used: Vec<String> = Vec::new();
    for (place, call) in reply.tool_calls.iter_mut().enumerate() {
        let mut id = call.id.clone();
        let mut number = place;
        while id.trim().is_empty() || used.contains(&id) || taken(&id) {
            number += 1;
            id = format!("call_{number}");
        }
        used.push(id.clone());
        call.id = id;
    }
}

/// Arguments as the record shows them.
pub fn shown_arguments(proposal: &Proposal) -> Option<Value> {
    proposal.arguments.as_ref().ok().map(|arguments| Value::Object(arguments.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::ToolCall;
    use crate::domain::report::ReportFormat;

    fn reply(text: &str, calls: &[(&str, &str)]) -> ModelReply {
        let call = |(place, (name, arguments)): (usize, &(&str, &str))| ToolCall {
            id: format!("c{place}"),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        ModelReply {
            text: text.to_owned(),
            reasoning: None,
            tool_calls: calls.iter().enumerate().map(call).collect(),
            stop: ReplyStop::End,
            stop_raw: None,
            usage: None,
            cost: None,
            actual_provider: None,
            actual_model: None,
        }
    }

    fn reason(reply: &ModelReply, phase: Phase, mode: SessionMode) -> &'static str {
        let shape = ReportShape::new(ReportFormat::Markdown, None).unwrap();
        read(reply, phase, mode, &shape, 7).map_or_else(|rejection| rejection.reason, |_| "accepted")
    }

    const GOOD: (&str, &str) = (FINAL_REPORT, r#"{"report_format":"markdown","content":"x"}"#);
    const BLANK: (&str, &str) = (FINAL_REPORT, r#"{"report_format":"markdown","content":" "}"#);

    #[test]
    fn c_06_text_completes_a_chat_and_a_task_only_on_its_final_turn() {
        let text = reply("hello", &[]);
        assert_eq!(reason(&text, Phase::Open, SessionMode::Chat), "accepted");
        assert_eq!(reason(&text, Phase::Open, SessionMode::Task), "text_only");
        assert_eq!(reason(&text, Phase::Stopping, SessionMode::Task), "text_only");
        assert_eq!(reason(&text, Phase::Final, SessionMode::Task), "accepted");
    }

    #[test]
    fn a_044_a_045_a_046_replies_without_substance_are_rejected_by_their_kind() {
        let mut thinking = reply(" ", &[]);
        assert_eq!(reason(&thinking, Phase::Open, SessionMode::Task), "empty");
        assert_eq!(
            reason(&reply("\u{200b}\u{202e}\u{1b}[0m\n", &[]), Phase::Open, SessionMode::Chat),
            "empty"
        );
        thinking.reasoning = Some(Value::from("hm"));
        assert_eq!(reason(&thinking, Phase::Open, SessionMode::Task), "reasoning_only");
        let mut refused = reply("no", &[]);
        refused.stop = ReplyStop::Refusal;
        assert_eq!(reason(&refused, Phase::Final, SessionMode::Task), "refusal");
    }

    #[test]
    fn a_005_on_the_final_turn_a_reply_without_report_is_rejected_and_its_calls_refused() {
        let calls = reply("", &[("count", "{}")]);
        assert_eq!(reason(&calls, Phase::Open, SessionMode::Task), "accepted");
        assert_eq!(reason(&calls, Phase::Final, SessionMode::Task), "not_a_report");
        let both = reply("", &[("count", "{}"), GOOD]);
        assert_eq!(reason(&both, Phase::Final, SessionMode::Task), "accepted");
    }

    #[test]
    fn a_048_one_readable_call_makes_a_reply_good_and_none_makes_it_bad() {
        let mixed = reply("", &[("echo", "{\"a\":"), ("count", "{}")]);
        assert_eq!(reason(&mixed, Phase::Open, SessionMode::Task), "accepted");
        let broken = reply("", &[("echo", "{\"a\":")]);
        assert_eq!(reason(&broken, Phase::Open, SessionMode::Task), "malformed_calls");
    }

    #[test]
    fn a_call_whose_arguments_were_cut_is_refused_beside_others_and_says_so() {
        let shape = ReportShape::new(ReportFormat::Markdown, None).unwrap();
        let cut = ModelReply { stop: ReplyStop::Length, ..reply("", &[("count", "{}"), ("wipe", "")]) };
        let valid = read(&cut, Phase::Open, SessionMode::Task, &shape, 7).unwrap();
        assert_eq!(valid.proposals[0].arguments, Ok(serde_json::Map::new()), "what was whole stays");
        assert!(
            valid.proposals[1]
                .arguments
                .as_ref()
                .is_err_and(|problem| problem.contains("was cut at its limit"))
        );
    }

    #[test]
    fn a_071_the_first_valid_report_wins_and_later_ones_are_too_late() {
        let shape = ReportShape::new(ReportFormat::Markdown, None).unwrap();
        let valid =
            read(&reply("", &[BLANK, GOOD, GOOD]), Phase::Open, SessionMode::Task, &shape, 7).unwrap();
        let worth: Vec<&ReportCall> = valid.proposals.iter().map(|proposal| &proposal.report).collect();
        assert!(matches!(worth[..], [ReportCall::Invalid(_), ReportCall::Captured, ReportCall::TooLate]));
        assert!(!valid.failed_report());
    }

    #[test]
    fn a_069_a_cut_structured_report_is_refused_with_the_limit_named() {
        let shape = ReportShape::new(ReportFormat::Json, None).unwrap();
        let mut cut = reply("", &[(FINAL_REPORT, r#"{"content_json":{"a":1}}"#)]);
        cut.stop = ReplyStop::Length;
        let rejection = read(&cut, Phase::Open, SessionMode::Task, &shape, 99).unwrap_err();
        assert!(rejection.guidance.contains("limit of 99 output tokens"), "{}", rejection.guidance);
        assert!(rejection.schema.is_some() && rejection.report_tried);
    }

    #[test]
    fn a_049_the_next_attempt_holds_the_rejected_call_and_what_was_wrong_with_it() {
        let shape = ReportShape::new(ReportFormat::Markdown, None).unwrap();
        let broken = reply("", &[("echo", "{\"a\":")]);
        let rejection = read(&broken, Phase::Open, SessionMode::Task, &shape, 7).unwrap_err();
        let tail = rejection.tail(Some(&broken));
        let [
            Message::Assistant { tool_calls, .. },
            Message::Tool { tool_call_id, content },
            Message::User { .. },
        ] = &tail[..]
        else {
            panic!("{tail:?}");
        };
        assert_eq!(tool_calls[0].id, *tool_call_id);
        assert!(content.starts_with("(tool failed: invalid arguments: not valid JSON"), "{content}");
    }

    #[test]
    fn calls_without_an_id_of_their_own_get_one() {
        let mut reply = reply("", &[("a", ""), ("b", ""), ("c", "")]);
        reply.tool_calls[0].id = String::new();
        reply.tool_calls[1].id = "x".into();
        reply.tool_calls[2].id = "x".into();
        name_calls(&mut reply, |id| id == "call_1");
        let ids: Vec<&str> = reply.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_2", "x", "call_3"]);
    }
}
