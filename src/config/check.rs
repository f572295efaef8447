//! Checks what types cannot express: ranges, and values that must fit each other.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::config_file::{
    ChecksTable, ConfigFile, ConversationTable, PlanTable, QuestionsTable, RepositoryTable, SessionTable,
    SweepSelect,
};
use super::error::ConfigError;
use super::layer;
use super::session::DEFAULT_QUEUE;
use super::settings::is_http;
use super::source_format::Source;
use super::tools_file::{McpServerTable, RestToolTable};
use super::tree::Tree;
use crate::domain::clone_contents::CloneContents;
use crate::domain::egress::{Egress, HostRule};
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::domain::redaction::Redactor;
use crate::domain::rules::Globs;

/// Longest label name that GitHub takes, in characters.
const LONGEST_LABEL: usize = 50;
/// Most worktrees of a pool.
const MOST_WARM: u32 = 64;
/// The fields of a cron expression.
const CRON_FIELDS: [&str; 5] = ["minute", "hour", "day", "month", "weekday"];

/// What an agent may be called; follows a quoted name in a message.
pub(super) const AGENT_NAME_RULE: &str =
    "is not an agent's name; use lower-case letters, digits and hyphens, beginning with a letter";

/// Whether a name is an agent's: it becomes a folder's name.
pub(super) fn is_agent_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Checks a file whose types are right; tells everything at once.
pub(super) fn check(file: &ConfigFile, tree: &Tree, base: &Path) -> Result<(), ConfigError> {
    let mut checker = Checker { tree, found: Vec::new() };
    checker.budgets(file);
    checker.session(&file.session);
    checker.daemon(file);
    for (index, repository) in file.repositories.iter().enumerate() {
        checker.unnamed_repository((file, index), base);
        checker.repository(repository, &format!("repositories[{index}]"));
    }
    checker.distinct_repositories(file);
    checker.bounded_sweeps(file);
    checker.github(file);
    for (name, provider) in &file.providers {
        if let Some(url) = &provider.base_url {
            checker.address(url, &format!("providers.{name}.base_url"));
        }
    }
    for (name, server) in &file.mcp.servers {
        checker.mcp_server(server, name, file);
    }
    for (name, tool) in &file.rest.tools {
        checker.rest_tool(tool, name, file);
    }
    checker.sandbox(file);
    checker.program(file);
    checker.commands(file);
    checker.paths(file);
    checker.texts(file);
    checker.conversation(&file.conversation);
    checker.checks(&file.checks);
    checker.questions(&file.questions);
    checker.plan(&file.plan);
    checker.cluster(&file.cluster);
    ConfigError::all(checker.found)
}

pub(super) struct Checker<'a> {
    tree: &'a Tree,
    found: Vec<ConfigError>,
}

impl Checker<'_> {
    pub(super) fn require(&mut self, holds: bool, key: &str, message: impl Into<String>) {
        if !holds {
            self.found.push(ConfigError::Invalid {
                at: self.tree.source(key),
                key: key.to_owned(),
                message: message.into(),
            });
        }
    }

    pub(super) fn at_least_one(&mut self, value: u64, key: &str) {
        self.require(value >= 1, key, format!("must be at least 1, but is {value}"));
    }

    pub(super) fn positive(&mut self, value: super::duration::Span, key: &str) {
        self.require(!value.0.is_zero(), key, format!("must be longer than {value}"));
    }

    fn amount(&mut self, dollars: f64, key: &str) {
        let fits = Money::from_dollars(dollars).is_some();
        self.require(fits, key, format!("must be an amount of US dollars, zero or more, but is {dollars}"));
    }

    fn argv(&mut self, argv: &[String], key: &str) {
        let fits = argv.first().is_some_and(|program| !program.trim().is_empty());
        self.require(fits, key, "must be a program and its arguments, for example [\"cargo\", \"test\"]");
    }

    fn budgets(&mut self, file: &ConfigFile) {
        let budgets = &file.budgets;
        self.at_least_one(budgets.max_steps.into(), "budgets.max_steps");
        self.positive(budgets.max_wall_time, "budgets.max_wall_time");
        self.amount(budgets.max_cost, "budgets.max_cost");
        self.amount(budgets.max_cost_per_day, "budgets.max_cost_per_day");
        self.amount(budgets.max_cost_per_issue, "budgets.max_cost_per_issue");
        self.amount(budgets.max_extension, "budgets.max_extension");
        let ratio = budgets.soft_ratio;
        let fits = ratio > 0.0 && ratio <= 1.0;
        self.require(fits, "budgets.soft_ratio", format!("must be above 0 and at most 1, but is {ratio}"));
    }

    fn session(&mut self, session: &SessionTable) {
        self.at_least_one(session.max_turns.into(), "session.max_turns");
        self.at_least_one(session.max_tool_calls_per_turn.into(), "session.max_tool_calls_per_turn");
        // Attempts in total.
        self.require(
            session.max_retries >= 1,
            "session.max_retries",
            format!("must be at least 1 (attempts in total; 1 = no retry), but is {}", session.max_retries),
        );
        self.positive(session.llm_timeout, "session.llm_timeout");
        self.positive(session.tool_timeout, "session.tool_timeout");
        self.at_least_one(session.tool_response_max_bytes, "session.tool_response_max_bytes");
        self.at_least_one(session.max_output_tokens, "session.max_output_tokens");
        self.at_least_one(session.read_page_lines.into(), "session.read_page_lines");
        self.at_least_one(session.inline_payload_max_bytes, "session.inline_payload_max_bytes");
        self.at_least_one(session.loop_guard.window.into(), "session.loop_guard.window");
        let (window, threshold) = (session.loop_guard.window, session.loop_guard.threshold);
        self.at_least_one(threshold.into(), "session.loop_guard.threshold");
        self.require(
            threshold <= window,
            "session.loop_guard.threshold",
            format!("must be at most session.loop_guard.window ({window}), but is {threshold}; it would never be reached"),
        );
        self.require(
            session.retry_backoff <= session.retry_backoff_max,
            "session.retry_backoff",
            format!("must not be longer than retry_backoff_max ({})", session.retry_backoff_max),
        );
        self.temperature(session.temperature, "session.temperature");
        for (name, queue) in &session.queues {
            self.at_least_one(queue.concurrent.into(), &format!("session.queues.{name}.concurrent"));
        }
        for (index, target) in session.targets.iter().enumerate() {
            let key = format!("session.targets[{index}]");
            self.require(!target.model.trim().is_empty(), &format!("{key}.model"), "is empty");
            self.temperature(target.temperature, &format!("{key}.temperature"));
            if let Some(tokens) = target.max_output_tokens {
                self.at_least_one(tokens, &format!("{key}.max_output_tokens"));
            }
            let prices = target
                .price
                .map(|price| [Some(price.input), Some(price.output), price.cache_read, price.cache_write]);
            for dollars in prices.into_iter().flatten().flatten() {
                self.amount(dollars, &format!("{key}.price"));
            }
        }
    }

    fn temperature(&mut self, temperature: Option<f64>, key: &str) {
        if let Some(value) = temperature {
            let fits = (0.0..=2.0).contains(&value);
            self.require(fits, key, format!("must be between 0 and 2, but is {value}"));
        }
    }

    fn daemon(&mut self, file: &ConfigFile) {
        let daemon = &file.daemon;
        let second = std::time::Duration::from_secs(1);
        self.require(
            daemon.poll_interval.0 >= second,
            "daemon.poll_interval",
            format!("must be at least 1s, but is {}", daemon.poll_interval),
        );
        self.at_least_one(daemon.max_concurrent_runs.into(), "daemon.max_concurrent_runs");
        self.at_least_one(daemon.max_runs_per_repository.into(), "daemon.max_runs_per_repository");
        self.require(
            daemon.webhook_secret.as_deref().is_none_or(|secret| !secret.trim().is_empty()),
            "daemon.webhook_secret",
            "is empty; write a placeholder such as \"${WEBHOOK_SECRET}\", or leave the key out",
        );
        let listen = daemon.listen.trim();
        self.require(
            listen.is_empty() || listen.parse::<std::net::SocketAddr>().is_ok(),
            "daemon.listen",
            format!("\"{listen}\" is not an address and port; write for example \"127.0.0.1:7878\""),
        );
        self.require(
            daemon.token.as_deref().is_none_or(|token| !token.trim().is_empty()),
            "daemon.token",
            "is empty; write a placeholder such as \"${AGENTD_TOKEN}\", or leave the key out",
        );
        let public = listen.parse().is_ok_and(|address: std::net::SocketAddr| !address.ip().is_loopback());
        self.require(
            !public || daemon.token.is_some(),
            "daemon.listen",
            format!(
                "{listen} is not loopback: whoever reaches it could read every journal; set daemon.token = \
                 \"${{AGENTD_TOKEN}}\", or listen on 127.0.0.1 behind a proxy with a login"
            ),
        );
        for (index, host) in daemon.hosts.iter().enumerate() {
            let key = format!("daemon.hosts[{index}]");
            let named = host.trim().parse::<HostRule>().is_ok() && !host.contains('*');
            self.require(
                named,
                &key,
                format!("\"{host}\" is not a host; write example.org or example.org:8443"),
            );
        }
    }

    fn repository(&mut self, table: &RepositoryTable, key: &str) {
        let at = |field: &str| format!("{key}.{field}");
        self.require(
            is_agent_name(&table.agent),
            &at("agent"),
            format!("\"{}\" {AGENT_NAME_RULE}", table.agent),
        );
        self.require(
            table.remote.as_ref().is_none_or(|name| !name.trim().is_empty()),
            &at("remote"),
            "is empty",
        );
        if let Some(cron) = table.sweep.as_deref().filter(|cron| !cron.trim().is_empty()) {
            let wrong = wrong_cron(cron);
            let message = wrong.as_deref().unwrap_or_default();
            self.require(
                wrong.is_none(),
                &at("sweep"),
                format!("\"{cron}\" is not a cron expression of five fields ({message})"),
            );
            let comes =
                |cron: croner::Cron| cron.find_next_occurrence(&DateTime::<Utc>::UNIX_EPOCH, false).is_ok();
            self.require(
                croner::Cron::from_str(cron).map_or(true, comes),
                &at("sweep"),
                format!("\"{cron}\" never comes: no month has that day"),
            );
        }
        self.require(
            table.sweep_labels.iter().all(|label| !label.trim().is_empty()),
            &at("sweep_labels"),
            "names a label that is blank",
        );
        // An entry without name is about a checkout, too.
        self.require(
            table.clone == CloneContents::Full || table.path.is_none() && table.name.is_some(),
            &at("clone"),
            "is for a clone that agentd manages: an entry with a `name` and without a `path`",
        );
        self.require(
            table.timezone.parse::<chrono_tz::Tz>().is_ok(),
            &at("timezone"),
            format!("\"{}\" is not a time zone; write for example \"Europe/Berlin\"", table.timezone),
        );
    }

    /// A sweep of all issues, which nobody asks for, needs a limit and a cap on money (D101).
    fn bounded_sweeps(&mut self, file: &ConfigFile) {
        let unbounded = |table: &RepositoryTable| {
            let scheduled = table.sweep.as_deref().is_some_and(|cron| !cron.trim().is_empty());
            scheduled && table.sweep_select == SweepSelect::All
        };
        for (index, table) in file.repositories.iter().enumerate().filter(|(_, table)| unbounded(table)) {
            let key = format!("repositories[{index}].sweep_select");
            let bounded = table.sweep_limit > 0 && file.budgets.max_cost_per_day > 0.0;
            let message = "\"all\" on a schedule starts runs that nobody asked for: set sweep_limit here and \
                           max_cost_per_day under [budgets] as well, or take sweep_select = \"labelled\"";
            self.require(bounded, &key, message);
        }
    }

    /// An entry without name and path is about the checkout around its file, or as the only one about the checkout here.
    fn unnamed_repository(&mut self, (file, index): (&ConfigFile, usize), base: &Path) {
        let is_unnamed = |table: &RepositoryTable| table.path.is_none() && table.name.is_none();
        if !is_unnamed(&file.repositories[index]) {
            return;
        }
        let key = format!("repositories[{index}]");
        let source = self.tree.source(&key);
        let stands_here =
            matches!(&source, Source::File { path, .. } if layer::own(base).as_ref() == Some(path));
        let is_first = !file.repositories[..index].iter().any(is_unnamed);
        self.require(
            base.join(".git").exists() && is_first && (stands_here || file.repositories.len() == 1),
            &key,
            "needs `path` (the main checkout), or `name` for a clone that agentd manages",
        );
    }

    fn distinct_repositories(&mut self, file: &ConfigFile) {
        let mut seen = BTreeSet::new();
        for (index, table) in file.repositories.iter().enumerate() {
            if let Some(name) = &table.name {
                let new = seen.insert(name.to_string().to_ascii_lowercase());
                self.require(
                    new,
                    &format!("repositories[{index}].name"),
                    format!("{name} stands here twice"),
                );
            }
        }
    }

    fn github(&mut self, file: &ConfigFile) {
        let github = &file.github;
        self.at_least_one(github.max_requests_per_minute.into(), "github.max_requests_per_minute");
        let urls = [("api_url", Some(&github.api_url)), ("graphql_url", github.graphql_url.as_ref())];
        for (field, url) in urls.into_iter().filter_map(|(field, url)| Some((field, url?))) {
            self.address(url, &format!("github.{field}"));
        }
        let mut seen = BTreeSet::new();
        for (field, label) in github.labels.all() {
            let (key, label) = (format!("github.labels.{field}"), label.name);
            self.require(!label.trim().is_empty(), &key, "is empty");
            let fits = label.trim() == label && !label.contains([',', '\n']);
            let rule = "must be a name as GitHub has it: no comma, no blanks around it";
            self.require(fits, &key, format!("{rule}, but is \"{label}\""));
            let length = label.chars().count();
            let rule = "GitHub takes names of at most";
            self.require(
                length <= LONGEST_LABEL,
                &key,
                format!("{rule} {LONGEST_LABEL} characters, but it has {length}"),
            );
            let new = seen.insert(label.to_lowercase());
            self.require(new, &key, format!("\"{label}\" is already the name of another label"));
        }
    }

    /// A placeholder is looked at when it is resolved.
    pub(super) fn address(&mut self, url: &str, key: &str) {
        let fits = url.contains("${") || is_http(url);
        self.require(fits, key, format!("\"{url}\" is not an http(s) address"));
    }

    fn queue(&mut self, queue: Option<&String>, key: &str, file: &ConfigFile) {
        if let Some(queue) = queue {
            let known = queue == DEFAULT_QUEUE || file.session.queues.contains_key(queue);
            self.require(known, key, format!("\"{queue}\" is not declared; add [session.queues.{queue}]"));
        }
    }

    fn tool_name(&mut self, name: &str, key: &str) {
        let fits = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            && !name.contains("__");
        let rule = "must be letters, digits, `-` and single `_`: models see it in tool names";
        self.require(fits, key, rule);
    }

    fn mcp_server(&mut self, server: &McpServerTable, name: &str, file: &ConfigFile) {
        let key = format!("mcp.servers.{name}");
        self.tool_name(name, &key);
        let reserved = ["agent", "exec_agent"].contains(&name);
        self.require(
            !reserved,
            &key,
            "is reserved: agentd's own tools begin with it; name the server otherwise",
        );
        self.require(
            server.command.is_some() != server.url.is_some(),
            &key,
            "needs either `command` (a program to start) or `url` (an HTTP server)",
        );
        if let Some(url) = &server.url {
            self.address(url, &format!("{key}.url"));
        }
        for (field, globs) in [("allow", &server.allow), ("deny", &server.deny)] {
            for glob in globs {
                let fits = globset::Glob::new(glob).is_ok();
                self.require(fits, &format!("{key}.{field}"), format!("\"{glob}\" is not a glob"));
            }
        }
        let patterns =
            server.reads.iter().filter(|reads| reads.trim().is_empty() || reads.contains(['*', '?', '[']));
        for pattern in patterns {
            let message =
                format!("\"{pattern}\" is a pattern; name each tool that is known to change nothing");
            self.require(false, &format!("{key}.reads"), message);
        }
        self.queue(server.queue.as_ref(), &format!("{key}.queue"), file);
    }

    fn rest_tool(&mut self, tool: &RestToolTable, name: &str, file: &ConfigFile) {
        let key = format!("rest.tools.{name}");
        self.tool_name(name, &key);
        self.require(!tool.url.trim().is_empty(), &format!("{key}.url"), "is empty");
        self.require(
            !tool.description.trim().is_empty(),
            &format!("{key}.description"),
            "is empty; models choose tools by it",
        );
        if let Some(timeout) = tool.timeout {
            self.positive(timeout, &format!("{key}.timeout"));
        }
        self.queue(tool.queue.as_ref(), &format!("{key}.queue"), file);
    }

    fn sandbox(&mut self, file: &ConfigFile) {
        let sandbox = &file.sandbox;
        for place in &sandbox.readable {
            let below = place.strip_prefix("~/").unwrap_or(place);
            let named = place.starts_with("~/") || Path::new(place).is_absolute();
            let fits = named
                && below.split('/').any(|part| !part.is_empty())
                && !below.split('/').any(|part| part == "..");
            let message = format!(
                "\"{place}\" is no place: write \"~/FOLDER\" or an absolute path, not the home itself"
            );
            self.require(fits, "sandbox.readable", message);
        }
        let limits = [
            ("max_processes", sandbox.max_processes),
            ("max_memory_mib", sandbox.max_memory_mib),
            ("max_file_mib", sandbox.max_file_mib),
            ("max_open_files", sandbox.max_open_files),
            ("max_tmp_mib", sandbox.max_tmp_mib),
        ];
        for (field, value) in limits {
            self.at_least_one(value, &format!("sandbox.{field}"));
            let fits = value < 1 << 40;
            self.require(fits, &format!("sandbox.{field}"), format!("{value} is no limit"));
        }
        if let Err(bad) = Egress::of(sandbox.hosts.iter().map(String::as_str)) {
            self.require(false, "sandbox.hosts", bad.to_string());
        }
        for (name, endpoint) in &sandbox.endpoints {
            let key = format!("sandbox.endpoints.{name}");
            let fits = !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
            self.require(fits, &key, "must be letters, digits, `.`, `-` and `_`: it stands in addresses");
            self.address(&endpoint.url, &format!("{key}.url"));
        }
    }

    fn program(&mut self, file: &ConfigFile) {
        for problem in file.program.configured().err().into_iter().flatten() {
            // Messages are those of definitions, where keys are in camel case.
            let key = match problem.key {
                "maxTurns" => "max_turns",
                "stallLimit" => "stall_limit",
                "maxRequests" => "max_requests",
                "maxTokens" => "max_tokens",
                other => other,
            };
            let message = format!("{}; {}", problem.message.replace(problem.key, key), problem.fix);
            // What is missing is told where something of the table is written.
            let is_written = |key: &str| self.tree.source(key) != Source::Default;
            let keys = [format!("program.{key}"), "program.backend".to_owned()];
            let further =
                self.tree.leaves().into_iter().map(|(key, _)| key).filter(|key| key.starts_with("program."));
            let place = keys.iter().cloned().chain(further).find(|key| is_written(key));
            self.require(false, &place.unwrap_or_else(|| keys[0].clone()), message);
        }
    }

    fn commands(&mut self, file: &ConfigFile) {
        let lists = [
            ("verify.commands", &file.verify.commands),
            ("worktree.setup", &file.worktree.setup),
            ("record.sinks", &file.record.sinks),
        ];
        for (key, list) in lists {
            for (index, argv) in list.iter().enumerate() {
                self.argv(argv, &format!("{key}[{index}]"));
            }
        }
        for (key, argv) in
            [("policy.program", &file.policy.program), ("redaction.program", &file.redaction.program)]
        {
            if !argv.is_empty() {
                self.argv(argv, key);
            }
        }
    }

    fn paths(&mut self, file: &ConfigFile) {
        let worktree = &file.worktree;
        self.inside(&worktree.root, "worktree.root");
        let in_git = worktree.root.iter().any(|name| name.eq_ignore_ascii_case(".git"));
        self.require(!in_git, "worktree.root", "is git's own directory; name one for nothing but worktrees");
        let at_home = worktree.root.iter().next().is_some_and(|name| name.to_string_lossy().starts_with('~'));
        self.require(
            !at_home,
            "worktree.root",
            "`~` is no home here; write a relative path inside the main checkout",
        );
        for (paths, key) in [
            (&worktree.copy, "worktree.copy"),
            (&worktree.keep_ignored, "worktree.keep_ignored"),
            (&worktree.setup_inputs, "worktree.setup_inputs"),
        ] {
            paths.iter().for_each(|path| self.inside(path, key));
        }
        let decided = worktree.keep_ignored.is_empty() || !worktree.setup_inputs.is_empty();
        self.require(
            decided,
            "worktree.keep_ignored",
            "needs worktree.setup_inputs: name the files that decide what worktree.setup makes, such as package-lock.json",
        );
        let made = worktree.keep_ignored.is_empty() || !worktree.setup.is_empty();
        self.require(
            made,
            "worktree.keep_ignored",
            "needs worktree.setup: what is kept is what its commands make",
        );
        for path in &worktree.sparse {
            self.inside(Path::new(path), "worktree.sparse");
        }
        self.positive(worktree.setup_timeout, "worktree.setup_timeout");
        let few = worktree.pool <= MOST_WARM;
        self.require(
            few,
            "worktree.pool",
            format!("is more than {MOST_WARM}; each takes the room of a checkout"),
        );
        let apart = worktree.pool == 0 || !worktree.hooks;
        self.require(
            apart,
            "worktree.pool",
            "does not go with worktree.hooks: the repository's hooks would run before there is an issue; set one of them",
        );
    }

    fn inside(&mut self, path: &Path, key: &str) {
        let fits = !path.as_os_str().is_empty()
            && path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
            && path.components().any(|part| matches!(part, Component::Normal(_)));
        let message = format!("\"{}\" must be a relative path inside the main checkout", path.display());
        self.require(fits, key, message);
    }

    fn commit_caps(&mut self, file: &ConfigFile) {
        let commit = &file.commit;
        for (key, value) in [
            ("max_file", commit.max_file),
            ("max_files", u64::from(commit.max_files)),
            ("max_lines", commit.max_lines),
            ("max_bytes", commit.max_bytes),
        ] {
            self.require(value > 0, &format!("commit.{key}"), "must be at least 1");
        }
        for pattern in &commit.exclude {
            let fits =
                !pattern.trim().is_empty() && !pattern.starts_with('#') && !pattern.contains(['\n', '\0']);
            let message = format!("{pattern:?} is no pattern of .gitignore: one line, not empty, no comment");
            self.require(fits, "commit.exclude", message);
        }
        if let Err(error) = Globs::paths(&commit.secrets_allowed) {
            self.require(false, "commit.secrets_allowed", error.to_string());
        }
    }

    fn questions(&mut self, table: &QuestionsTable) {
        self.positive(table.remind, "questions.remind");
        self.positive(table.timeout, "questions.timeout");
    }

    fn plan(&mut self, table: &PlanTable) {
        for (label, key) in [(&table.label, "plan.label"), (&table.approved_label, "plan.approved_label")] {
            self.require(!label.trim().is_empty(), key, "must be the name of a label");
        }
        let differ = !table.label.trim().eq_ignore_ascii_case(table.approved_label.trim());
        self.require(differ, "plan.approved_label", "must be another label than plan.label");
    }

    fn conversation(&mut self, table: &ConversationTable) {
        let known = ActorPermission::ALL.iter().skip(1).map(|permission| permission.as_str());
        let words = known.collect::<Vec<_>>().join("\", \"");
        let trusted = table.trusted.trim();
        // With "none" everybody would be trusted.
        self.require(
            trusted.is_empty()
                || ActorPermission::parse(trusted).is_some_and(|least| least > ActorPermission::None),
            "conversation.trusted",
            format!("must be empty or one of \"{words}\", but is \"{trusted}\""),
        );
        for (count, key) in [
            (table.max_chars, "conversation.max_chars"),
            (table.max_chars_each, "conversation.max_chars_each"),
            (table.max_rules_chars, "conversation.max_rules_chars"),
            (table.max_pages as usize, "conversation.max_pages"),
            (table.max_rounds as usize, "conversation.max_rounds"),
            (table.max_image_bytes as usize, "conversation.max_image_bytes"),
        ] {
            self.at_least_one(count as u64, key);
        }
        self.require(
            table.progress_interval.0 >= std::time::Duration::from_secs(1),
            "conversation.progress_interval",
            format!("must be at least 1s, but is {}", table.progress_interval),
        );
        self.require(
            table.quiet_period <= table.max_wait,
            "conversation.quiet_period",
            format!("must not be longer than conversation.max_wait ({})", table.max_wait),
        );
        for name in &table.rules {
            let fits = !name.trim().is_empty() && !name.contains(['/', '\\', '\0']);
            self.require(
                fits,
                "conversation.rules",
                format!("\"{name}\" is not the name of a file without folders"),
            );
        }
    }

    fn checks(&mut self, table: &ChecksTable) {
        self.at_least_one(table.log_bytes as u64, "checks.log_bytes");
        self.at_least_one(table.log_download_max, "checks.log_download_max");
        self.require(
            table.log_bytes <= table.log_bytes_total,
            "checks.log_bytes",
            format!("must not be more than checks.log_bytes_total ({})", table.log_bytes_total),
        );
    }

    fn texts(&mut self, file: &ConfigFile) {
        if let Err(error) = Redactor::new([0; 32], Vec::new(), &file.redaction.patterns) {
            // The parser's message has several lines; the last one says what is wrong.
            let told = error.to_string();
            let told = [told.lines().next(), told.lines().skip(1).last()].map(Option::unwrap_or_default);
            self.require(false, "redaction.patterns", told.join(" ").trim().to_owned());
        }
        for trailer in &file.commit.trailers {
            let fits = trailer.split_once(": ").is_some_and(|(key, value)| {
                !key.is_empty()
                    && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
                    && !value.trim().is_empty()
                    && !value.contains('\n')
            });
            self.require(
                fits,
                "commit.trailers",
                format!("\"{trailer}\" is not a trailer; write \"Key: value\""),
            );
        }
        self.commit_caps(file);
        let chat = &file.chat;
        self.require(
            (1..=50).contains(&chat.max_iterations),
            "chat.max_iterations",
            format!("must be between 1 and 50, but is {}", chat.max_iterations),
        );
        self.at_least_one(chat.max_output_tokens, "chat.max_output_tokens");
        self.positive(chat.turn_timeout, "chat.turn_timeout");
        let ids: Vec<Option<Uuid>> = chat.users.iter().map(|user| Uuid::parse_str(&user.id).ok()).collect();
        for (index, (user, id)) in chat.users.iter().zip(&ids).enumerate() {
            let key = format!("chat.users[{index}].id");
            self.require(id.is_some(), &key, format!("\"{}\" is not a UUID", user.id));
            let again = id.is_some() && ids[..index].contains(id);
            self.require(!again, &key, format!("\"{}\" stands here twice", user.id));
        }
    }
}

/// What is wrong with a cron expression: the number of its fields, or the first one that is wrong by itself.
fn wrong_cron(cron: &str) -> Option<String> {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    if fields.len() != CRON_FIELDS.len() {
        return Some(format!("{} are wanted, and it has {}", CRON_FIELDS.join(" "), fields.len()));
    }
    let error = croner::Cron::from_str(cron).err()?;
    let is_wrong = |place: &usize| {
        let mut alone = ["*"; CRON_FIELDS.len()];
        alone[*place] = fields[*place];
        croner::Cron::from_str(&alone.join(" ")).is_err()
    };
    let wrong = (0..fields.len()).find(is_wrong);
    let named = wrong.map(|place| format!("the {} \"{}\": ", CRON_FIELDS[place], fields[place]));
    Some(format!("{}{error}", named.unwrap_or_default()))
}
