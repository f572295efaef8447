//! Declarative policy rules: what a rule may look at, and which rule decides. What no rule allows is denied (P-038,
//! D44).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use globset::{GlobBuilder, GlobSet};
use serde_json::{Map, Value};

use super::call_scope::{CallScope, Program, ScopeHost, ScopePath};
use super::canonical::sha256_hex;
use super::policy::{
    APPROVAL_REQUIRED, ActorPermission, Decision, DenyMode, PolicyInput, PolicyResult, ProposalKind,
};

/// Reason of the denial when rules of the kind exist and none matched.
pub const NO_RULE_MATCHED: &str = "no_rule_matched";

/// All rules in force, in the order of their files.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Rules of somebody who may only narrow. They are asked first, and only their denials count.
    narrowing: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Unique among the rules in force.
    pub id: String,
    /// What it speaks of.
    pub kind: ProposalKind,
    /// Of which tool, step or agent.
    pub name: RuleName,
    /// What it does when it matches.
    pub effect: Decision,
    /// Audit reason.
    pub reason: String,
    /// What model and people may see.
    pub public_reason: Option<String>,
    /// What a denial does.
    pub deny_mode: DenyMode,
    /// When it matches; empty = always.
    pub when: When,
    /// Version of its file (P-014).
    pub policy_version: String,
}

/// The name in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleName {
    /// This one.
    Exactly(String),
    /// `*`: asked after all rules with the exact name.
    Any,
}

/// Conditions. All that are present must hold.
///
/// A rule that allows needs certainty: there is at least one path (program, host), and every one matches. A rule that
/// denies needs a suspicion: one of them matches, or one cannot be read clearly.
#[derive(Debug, Clone, Default)]
pub struct When {
    /// Globs on paths relative to the worktree.
    pub path: Option<Globs>,
    /// Beginnings of argument lists.
    pub argv: Option<Vec<Vec<String>>>,
    /// Globs on host names.
    pub host: Option<Globs>,
    /// Most bytes of the arguments.
    pub max_bytes: Option<u64>,
    /// Globs on the step a handoff leaves.
    pub from: Option<Globs>,
    /// Globs on the step a handoff enters.
    pub to: Option<Globs>,
    /// Least permission of the actor.
    pub actor_permission: Option<ActorPermission>,
}

/// What the rules say of one proposal.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleVerdict {
    /// Mode materialised, version of the deciding file.
    pub result: PolicyResult,
    /// The rule that decided; `None` when none matched.
    pub rule_id: Option<String>,
}

impl RuleSet {
    /// Takes the rules in order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, narrowing: Vec::new() }
    }

    /// The same rules, with those of somebody who may only narrow before them.
    #[must_use]
    pub fn narrowed_by(self, narrowing: Vec<Rule>) -> Self {
        Self { narrowing, ..self }
    }

    /// The denial by somebody who may only narrow, if their first matching rule denies. Everything else is for the
    /// other rules.
    pub fn deny(&self, input: &PolicyInput, scope: &CallScope) -> Option<RuleVerdict> {
        let rule = first_match(&self.narrowing, input, scope)?;
        let verdict = RuleVerdict { result: rule.result(), rule_id: Some(rule.id.clone()) };
        (rule.effect == Decision::Deny).then_some(verdict)
    }

    /// The rules in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules in order, after those of somebody who may only narrow.
    pub fn all(&self) -> impl Iterator<Item = &Rule> {
        self.narrowing.iter().chain(&self.rules)
    }

    /// Whether any rule is about this kind. Rules for tools do not configure handoffs (P-004).
    pub fn covers(&self, kind: ProposalKind) -> bool {
        self.rules.iter().any(|rule| rule.kind == kind)
    }

    /// One version for all files: the file's own, or a hash over all of them.
    pub fn version(&self) -> Option<String> {
        let mut versions: Vec<&str> = self.all().map(|rule| rule.policy_version.as_str()).collect();
        versions.dedup();
        match versions.as_slice() {
            [] => None,
            [one] => Some((*one).to_owned()),
            several => Some(policy_version(several.join("\n").as_bytes())),
        }
    }

    /// The first rule with the exact name that matches, else the first `*` rule that matches, else a denial.
    pub fn decide(&self, input: &PolicyInput, scope: &CallScope) -> RuleVerdict {
        match first_match(&self.rules, input, scope) {
            Some(rule) => RuleVerdict { result: rule.result(), rule_id: Some(rule.id.clone()) },
            None => {
                let mut result = PolicyResult::deny(NO_RULE_MATCHED, DenyMode::Throw);
                result.policy_version = self.version();
                RuleVerdict { result, rule_id: None }
            }
        }
    }
}

/// The first rule with the exact name that matches, else the first `*` rule that matches.
fn first_match<'r>(rules: &'r [Rule], input: &PolicyInput, scope: &CallScope) -> Option<&'r Rule> {
    let matching = |any: bool| {
        rules.iter().find(|rule| {
            rule.kind == input.kind
                && match &rule.name {
                    RuleName::Exactly(name) => !any && name == input.resource_name(),
                    RuleName::Any => any,
                }
                && rule.matches(input, scope)
        })
    };
    matching(false).or_else(|| matching(true))
}

/// `sha256:` and the first 12 hexadecimal digits over a policy file's bytes (P-014).
pub fn policy_version(bytes: &[u8]) -> String {
    format!("sha256:{}", &sha256_hex(bytes)[..12])
}

impl Rule {
    /// Whether every predicate holds.
    pub fn matches(&self, input: &PolicyInput, scope: &CallScope) -> bool {
        let denies = self.effect == Decision::Deny;
        let when = &self.when;
        when.path.as_ref().is_none_or(|globs| paths_hold(globs, &scope.paths, denies))
            && when
                .argv
                .as_ref()
                .is_none_or(|prefixes| program_holds(prefixes, scope.program.as_ref(), denies))
            && when.host.as_ref().is_none_or(|globs| hosts_hold(globs, &scope.hosts, denies))
            && when.max_bytes.is_none_or(|most| scope.bytes <= most)
            && when.from.as_ref().is_none_or(|globs| input.from.as_deref().is_some_and(|s| globs.exact(s)))
            && when.to.as_ref().is_none_or(|globs| input.to.as_deref().is_some_and(|s| globs.exact(s)))
            && when.actor_permission.is_none_or(|least| input.principal.permission >= Some(least))
    }

    fn result(&self) -> PolicyResult {
        let mut result = match self.effect {
            Decision::Allow => PolicyResult::allow(&self.reason),
            Decision::Deny => PolicyResult::deny(&self.reason, self.deny_mode),
        };
        result.public_reason.clone_from(&self.public_reason);
        result.policy_version = Some(self.policy_version.clone());
        if self.effect == Decision::Deny && self.reason == APPROVAL_REQUIRED {
            let approval = Map::from_iter([("approval".to_owned(), Value::from("required"))]);
            result.metadata = Some(approval);
        }
        result
    }
}

fn paths_hold(globs: &Globs, paths: &[ScopePath], denies: bool) -> bool {
    let matches = |path: &ScopePath| match path {
        ScopePath::Inside(path) if denies => globs.any_case(path),
        ScopePath::Inside(path) => globs.exact(path),
        ScopePath::Unclear => denies,
    };
    if denies { paths.iter().any(matches) } else { !paths.is_empty() && paths.iter().all(matches) }
}

fn hosts_hold(globs: &Globs, hosts: &[ScopeHost], denies: bool) -> bool {
    let matches = |host: &ScopeHost| match host {
        ScopeHost::Named(host) => globs.any_case(host),
        ScopeHost::Unclear => denies,
    };
    if denies { hosts.iter().any(matches) } else { !hosts.is_empty() && hosts.iter().all(matches) }
}

fn program_holds(prefixes: &[Vec<String>], program: Option<&Program>, denies: bool) -> bool {
    match (program, denies) {
        (None, _) | (Some(Program::Unclear | Program::Line(_)), false) => false,
        (Some(Program::Unclear), true) => true,
        (Some(Program::Argv(argv)), false) => prefixes.iter().any(|prefix| argv.starts_with(prefix)),
        (Some(Program::Argv(argv)), true) => prefixes.iter().any(|prefix| starts_disguised(prefix, argv)),
        (Some(Program::Line(line)), true) => prefixes.iter().any(|prefix| line_mentions(prefix, line)),
    }
}

/// Programs that start the program named in their arguments.
const WRAPPERS: [&str; 26] = [
    "env",
    "nice",
    "nohup",
    "timeout",
    "time",
    "setsid",
    "stdbuf",
    "sudo",
    "doas",
    "xargs",
    "command",
    "exec",
    "busybox",
    "toybox",
    "ionice",
    "chroot",
    "unshare",
    "strace",
    "script",
    "watch",
    "find",
    "npx",
    "flock",
    "parallel",
    "systemd-run",
    "su",
];

/// Programs that run a text given among their arguments.
const SHELLS: [&str; 14] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "python", "python3", "perl", "ruby", "node", "awk",
    "pwsh",
];

/// Whether a denied command hides in an argument list: behind a path, an assignment, a wrapper, a shell or options.
fn starts_disguised(prefix: &[String], argv: &[String]) -> bool {
    let Some(first) = argv.first() else { return true };
    if words_follow(prefix, argv) {
        return true;
    }
    let program = base_name(first);
    if is_assignment(first) || WRAPPERS.contains(&program.as_str()) {
        return (1..argv.len()).any(|from| starts_disguised(prefix, &argv[from..]));
    }
    SHELLS.contains(&program.as_str()) && argv[1..].iter().any(|text| line_mentions(prefix, text))
}

/// Whether the words stand in order at the beginning, with nothing but options and their values in between.
fn words_follow(prefix: &[String], argv: &[String]) -> bool {
    let (Some((first, rest)), Some((program, arguments))) = (prefix.split_first(), argv.split_first()) else {
        return false;
    };
    base_name(first) == base_name(program) && rest_follows(rest, arguments)
}

fn rest_follows(rest: &[String], arguments: &[String]) -> bool {
    let Some((wanted, later)) = rest.split_first() else { return true };
    let Some((word, arguments)) = arguments.split_first() else { return false };
    if word == wanted && rest_follows(later, arguments) {
        return true;
    }
    // Skip an option, alone or with the value behind it.
    word.starts_with('-')
        && (rest_follows(rest, arguments)
            || arguments.split_first().is_some_and(|(_, more)| rest_follows(rest, more)))
}

fn line_mentions(prefix: &[String], line: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || ";|&()<>{}$`\"'\\,[]".contains(c);
    let words: Vec<String> = line.split(separates).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    (0..words.len()).any(|from| words_follow(prefix, &words[from..]))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn base_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_lowercase();
    name.strip_suffix(".exe").map_or(name.clone(), str::to_owned)
}

/// A list of globs, for exact case and for any case. Equal lists share memory, because the policies of many
/// repositories are much alike.
#[derive(Debug, Clone)]
pub struct Globs(Arc<Matchers>);

#[derive(Debug)]
struct Matchers {
    exact: GlobSet,
    any_case: GlobSet,
}

/// What a list says, and whether its `*` stays within a folder.
type Said = (Vec<String>, bool);

/// The lists in use.
static IN_USE: Mutex<BTreeMap<Said, Weak<Matchers>>> = Mutex::new(BTreeMap::new());

impl Globs {
    /// Path globs: `*` stays within a folder, `**` does not. They must be relative and plain.
    pub fn paths(patterns: &[String]) -> Result<Self, GlobError> {
        let relative = patterns.iter().map(|pattern| {
            let plain = pattern.strip_prefix("./").unwrap_or(pattern);
            let escapes = plain.split('/').any(|part| part == "..");
            if plain.is_empty() || Path::new(plain).is_absolute() || plain.starts_with('~') || escapes {
                return Err(GlobError::NotRelative(pattern.clone()));
            }
            if plain.ends_with('/') {
                return Err(GlobError::Folder(pattern.clone()));
            }
            Ok(plain.to_owned())
        });
        Self::compile(&relative.collect::<Result<Vec<_>, _>>()?, true)
    }

    /// Globs on names (hosts, steps): `*` matches any characters.
    pub fn names(patterns: &[String]) -> Result<Self, GlobError> {
        Self::compile(patterns, false)
    }

    fn compile(patterns: &[String], literal_separator: bool) -> Result<Self, GlobError> {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let said = (patterns.to_vec(), literal_separator);
        if let Some(matchers) = in_use.get(&said).and_then(Weak::upgrade) {
            return Ok(Self(matchers));
        }
        let set = |ignore_case: bool| {
            let globs = patterns.iter().map(|pattern| {
                GlobBuilder::new(pattern)
                    .literal_separator(literal_separator)
                    .case_insensitive(ignore_case)
                    .build()
                    .map_err(|error| GlobError::Malformed(pattern.clone(), error.kind().to_string()))
            });
            GlobSet::new(globs.collect::<Result<Vec<_>, _>>()?)
                .map_err(|error| GlobError::Malformed(patterns.join(", "), error.kind().to_string()))
        };
        let matchers = Arc::new(Matchers { exact: set(false)?, any_case: set(true)? });
        in_use.retain(|_, matchers| matchers.strong_count() > 0);
        in_use.insert(said, Arc::downgrade(&matchers));
        Ok(Self(matchers))
    }

    /// Whether a text matches one, in exact case.
    pub fn exact(&self, text: &str) -> bool {
        self.0.exact.is_match(text)
    }

    fn any_case(&self, text: &str) -> bool {
        self.0.any_case.is_match(text)
    }
}

/// A glob that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// Absolute, empty, or with `..`.
    #[error("the glob \"{0}\" is not relative to the worktree; write it like \"src/**\"")]
    NotRelative(String),
    /// Ends with a slash, and so would match nothing.
    #[error("the glob \"{0}\" names a folder and matches no file; write \"{0}**\"")]
    Folder(String),
    /// Not a glob.
    #[error("the glob \"{0}\" cannot be read: {1}")]
    Malformed(String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_of_globs_are_one_in_memory() {
        let patterns = ["only/here/**".to_owned()];
        let (one, other) = (Globs::paths(&patterns).unwrap(), Globs::paths(&patterns).unwrap());
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(!Arc::ptr_eq(&one.0, &Globs::names(&patterns).unwrap().0), "a name's `*` goes over slashes");
        let known = |patterns: &[String]| IN_USE.lock().unwrap().contains_key(&(patterns.to_vec(), true));
        drop((one, other));
        let _another = Globs::paths(&["elsewhere/**".to_owned()]).unwrap();
        assert!(!known(&patterns), "and gone when nobody has it any more");
    }
}
