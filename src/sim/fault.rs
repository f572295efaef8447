//! Faults: which request goes wrong, how often, and in what way.

use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

/// One planned failure.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Method it concerns; `None` = any.
    pub method: Option<String>,
    /// Glob over the path without query; `*` crosses slashes.
    pub path: GlobMatcher,
    /// Text that the request's body must contain; git bodies are not looked into.
    pub contains: Option<String>,
    /// Matching requests that pass before the first failure.
    pub skip: u32,
    /// How many requests fail; 0 = all from then on.
    pub times: u32,
    /// Time to wait before anything else.
    pub delay: Duration,
    /// What happens.
    pub kind: FaultKind,
    /// How often it has happened.
    pub hits: u32,
}

/// The ways to fail.
#[derive(Debug, Clone)]
pub enum FaultKind {
    /// Only the delay; the request is answered as usual.
    Delay,
    /// Answered with this status, headers and body; the request has no effect.
    Status {
        /// HTTP status.
        status: u16,
        /// Extra headers.
        headers: Vec<(String, String)>,
        /// A string is sent as it is, anything else as JSON; `None` = GitHub's usual error.
        body: Option<Value>,
    },
    /// The connection ends without a byte; the request has no effect.
    Drop,
    /// The request has its effect, and the connection ends without a byte.
    LostReply,
    /// The request has its effect; half of the reply's body arrives.
    Truncate,
    /// 200 with a body that is not what was asked for; the request has no effect.
    Garbage,
    /// The reply arrives in small pieces with this pause between them.
    Slow(Duration),
    /// No answer ever; the request has no effect.
    Hang,
    /// A webhook is delivered twice; nothing else comes twice.
    Double,
}

impl Fault {
    /// Builds the matcher of a path pattern.
    pub fn pattern(path: &str) -> Result<GlobMatcher, globset::Error> {
        Ok(GlobBuilder::new(path).literal_separator(false).build()?.compile_matcher())
    }

    fn concerns(&self, method: &str, path: &str, body: &str) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && self.path.is_match(path)
            && self.contains.as_ref().is_none_or(|text| body.contains(text.as_str()))
    }
}

/// The fault this request meets, if any; counts it.
pub fn meet(faults: &mut [Fault], method: &str, path: &str, body: &str) -> Option<(FaultKind, Duration)> {
    for fault in faults.iter_mut().filter(|fault| fault.concerns(method, path, body)) {
        if fault.skip > 0 {
            fault.skip -= 1;
            continue;
        }
        if fault.times == 0 || fault.hits < fault.times {
            fault.hits += 1;
            return Some((fault.kind.clone(), fault.delay));
        }
    }
    None
}
