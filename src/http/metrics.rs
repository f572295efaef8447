//! `GET /metrics`: Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::costs::{self, DayCap};
use super::shared::Shared;
use crate::domain::ledger_entry::CostSum;

/// Every metric, with its help.
pub async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let status = shared.status().await;
    let rows = shared.ended().await;
    let mut text = Text(String::new());
    let mut runs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut sums: BTreeMap<String, CostSum> = BTreeMap::new();
    for row in rows.iter() {
        *runs.entry((row.repo.to_string(), row.reason().to_owned())).or_default() += 1;
        let of_unknown_cost = row.is_of_unknown_cost().into();
        *sums.entry(row.repo.to_string()).or_default() += CostSum { known: row.cost(), of_unknown_cost };
    }
    text.head("agentd_runs_total", "counter", "Runs that ended, by stop reason.");
    for ((repo, reason), count) in &runs {
        text.line("agentd_runs_total", &[("repository", repo), ("stop_reason", reason)], *count);
    }
    text.costs(&sums, shared.conversations().await.into_values());
    text.head("agentd_cost_usd_under_way", "gauge", "US dollars that runs under way have cost so far.");
    text.line("agentd_cost_usd_under_way", &[], costs::live_cost(status.as_ref(), &rows).dollars());
    if let Some(cap) = costs::day_cap(&shared).await {
        text.day_cap(&cap);
    }
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
    /// What is known that ended runs and conversations cost, and how many cost more than that.
    fn costs(
        &mut self,
        repositories: &BTreeMap<String, CostSum>,
        conversations: impl Iterator<Item = CostSum>,
    ) {
        self.head("agentd_cost_usd_total", "counter", "US dollars that ended runs are known to have cost.");
        for (repo, sum) in repositories {
            self.line("agentd_cost_usd_total", &[("repository", repo)], sum.known.dollars());
        }
        self.head("agentd_runs_of_unknown_cost_total", "counter", "Ended runs that cost more than is known.");
        for (repo, sum) in repositories {
            self.line("agentd_runs_of_unknown_cost_total", &[("repository", repo)], sum.of_unknown_cost);
        }
        let mut sum = CostSum::default();
        conversations.for_each(|day| sum += day);
        let help = "US dollars that conversations are known to have cost.";
        self.head("agentd_conversations_cost_usd_total", "counter", help);
        self.line("agentd_conversations_cost_usd_total", &[], sum.known.dollars());
        let help = "Turns of conversations that cost more than is known.";
        self.head("agentd_turns_of_unknown_cost_total", "counter", help);
        self.line("agentd_turns_of_unknown_cost_total", &[], sum.of_unknown_cost);
    }

    /// The cap of the day, and what counts against it.
    fn day_cap(&mut self, cap: &DayCap) {
        self.head("agentd_day_cap_usd", "gauge", "US dollars that one day (UTC) may cost.");
        self.line("agentd_day_cap_usd", &[], cap.cap_usd.dollars());
        self.head(
            "agentd_day_cap_used_usd",
            "gauge",
            "US dollars that count against the cap of this day (UTC).",
        );
        for (state, amount) in [("spent", cap.spent_usd), ("set_aside", cap.set_aside_usd)] {
            if let Some(amount) = amount {
                self.line("agentd_day_cap_used_usd", &[("state", state)], amount.dollars());
            }
        }
    }

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
