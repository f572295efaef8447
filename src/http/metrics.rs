//! `GET /metrics`: Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::shared::{Shared, live_cost};
use crate::domain::money::Money;

/// Every metric, with its help.
pub async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let (rows, status) = (shared.ended().await, shared.status().await);
    let mut text = Text(String::new());
    let mut runs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut costs: BTreeMap<String, Money> = BTreeMap::new();
    for row in rows.iter() {
        *runs.entry((row.repo.to_string(), row.reason().to_owned())).or_default() += 1;
        *costs.entry(row.repo.to_string()).or_default() += row.cost();
    }
    text.head("agentd_runs_total", "counter", "Runs that ended, by stop reason.");
    for ((repo, reason), count) in &runs {
        text.line("agentd_runs_total", &[("repository", repo), ("stop_reason", reason)], *count);
    }
    text.head("agentd_cost_usd_total", "counter", "US dollars that ended runs cost.");
    for (repo, cost) in &costs {
        text.line("agentd_cost_usd_total", &[("repository", repo)], cost.dollars());
    }
    let conversations = shared.conversations().await.into_values().sum::<Money>().dollars();
    text.head("agentd_conversations_cost_usd_total", "counter", "US dollars that conversations cost.");
    text.line("agentd_conversations_cost_usd_total", &[], conversations);
    text.head("agentd_cost_usd_under_way", "gauge", "US dollars that runs under way have cost so far.");
    text.line("agentd_cost_usd_under_way", &[], live_cost(status.as_ref()).dollars());
    if let Some(status) = status {
        let mut running: BTreeMap<String, u64> =
            status.repositories.iter().map(|of| (of.repo.to_string(), 0)).collect();
        for run in &status.running {
            *running.entry(run.repo.to_string()).or_default() += 1;
        }
        text.head("agentd_runs_under_way", "gauge", "Runs under way.");
        for (repo, count) in running {
            text.line("agentd_runs_under_way", &[("repository", &repo)], count);
        }
        let mut waiting: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (state, list) in [("waiting", &status.waiting), ("parked", &status.parked)] {
            for row in list {
                *waiting.entry((state, &row.code)).or_default() += 1;
            }
        }
        text.head("agentd_issues", "gauge", "Issues that do not run, by reason code.");
        for ((state, code), count) in waiting {
            text.line("agentd_issues", &[("state", state), ("code", code)], count);
        }
        text.head("agentd_poll_failing", "gauge", "1 while a repository cannot be polled, or not all of it.");
        for of in &status.repositories {
            let failing = u8::from(of.failing_since.is_some() || of.unread.is_some());
            text.line("agentd_poll_failing", &[("repository", &of.repo.to_string())], failing);
        }
        text.head("agentd_poll_timestamp_seconds", "gauge", "Last poll that succeeded.");
        for (of, at) in status.repositories.iter().filter_map(|of| Some((of, of.polled_at?))) {
            text.line(
                "agentd_poll_timestamp_seconds",
                &[("repository", &of.repo.to_string())],
                at.timestamp(),
            );
        }
        text.head(
            "agentd_github_requests_total",
            "counter",
            "Requests to GitHub; unchanged ones cost nothing.",
        );
        text.line("agentd_github_requests_total", &[("counted", "yes")], status.limits.counted);
        text.line("agentd_github_requests_total", &[("counted", "no")], status.limits.unchanged);
        text.head("agentd_github_limit_remaining", "gauge", "Requests left in GitHub's primary budgets.");
        for budget in &status.limits.budgets {
            text.line("agentd_github_limit_remaining", &[("resource", &budget.resource)], budget.remaining);
        }
        text.head("agentd_github_held", "gauge", "1 while a limit of GitHub holds requests back.");
        text.line("agentd_github_held", &[], u8::from(status.limits.held_by.is_some()));
        text.head("agentd_reload_failed", "gauge", "1 while the configuration on disk cannot be used.");
        text.line("agentd_reload_failed", &[], u8::from(status.reload_error.is_some()));
        text.head("agentd_start_timestamp_seconds", "gauge", "When the daemon started.");
        text.line(
            "agentd_start_timestamp_seconds",
            &[("version", &status.version)],
            status.started_at.timestamp(),
        );
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.0).into_response()
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
