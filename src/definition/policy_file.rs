//! Policy files: rules in TOML with their own examples. Every error has its line (D44).

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;
use uuid::Uuid;

use super::policy_when_file::WhenEntry;
use crate::domain::call_scope::CallScope;
use crate::domain::issue::IssueKey;
use crate::domain::policy::{
    APPROVAL_REQUIRED, ActorPermission, Decision, DenyMode, PROTOCOL_TOOLS, PolicyInput, PolicyPrincipal,
    ProposalContext, ProposalKind, Proposed, Risk,
};
use crate::domain::rules::{Rule, RuleName, RuleSet, When, policy_version};
use crate::domain::run::PrincipalSource;

/// The text of one policy file and the name it goes by in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    /// Path as people know it.
    pub name: String,
    /// The file's text.
    pub text: String,
}

impl PolicySource {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, PolicyFileError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => Err(PolicyFileError::Unreadable { file: name, message: error.to_string() }),
        }
    }
}

/// A policy that cannot be used; nothing of it is in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("cannot read the policy file {file}: {message}; see `policy.files` in agentd.toml")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's words.
        message: String,
    },
    /// A rule is wrong.
    #[error("{file}:{line}: {message}")]
    Wrong {
        /// The file.
        file: String,
        /// 1-based line.
        line: usize,
        /// What is wrong and what to do.
        message: String,
    },
}

/// What is not allowed by a rule is denied.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    /// Of the rules of a kind, the first one with the exact name that fits decides, else the first one with "*" that fits.
    #[serde(default)]
    #[schemars(with = "Vec<RuleEntry>")]
    rule: Vec<Spanned<RuleEntry>>,
}

/// A rule.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    /// Its name in records; each one once.
    #[schemars(with = "String")]
    id: Spanned<String>,
    /// `tool`: a call. `handoff`: a transition to another step. `run`: the start of a run.
    kind: ProposalKind,
    /// The tool, the step that is entered, or the agent: exactly, or "*" for all.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// Whether it allows or denies.
    effect: Decision,
    /// Why, for the record; `approval_required` in a rule that denies leaves the call to a person.
    #[schemars(with = "String")]
    reason: Spanned<String>,
    /// What the agent and people on GitHub read of a denial.
    public_reason: Option<String>,
    /// `throw`: the run ends (if none is written). `tool_result`: the agent is told, and goes on.
    #[schemars(with = "Option<DenyMode>")]
    deny_mode: Option<Spanned<DenyMode>>,
    /// When the rule fits; all of it has to hold.
    #[serde(default)]
    #[schemars(with = "Option<WhenEntry>")]
    when: Option<Spanned<WhenEntry>>,
    /// Examples that the whole file has to allow: a path, an argument list, the arguments, or a whole call.
    #[serde(default)]
    #[schemars(with = "Vec<Value>")]
    allows: Vec<Spanned<toml::Value>>,
    /// Examples that the whole file has to deny.
    #[serde(default)]
    #[schemars(with = "Vec<Value>")]
    denies: Vec<Spanned<toml::Value>>,
}

/// Where an error is told.
struct Place<'s> {
    source: &'s PolicySource,
}

impl Place<'_> {
    fn wrong(&self, at: usize, message: impl Into<String>) -> PolicyFileError {
        let before = self.source.text.get(..at).unwrap_or(&self.source.text);
        PolicyFileError::Wrong {
            file: self.source.name.clone(),
            line: before.matches('\n').count() + 1,
            message: message.into(),
        }
    }
}

/// An example call and where it stands.
struct Example<'s> {
    source: &'s PolicySource,
    at: usize,
    rule: usize,
    wanted: Decision,
    call: toml::Value,
}

/// Reads all policy files of a run as one rule set, in order, and runs every rule's examples against the whole.
pub fn read_policies(sources: &[PolicySource]) -> Result<RuleSet, PolicyFileError> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut examples = Vec::new();
    for source in sources {
        let place = Place { source };
        let file: PolicyFile = toml::from_str(&source.text).map_err(|error| {
            place.wrong(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let version = policy_version(source.text.as_bytes());
        for entry in file.rule {
            let entry = entry.into_inner();
            if rules.iter().any(|rule| rule.id == *entry.id.get_ref()) {
                let message = format!(
                    "the rule id \"{}\" is used twice; ids name rules in records",
                    entry.id.get_ref()
                );
                return Err(place.wrong(entry.id.span().start, message));
            }
            let wanted = [(&entry.allows, Decision::Allow), (&entry.denies, Decision::Deny)];
            for (calls, wanted) in wanted {
                examples.extend(calls.iter().map(|call| Example {
                    source,
                    at: call.span().start,
                    rule: rules.len(),
                    wanted,
                    call: call.get_ref().clone(),
                }));
            }
            rules.push(read_rule(&entry, &version, &place)?);
        }
    }
    let set = RuleSet::new(rules);
    for example in &examples {
        check(example, &set)?;
    }
    Ok(set)
}

/// Reads policy files that may only narrow others: their rules in order, with ids of their own. Their examples are
/// about these rules only and are not run.
pub fn read_narrowing(sources: &[PolicySource]) -> Result<Vec<Rule>, PolicyFileError> {
    let mut rules = Vec::new();
    for source in sources {
        let place = Place { source };
        let file: PolicyFile = toml::from_str(&source.text).map_err(|error| {
            place.wrong(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let version = policy_version(source.text.as_bytes());
        for entry in file.rule.into_iter().map(Spanned::into_inner) {
            let rule = read_rule(&entry, &version, &place)?;
            rules.push(Rule { id: format!("repository:{}", rule.id), ..rule });
        }
    }
    Ok(rules)
}

fn read_rule(entry: &RuleEntry, version: &str, place: &Place<'_>) -> Result<Rule, PolicyFileError> {
    let name = entry.name.get_ref();
    let at_name = entry.name.span().start;
    if name.trim().is_empty() {
        return Err(
            place.wrong(at_name, "the name is blank; write a tool's, step's or agent's name, or \"*\"")
        );
    }
    if name != "*" && name.contains(['*', '?', '[']) {
        let message = format!("the name \"{name}\" is a pattern; a name is exact, or \"*\" for every name");
        return Err(place.wrong(at_name, message));
    }
    if entry.kind == ProposalKind::Tool && PROTOCOL_TOOLS.contains(&name.as_str()) {
        let message = format!("\"{name}\" is always allowed and cannot be ruled; remove the rule");
        return Err(place.wrong(at_name, message));
    }
    for (text, key) in [(&entry.id, "id"), (&entry.reason, "reason")] {
        if text.get_ref().trim().is_empty() {
            return Err(place.wrong(text.span().start, format!("the {key} is blank")));
        }
    }
    if let (Decision::Allow, Some(mode)) = (entry.effect, &entry.deny_mode) {
        return Err(
            place.wrong(mode.span().start, "deny_mode has no meaning in a rule that allows; remove it")
        );
    }
    if entry.effect == Decision::Allow && entry.reason.get_ref() == APPROVAL_REQUIRED {
        let message = "the reason approval_required asks a person in a rule that denies; this one allows: write effect = \"deny\", or another reason";
        return Err(place.wrong(entry.reason.span().start, message));
    }
    let when = match &entry.when {
        Some(when) => {
            let read = when.get_ref().read(entry.kind, entry.effect, name);
            read.map_err(|message| place.wrong(when.span().start, message))?
        }
        None => When::default(),
    };
    Ok(Rule {
        id: entry.id.get_ref().clone(),
        kind: entry.kind,
        name: if name == "*" { RuleName::Any } else { RuleName::Exactly(name.clone()) },
        effect: entry.effect,
        reason: entry.reason.get_ref().clone(),
        public_reason: entry.public_reason.clone(),
        deny_mode: entry.deny_mode.as_ref().map_or(DenyMode::Throw, |mode| *mode.get_ref()),
        when,
        policy_version: version.to_owned(),
    })
}

/// The whole rule set must decide an example as it says. If the example shows the effect of its own rule, that rule
/// must decide it.
fn check(example: &Example<'_>, set: &RuleSet) -> Result<(), PolicyFileError> {
    let place = Place { source: example.source };
    let Some(rule) = set.rules().get(example.rule) else { return Ok(()) };
    let input = example_input(rule, &example.call).map_err(|message| place.wrong(example.at, message))?;
    let verdict = set.decide(&input, &CallScope::of(&input, None));
    let key = if example.wanted == Decision::Allow { "allows" } else { "denies" };
    let by = match &verdict.rule_id {
        Some(id) => format!("rule \"{id}\" decides it"),
        None => "no rule fits it, so that it is denied".to_owned(),
    };
    if verdict.result.decision != example.wanted {
        let message = format!("rule \"{}\": this example of `{key}` is not so: {by}", rule.id);
        return Err(place.wrong(example.at, message));
    }
    if rule.effect == example.wanted && verdict.rule_id.as_deref() != Some(rule.id.as_str()) {
        let message = format!("rule \"{}\": this example of `{key}` never reaches the rule: {by}", rule.id);
        return Err(place.wrong(example.at, message));
    }
    Ok(())
}

/// An example is a whole call `{name, arguments, …}`, or just the arguments, or an argv list, or one path or host.
fn example_input(rule: &Rule, call: &toml::Value) -> Result<PolicyInput, String> {
    let call = serde_json::to_value(call).map_err(|error| error.to_string())?;
    let mut question = Map::new();
    match call {
        Value::Object(members) if rule.kind != ProposalKind::Tool || members.contains_key("arguments") => {
            question = members;
        }
        Value::Object(members) => {
            question.insert("arguments".into(), Value::Object(members));
        }
        Value::Array(argv) => {
            question.insert("arguments".into(), serde_json::json!({ "argv": argv }));
        }
        Value::String(text) if rule.kind == ProposalKind::Tool => {
            let key = match (&rule.when.path, &rule.when.host) {
                (Some(_), None) => "path",
                (None, Some(_)) => "host",
                _ => return Err(
                    "a text stands for a path or a host where the rule looks at one; write { key = value }"
                        .into(),
                ),
            };
            question.insert("arguments".into(), serde_json::json!({ key: text }));
        }
        _ => return Err("an example is a table, a list (an argv), or a path or host".into()),
    }
    if let (false, RuleName::Exactly(name)) = (question.contains_key("name"), &rule.name) {
        question.insert("name".into(), Value::from(name.as_str()));
    }
    question.insert("kind".into(), serde_json::to_value(rule.kind).map_err(|error| error.to_string())?);
    read_question(&Value::Object(question)).map_err(|error| error.to_string())
}

/// A question that cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuestionError(String);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Question {
    #[serde(default, alias = "schema_version")]
    schema: Option<String>,
    kind: ProposalKind,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    step: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    raw_arguments: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    // Made anew from the arguments, so that they cannot disagree.
    #[serde(default, rename = "argsCanonicalJson")]
    _args_canonical_json: Option<String>,
    #[serde(default, rename = "proposalHash")]
    _proposal_hash: Option<String>,
    #[serde(default)]
    principal: Option<QuestionPrincipal>,
    #[serde(default, alias = "actor_permission")]
    actor_permission: Option<ActorPermission>,
    #[serde(default)]
    repo: Option<String>,
    #[serde(default)]
    issue: Option<IssueKey>,
    #[serde(default)]
    branch: Option<String>,
    #[serde(default)]
    turn: u32,
    #[serde(default)]
    risk: Option<Risk>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum QuestionPrincipal {
    Id(Uuid),
    Whole(PolicyPrincipal),
}

/// Reads what `policy eval --input` asks: a policy input in which everything but `kind` and the name (`tool`, `to`,
/// `agent`, or `name` for any of them) may be left out. Canonical arguments and hash are always made anew.
pub fn read_question(value: &Value) -> Result<PolicyInput, QuestionError> {
    let wrong = |message: String| QuestionError(message);
    let question: Question = serde_json::from_value(value.clone()).map_err(|error| {
        wrong(format!("not a policy input ({error}); `agentd config schema policy-input` shows one"))
    })?;
    if let Some(schema) =
        question.schema.as_deref().filter(|schema| *schema != crate::domain::policy::POLICY_INPUT_SCHEMA)
    {
        let known = crate::domain::policy::POLICY_INPUT_SCHEMA;
        return Err(wrong(format!("the schema is \"{schema}\"; this agentd reads \"{known}\"")));
    }
    let arguments = match (&question.arguments, &question.raw_arguments) {
        (Some(arguments), _) => Some(arguments.clone()),
        (None, Some(raw)) => {
            Some(serde_json::from_str(raw).map_err(|error| wrong(format!("rawArguments: {error}")))?)
        }
        (None, None) => None,
    };
    let named = |own: Option<String>, key: &str| {
        own.or_else(|| question.name.clone())
            .ok_or_else(|| wrong(format!("`{key}` is missing: name what is proposed")))
    };
    let mut agent = question.agent.clone().unwrap_or_default();
    let proposed = match question.kind {
        ProposalKind::Run => {
            agent = named(question.agent.clone(), "agent")?;
            Proposed::Run
        }
        ProposalKind::Tool => Proposed::Tool {
            name: named(question.tool.clone(), "tool")?,
            raw_arguments: question.raw_arguments.clone().unwrap_or_default(),
            arguments: arguments.unwrap_or_else(|| Value::Object(Map::new())),
            risk: question.risk.unwrap_or(Risk::Exec),
        },
        ProposalKind::Handoff => Proposed::Handoff {
            from: question.from.clone().unwrap_or_else(|| question.step.clone()),
            to: named(question.to.clone(), "to")?,
            payload: arguments.unwrap_or_else(|| Value::Object(Map::new())),
        },
    };
    let mut principal = match question.principal {
        Some(QuestionPrincipal::Whole(principal)) => principal,
        Some(QuestionPrincipal::Id(id)) => unknown_principal(id),
        None => unknown_principal(Uuid::nil()),
    };
    principal.permission = question.actor_permission.or(principal.permission);
    let context = ProposalContext {
        agent,
        step: question.step,
        principal,
        repo: question.repo.unwrap_or_default(),
        issue: question.issue.unwrap_or(IssueKey::Number(0)),
        branch: question.branch.unwrap_or_default(),
    };
    PolicyInput::new(context, question.turn, proposed).map_err(|error| wrong(error.to_string()))
}

fn unknown_principal(id: Uuid) -> PolicyPrincipal {
    PolicyPrincipal { id, login: None, source: PrincipalSource::Github, permission: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::domain::rules::Surroundings;

    fn source(text: &str) -> PolicySource {
        PolicySource { name: "policy.toml".into(), text: text.into() }
    }

    fn wrong(text: &str) -> String {
        read_policies(&[source(text)]).unwrap_err().to_string()
    }

    fn decision(set: &RuleSet, question: &Value) -> (Decision, Option<String>) {
        let input = read_question(question).unwrap();
        let verdict = set.decide(&input, &CallScope::of(&input, None));
        (verdict.result.decision, verdict.rule_id)
    }

    const GOOD: &str = r#"
[[rule]]
id = "edit-source"
kind = "tool"
name = "write_file"
effect = "allow"
reason = "source_may_change"
when = { path = ["src/**", "tests/**"], max_bytes = 200 }
allows = ["src/main.rs", { path = "tests/a/b.rs", content = "x" }]
denies = [".github/workflows/ci.yml", { path = "src/big.rs", content = "LONG" }]

[[rule]]
id = "cargo"
kind = "tool"
name = "run_command"
effect = "allow"
reason = "cargo_may_run"
when.argv = [["cargo", "test"], ["cargo", "check"]]
allows = [["cargo", "test", "--lib"]]
denies = [["cargo", "publish"], ["/tmp/cargo", "test"]]

[[rule]]
id = "no-secrets"
kind = "tool"
name = "*"
effect = "deny"
reason = "secrets_stay"
public_reason = "Files with secrets are not for you."
deny_mode = "tool_result"
when.path = "**/.env*"
denies = [{ name = "read_file", arguments = { path = "a/.env.local" } }]
allows = [{ name = "read_file", arguments = { path = "a/env.rs" } }]

[[rule]]
id = "look"
kind = "tool"
name = "read_file"
effect = "allow"
reason = "reading_is_fine"
when.path = "**/*.rs"

[[rule]]
id = "to-closure"
kind = "handoff"
name = "closure.issue"
effect = "allow"
reason = "may_close"
when = { from = "continuation.*" }
allows = [{ from = "continuation.issue" }]
denies = [{ from = "initial.issue" }]

[[rule]]
id = "writers"
kind = "run"
name = "*"
effect = "allow"
reason = "actor_may_write"
when.actor_permission = "write"
allows = [{ name = "resolver", actor_permission = "maintain" }]
denies = [{ name = "resolver", actor_permission = "read" }, { name = "resolver" }]
"#;

    #[test]
    fn p_038_rules_are_read_with_their_examples_and_the_first_match_decides() {
        let set = read_policies(&[source(&GOOD.replace("LONG", &"x".repeat(300)))]).unwrap();
        let tool =
            |name: &str, arguments: Value| json!({ "kind": "tool", "tool": name, "arguments": arguments });
        let allow = |id: &str| (Decision::Allow, Some(id.to_owned()));
        assert_eq!(decision(&set, &tool("write_file", json!({ "path": "src/x.rs" }))), allow("edit-source"));
        assert_eq!(decision(&set, &tool("write_file", json!({ "path": "x.rs" }))), (Decision::Deny, None));
        assert_eq!(decision(&set, &tool("read_file", json!({ "path": "x.rs" }))), allow("look"));
        assert_eq!(decision(&set, &tool("nobody", json!({ "path": "x.rs" }))), (Decision::Deny, None));
        let env = decision(&set, &tool("search", json!({ "path": "deep/.ENV" })));
        assert_eq!(env, (Decision::Deny, Some("no-secrets".into())));
        assert!(set.covers(ProposalKind::Run) && set.covers(ProposalKind::Handoff));
    }

    #[test]
    fn p_014_the_version_of_a_policy_is_the_hash_of_its_file() {
        let text = GOOD.replace("LONG", &"x".repeat(300));
        let set = read_policies(&[source(&text)]).unwrap();
        let hash = crate::domain::canonical::sha256_hex(text.as_bytes());
        assert_eq!(set.version().unwrap(), format!("sha256:{}", &hash[..12]));
        let other = source(
            "[[rule]]\nid = \"x\"\nkind = \"tool\"\nname = \"x\"\neffect = \"allow\"\nreason = \"r\"\n",
        );
        let both = read_policies(&[source(&text), other]).unwrap();
        assert_ne!(both.version(), set.version());
    }

    #[test]
    fn what_is_wrong_in_a_policy_is_told_with_file_and_line() {
        let rule = "[[rule]]\nid = \"a\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\nreason = \"r\"\n";
        let cases = [
            ("[[rule]]\nid = 3\n".to_owned(), 2, "string"),
            (format!("{rule}resaon = \"x\"\n"), 7, "unknown field `resaon`"),
            (format!("{rule}when = {{ paths = [\"x\"] }}\n"), 7, "unknown field `paths`"),
            (format!("{rule}when.path = [\"/etc/**\"]\n"), 7, "not relative"),
            (format!("{rule}when.path = [\"src/../..\"]\n"), 7, "not relative"),
            (format!("{rule}when.path = [\"src/\"]\n"), 7, "src/**"),
            (format!("{rule}when.path = [\"src/[\"]\n"), 7, "cannot be read"),
            (format!("{rule}when.host = [\"a.b:8080\"]\n"), 7, "without scheme, port"),
            (format!("{rule}when.host = [\"*:443\"]\n"), 7, "without scheme, port"),
            (format!("{rule}when.host = [\"[::1]:443\"]\n"), 7, "without scheme, port"),
            (format!("{rule}when.host = [\"https://a.b\"]\n"), 7, "without scheme, port"),
            (format!("{rule}when.argv = [[]]\n"), 7, "names no program"),
            (format!("{rule}when.argv = []\n"), 7, "empty list"),
            (format!("{rule}when.from = \"a\"\n"), 7, "kind = \"handoff\""),
            (format!("{rule}deny_mode = \"throw\"\n"), 7, "no meaning"),
            (format!("{rule}deny_mode = \"softly\"\n"), 7, "softly"),
            (format!("{rule}\n{rule}"), 9, "used twice"),
            (rule.replace("run_command", "tool_output"), 4, "always allowed"),
            (rule.replace("run_command", "files__*"), 4, "is a pattern"),
            (rule.replace("\"r\"", "\" \""), 6, "reason is blank"),
            (rule.replace("\"allow\"", "\"maybe\""), 5, "maybe"),
            (rule.replace("\"r\"", "\"approval_required\""), 6, "this one allows"),
            (format!("{rule}when.argv = [[\"git push\"]]\n"), 7, "[\"git\", \"push\"]"),
            (format!("{rule}when.path = [\"secret/**\"]\n"), 7, "names no path"),
            (
                format!("{}when.path = [\"!secret/**\"]\n", rule.replace("run_command", "*")),
                7,
                "takes nothing out",
            ),
            (
                format!("{}when.argv = [[\"a\"]]\n", rule.replace("run_command", "write_file")),
                7,
                "has no argv",
            ),
            (format!("{}when.host = \"a.b\"\n", rule.replace("run_command", "write_file")), 7, "is a host"),
            (format!("{}when.path = \"a\"\n", rule.replace("run_command", "git_status")), 7, "names no path"),
            (
                format!("{rule}when.argv = [[\"cargo\"]]\nallows = [[\"cargo\"],\n [\"env\", \"cargo\"]]\n"),
                9,
                "not so",
            ),
            (format!("{rule}denies = [[\"rm\"]]\n"), 7, "not so: rule \"a\" decides it"),
            (
                format!("{rule}when.argv = [[\"cargo\"]]\nallows = [[\"env\"]]\n"),
                8,
                "not so: no rule fits it, so that it is denied",
            ),
            (
                format!("{rule}\n{}allows = [[\"x\"]]\n", rule.replace("\"a\"", "\"b\"")),
                14,
                "never reaches the rule: rule \"a\"",
            ),
            ("rules = 1\n".to_owned(), 1, "unknown field `rules`"),
        ];
        for (text, line, words) in cases {
            let message = wrong(&text);
            assert!(message.starts_with(&format!("policy.toml:{line}: ")), "{text}\n-> {message}");
            assert!(message.contains(words), "{text}\n-> {message}");
        }
    }

    #[test]
    fn a_rule_that_can_decide_nothing_is_told() {
        let rule = |id: &str, name: &str, more: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nkind = \"tool\"\nname = \"{name}\"\neffect = \"allow\"\nreason = \"r\"\n{more}\n"
            )
        };
        let text = [
            rule("some", "read_file", "when.path = \"src/**\""),
            rule("all", "read_file", ""),
            rule("late", "read_file", "when.path = \"docs/**\""),
            rule("typo", "raed_file", ""),
            rule("rest", "*", ""),
            rule("lost", "*", "when.path = \"x\""),
        ];
        let set = read_policies(&[source(&text.concat())]).unwrap();
        let steps = BTreeSet::from(["a.b".to_owned()]);
        let around = Surroundings {
            is_tool: &|tool| tool == "read_file",
            agents: None,
            steps: Some(&steps),
            is_folder: &|path| path == "docs",
        };
        let idle = set.idle(&around);
        let told: Vec<(&str, bool)> = idle.iter().map(|(id, why)| (*id, why.contains("before it"))).collect();
        assert_eq!(told, [("late", true), ("typo", false), ("lost", true)]);
        let handoff =
            |id: &str, name: &str, more: &str| rule(id, name, more).replace("\"tool\"", "\"handoff\"");
        let text = [
            rule("folder", "read_file", "when.path = [\"docs\", \"src/**\"]"),
            rule("both", "read_file", "when.path = [\"docs\", \"docs/**\"]"),
            handoff("step", "a.c", ""),
            handoff("to", "*", "when.to = \"a.c\""),
            handoff("fits", "a.b", "when.from = \"a.*\""),
            rule("agent", "nobody", "").replace("\"tool\"", "\"run\""),
        ];
        let set = read_policies(&[source(&text.concat())]).unwrap();
        let told: Vec<&str> = set.idle(&around).into_iter().map(|(id, _)| id).collect();
        assert_eq!(told, ["folder", "step", "to"], "of agents nothing is known");
    }

    #[test]
    fn d45_a_question_may_leave_out_all_but_the_call_and_is_sealed_anew() {
        let question = json!({
            "kind": "tool", "tool": "write_file", "arguments": { "b": 1, "a": 2 },
            "argsCanonicalJson": "{}", "proposalHash": "forged", "principal": "8c5e1d1e-6f1a-5a53-9c76-4b4cbb2e6a0f",
        });
        let input = read_question(&question).unwrap();
        assert_eq!(input.args_canonical_json, r#"{"a":2,"b":1}"#);
        assert_eq!(input.proposal_hash.len(), 64);
        let whole = serde_json::to_value(&input).unwrap();
        assert_eq!(read_question(&whole).unwrap(), input, "what is written can be read");
        for (bad, words) in [
            (json!({ "kind": "tool" }), "`tool` is missing"),
            (json!({ "kind": "maybe" }), "maybe"),
            (json!({ "kind": "tool", "tool": "x", "colour": 1 }), "colour"),
            (
                json!({ "kind": "tool", "tool": "x", "schema": "agentd.policy_input.v9" }),
                "agentd.policy_input.v1",
            ),
        ] {
            let message = read_question(&bad).unwrap_err().to_string();
            assert!(message.contains(words), "{bad} -> {message}");
        }
    }
}
