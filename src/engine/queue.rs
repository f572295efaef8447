//! Named queues that bound how many tools run at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// The queue of tools that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// The queue of agent programs. A configuration cannot name it, because the calls of a program wait in other queues
/// while the program runs.
pub const AGENT_QUEUE: &str = "agent program";

/// Every queue of a process, shared by its runs.
#[derive(Debug, Clone)]
pub struct Queues(BTreeMap<String, Arc<Semaphore>>);

/// A tool names a queue that nobody declared: a configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tool \"{tool}\" waits in queue \"{queue}\", which is not declared; declare it or use one of: {known}"
)]
pub struct UnknownQueue {
    /// The tool.
    pub tool: String,
    /// The queue it names.
    pub queue: String,
    /// Declared queues.
    pub known: String,
}

impl Queues {
    /// Declared queues with how many calls each runs at once; the default queue is added where it is missing, with
    /// `min(64, 2 × cpus)`.
    pub fn new(declared: &BTreeMap<String, usize>, cpus: usize) -> Self {
        let fallback = cpus.saturating_mul(2).clamp(1, 64);
        let mut queues: BTreeMap<String, Arc<Semaphore>> = declared
            .iter()
            .map(|(name, concurrent)| (name.clone(), Arc::new(Semaphore::new((*concurrent).max(1)))))
            .collect();
        queues.entry(DEFAULT_QUEUE.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(fallback)));
        queues.insert(AGENT_QUEUE.to_owned(), Arc::new(Semaphore::new(1)));
        Self(queues)
    }

    /// The queue a tool waits in.
    pub fn of(&self, tool: &str, queue: Option<&str>) -> Result<Arc<Semaphore>, UnknownQueue> {
        let queue = queue.unwrap_or(DEFAULT_QUEUE);
        self.0.get(queue).cloned().ok_or_else(|| UnknownQueue {
            tool: tool.to_owned(),
            queue: queue.to_owned(),
            known: self
                .0
                .keys()
                .map(String::as_str)
                .filter(|name| *name != AGENT_QUEUE)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_096_the_default_queue_is_there_and_an_undeclared_one_is_an_error() {
        let queues = Queues::new(&BTreeMap::from([("slow".to_owned(), 1)]), 4);
        assert_eq!(queues.of("t", None).unwrap().available_permits(), 8);
        assert_eq!(queues.of("t", Some("slow")).unwrap().available_permits(), 1);
        assert_eq!(queues.of("t", Some("x")).unwrap_err().known, "default, slow");
        assert_eq!(Queues::new(&BTreeMap::new(), 100).of("t", None).unwrap().available_permits(), 64);
    }
}
