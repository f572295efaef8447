//! A journal in memory, and tools that count their runs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentd::domain::artifact::Artifact;
use agentd::domain::event::Event;
use agentd::domain::message::ToolSpec;
use agentd::domain::policy::Risk;
use agentd::engine::journal::{Journal, JournalError};
use agentd::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolError, ToolOutput};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::world::SECRET;

/// A journal in memory.
#[derive(Default)]
pub struct VecJournal {
    pub events: Mutex<Vec<Event>>,
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Appends fail from this one on.
    pub fails_at: Mutex<Option<usize>>,
}

impl Journal for VecJournal {
    fn append(&self, event: Event) -> Result<(), JournalError> {
        let mut events = self.events.lock().unwrap();
        if self.fails_at.lock().unwrap().is_some_and(|at| events.len() >= at) {
            return Err(JournalError { path: "events.jsonl".into(), message: "disk full".into() });
        }
        events.push(event);
        Ok(())
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }

    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>> {
        let artifact = Artifact {
            path: path.to_owned(),
            sha256: agentd::domain::canonical::sha256_hex(&bytes),
            bytes: bytes.len() as u64,
        };
        self.files.lock().unwrap().insert(path.to_owned(), bytes);
        Box::pin(async move { Ok(artifact) })
    }

    fn kept<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<Vec<u8>, JournalError>> {
        let found = self.files.lock().unwrap().get(&artifact.path).cloned();
        Box::pin(async move {
            found.ok_or_else(|| JournalError { path: artifact.path.clone(), message: "not found".into() })
        })
    }
}

/// What a test tool does.
#[derive(Clone)]
pub enum Does {
    /// Gives its arguments back as text.
    Echo,
    /// Gives the number of its runs.
    Count,
    /// Gives `bytes` bytes.
    Big,
    /// Sleeps `ms` milliseconds.
    Sleep,
    Fails,
    Refuses,
    Panics,
    Leaks,
    /// Says that the run cannot go on.
    Ends,
}

pub struct TestTool {
    pub spec: ToolSpec,
    pub does: Does,
    risk: Risk,
    bound: Vec<BoundParameter>,
    queue: Option<String>,
    pub runs: AtomicUsize,
    pub running: AtomicUsize,
    pub most_at_once: AtomicUsize,
    pub received: Mutex<Vec<Value>>,
}

impl TestTool {
    pub fn new(name: &str, does: Does) -> Self {
        Self::with_schema(name, does, json!({ "type": "object" }))
    }

    pub fn with_schema(name: &str, does: Does, parameters: Value) -> Self {
        Self {
            spec: ToolSpec { name: name.to_owned(), description: "A test tool.".to_owned(), parameters },
            does,
            risk: Risk::Write,
            bound: Vec::new(),
            queue: None,
            runs: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            received: Mutex::default(),
        }
    }

    pub fn bound(mut self, bound: &[BoundParameter]) -> Self {
        self.bound = bound.to_vec();
        self
    }

    pub fn queued(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn work(&self, arguments: &Value) -> Result<ToolOutput, ToolError> {
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.received.lock().unwrap().push(arguments.clone());
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let result = match self.does {
            Does::Echo => Ok(ToolOutput::text(arguments.to_string())),
            Does::Count => Ok(ToolOutput::text(number.to_string())),
            Does::Big => {
                let bytes = usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap();
                Ok(ToolOutput::text("x".repeat(bytes)))
            }
            Does::Sleep => {
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap())).await;
                Ok(ToolOutput::text("slept"))
            }
            Does::Fails => Err(ToolError::for_model("boom")),
            Does::Refuses => Err(ToolError::Refused {
                code: "path_outside_worktree".to_owned(),
                message: "the path is outside the worktree".to_owned(),
            }),
            Does::Panics => panic!("scripted panic"),
            Does::Ends => Err(ToolError::Fatal("the disk is gone".to_owned())),
            Does::Leaks => Ok(ToolOutput::text(format!("token={SECRET}"))),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    fn source(&self) -> &str {
        "test"
    }
    fn risk(&self) -> Risk {
        self.risk
    }
    fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }
    fn bound_parameters(&self) -> &[BoundParameter] {
        &self.bound
    }
    fn call<'a>(
        &'a self,
        _permit: Permit,
        arguments: &'a Value,
        _limits: CallLimits,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.work(arguments))
    }
}
