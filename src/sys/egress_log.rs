//! Counts what programs ask for on the network. It is read at the borders of visits.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::domain::egress::AskedHost;

/// The most different hosts that are kept between two readings. Further ones are counted together.
const MOST_HOSTS: usize = 200;

/// A log that many connections write at once.
#[derive(Debug, Default)]
pub struct EgressLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    asked: BTreeMap<AskedHost, u32>,
    refusals: Vec<String>,
    refused: usize,
}

impl EgressLog {
    /// Counts one request.
    pub fn note(&self, host: &str, port: u16, endpoint: Option<&str>, refused: Option<&str>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = AskedHost {
            host: host.chars().take(255).collect(),
            port,
            endpoint: endpoint.map(str::to_owned),
            refused: refused.map(str::to_owned),
            times: 0,
        };
        if let Some(why) = refused {
            state.refused += 1;
            if state.refusals.len() < MOST_HOSTS {
                state.refusals.push(format!("{}:{port}: {why}", key.host));
            }
        }
        if state.asked.len() >= MOST_HOSTS && !state.asked.contains_key(&key) {
            key = AskedHost { host: "(others)".to_owned(), port: 0, endpoint: None, ..key };
        }
        *state.asked.entry(key).or_default() += 1;
    }

    /// How many requests were refused so far.
    pub fn refused(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    /// The refusals after the first `mark`, each host once, in a sentence each.
    pub fn refused_since(&self, mark: usize) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told: Vec<String> = state.refusals.iter().skip(mark).cloned().collect();
        told.sort_unstable();
        told.dedup();
        told
    }

    /// What was asked since the last time.
    pub fn take(&self) -> Vec<AskedHost> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = std::mem::take(&mut state.asked);
        asked.into_iter().map(|(asked, times)| AskedHost { times, ..asked }).collect()
    }
}
