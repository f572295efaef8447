//! The script: which reply answers which request, how often, and with what taken from the request.

use regex::Regex;
use serde_json::Value;

use super::{Answer, AnsweredCall, Asked};
use crate::sim::SimError;
use crate::sim::scenario_file::{ModelFile, ReplyFile, StopFile, UsageFile, WhenFile};

/// The tool whose call a reply's `final_report` becomes.
const FINAL_REPORT: &str = "agent__final_report";

/// Replies in order, and who may ask.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Keys that are accepted; empty = any.
    pub api_keys: Vec<String>,
    /// Models that exist; empty = any.
    pub names: Vec<String>,
    replies: Vec<Scripted>,
    answers: u64,
    calls: u64,
}

#[derive(Debug, Clone)]
struct Scripted {
    reply: ReplyFile,
    capture: Vec<(String, Regex)>,
    /// `None` = for ever.
    left: Option<u32>,
    given: u32,
}

/// A reply that was chosen for a request.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// Its place in the script.
    pub index: usize,
    /// The reply, with what was captured filled in.
    pub reply: ReplyFile,
    /// The answer it makes.
    pub answer: Answer,
}

impl Script {
    /// Takes over the model's part of a scenario.
    pub fn set(&mut self, file: &ModelFile) -> Result<(), SimError> {
        self.api_keys.clone_from(&file.api_keys);
        self.names.clone_from(&file.names);
        for reply in &file.replies {
            self.push(reply.clone())?;
        }
        Ok(())
    }

    /// Adds a reply at the end.
    pub fn push(&mut self, reply: ReplyFile) -> Result<(), SimError> {
        let mut capture = Vec::new();
        for (name, pattern) in &reply.capture {
            let regex = Regex::new(pattern)
                .map_err(|error| SimError::wrong("model.replies", format!("capture `{name}`: {error}")))?;
            capture.push((name.clone(), regex));
        }
        let left = match reply.times {
            None => Some(1),
            Some(0) => None,
            Some(times) => Some(times),
        };
        self.replies.push(Scripted { reply, capture, left, given: 0 });
        Ok(())
    }

    /// Forgets replies that were not given yet.
    pub fn clear(&mut self) {
        for scripted in &mut self.replies {
            scripted.left = Some(0);
        }
    }

    /// Replies that were to be given (more often), by place and first words.
    pub fn unused(&self) -> Vec<String> {
        let describe = |(index, scripted): (usize, &Scripted)| {
            let waits = match scripted.left {
                Some(0) => false,
                Some(_) => true,
                None => scripted.given == 0,
            };
            waits.then(|| format!("reply {index}: {}", summary(&scripted.reply)))
        };
        self.replies.iter().enumerate().filter_map(describe).collect()
    }

    /// Chooses the first reply that fits and still may be given; `now` is in seconds since 1970.
    pub fn take(&mut self, asked: &Asked, request_size: usize, now: i64) -> Option<Chosen> {
        let index = self.replies.iter().position(|scripted| {
            scripted.left != Some(0)
                && scripted.reply.model.as_ref().is_none_or(|model| *model == asked.model)
                && scripted.reply.when.as_ref().is_none_or(|when| fits(when, asked))
        })?;
        let scripted = self.replies.get_mut(index)?;
        scripted.given += 1;
        if let Some(left) = &mut scripted.left {
            *left -= 1;
        }
        let reply = filled(&scripted.reply, &scripted.capture, asked);
        let answer = self.answer(&reply, asked, request_size, now);
        Some(Chosen { index, reply, answer })
    }

    fn answer(&mut self, reply: &ReplyFile, asked: &Asked, request_size: usize, now: i64) -> Answer {
        self.answers += 1;
        let mut calls = Vec::new();
        for call in &reply.tool_calls {
            let written = call.arguments.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string);
            calls.push(AnsweredCall {
                id: call.id.clone().unwrap_or_default(),
                name: call.name.clone(),
                arguments: call.raw.clone().unwrap_or(written),
            });
        }
        if let Some(report) = &reply.final_report {
            calls.push(AnsweredCall {
                id: String::new(),
                name: FINAL_REPORT.to_owned(),
                arguments: report.to_string(),
            });
        }
        for call in calls.iter_mut().filter(|call| call.id.is_empty()) {
            self.calls += 1;
            call.id = format!("call_{:06}", self.calls);
        }
        let stop = reply.stop.unwrap_or(if calls.is_empty() { StopFile::End } else { StopFile::ToolCalls });
        let usage = reply.usage.unwrap_or_else(|| estimate(reply, &calls, request_size));
        Answer {
            number: self.answers,
            model: asked.model.clone(),
            thinking: reply.thinking.clone(),
            text: reply.text.clone(),
            calls,
            stop,
            usage,
            created: now,
            stream_usage: asked.stream_usage,
        }
    }
}

/// About four letters a token, which is what estimates of real models come to for English.
fn estimate(reply: &ReplyFile, calls: &[AnsweredCall], request_size: usize) -> UsageFile {
    let tokens = |letters: usize| (letters as u64).div_ceil(4);
    let reasoning = tokens(reply.thinking.as_ref().map_or(0, String::len));
    let said = reply.text.as_ref().map_or(0, String::len)
        + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
    UsageFile {
        input: tokens(request_size),
        output: tokens(said) + reasoning,
        reasoning,
        ..UsageFile::default()
    }
}

fn fits(when: &WhenFile, asked: &Asked) -> bool {
    when.contains.as_ref().is_none_or(|text| asked.fresh.contains(text.as_str()))
        && when.lacks.as_ref().is_none_or(|text| !asked.fresh.contains(text.as_str()))
        && when.anywhere.as_ref().is_none_or(|text| asked.all.contains(text.as_str()))
        && when.offers.as_ref().is_none_or(|tool| asked.tools.contains(tool))
        && when.turn.is_none_or(|turn| turn == asked.turn)
}

fn filled(reply: &ReplyFile, capture: &[(String, Regex)], asked: &Asked) -> ReplyFile {
    let mut reply = reply.clone();
    for (name, pattern) in capture {
        let found = pattern.captures_iter(&asked.all).last();
        let value = found
            .and_then(|found| found.get(1).or_else(|| found.get(0)).map(|part| part.as_str().to_owned()));
        let (mark, value) = (format!("${{{name}}}"), value.unwrap_or_default());
        for text in [&mut reply.text, &mut reply.thinking].into_iter().flatten() {
            *text = text.replace(&mark, &value);
        }
        for call in &mut reply.tool_calls {
            if let Some(arguments) = &mut call.arguments {
                replace(arguments, &mark, &value);
            }
            if let Some(raw) = &mut call.raw {
                *raw = raw.replace(&mark, &value);
            }
        }
        if let Some(report) = &mut reply.final_report {
            replace(report, &mark, &value);
        }
    }
    reply
}

fn replace(into: &mut Value, mark: &str, value: &str) {
    match into {
        Value::String(text) => *text = text.replace(mark, value),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, mark, value)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, mark, value)),
        _ => {}
    }
}

fn summary(reply: &ReplyFile) -> String {
    if let Some(error) = &reply.error {
        return format!("error {}", error.status);
    }
    let calls = reply.tool_calls.iter().map(|call| call.name.as_str());
    let calls: Vec<&str> = calls.chain(reply.final_report.as_ref().map(|_| FINAL_REPORT)).collect();
    if calls.is_empty() {
        return format!(
            "text {:?}",
            reply.text.as_deref().unwrap_or_default().chars().take(60).collect::<String>()
        );
    }
    format!("calls {}", calls.join(", "))
}
