//! Declarative policy rules: what a rule may look at, and which rule decides. What no rule allows is denied (P-038,
//! D44).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use globset::{GlobBuilder, GlobSet};
use serde_json::{Map, Value};

use super::call_scope::{CallScope, Program, ScopeHost, ScopePath, host_text};
use super::canonical::sha256_hex;
use super::hidden_command;
use super::policy::{
    APPROVAL_REQUIRED, ActorPermission, Decision, DenyMode, PolicyInput, PolicyResult, ProposalKind,
};

/// Reason of the denial when rules of the kind exist and none matched.
pub const NO_RULE_MATCHED: &str = "no_rule_matched";

/// Reason of what is allowed because a person approved it.
pub const APPROVED: &str = "approved";

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

impl RuleName {
    /// Whether it is that name, or any.
    fn is(&self, other: &str) -> bool {
        match self {
            Self::Exactly(name) => name == other,
            Self::Any => true,
        }
    }
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

impl When {
    /// Whether nothing is asked.
    fn is_always(&self) -> bool {
        let Self { path, argv, host, max_bytes, from, to, actor_permission } = self;
        path.is_none()
            && argv.is_none()
            && host.is_none()
            && max_bytes.is_none()
            && from.is_none()
            && to.is_none()
            && actor_permission.is_none()
    }

    /// Whether nothing is asked but where a handoff comes from and leads to.
    fn asks_for_steps_alone(&self) -> bool {
        Self { from: None, to: None, ..self.clone() }.is_always()
    }

    /// Whether a handoff comes from and leads to where it has to.
    fn fits_steps(&self, from: Option<&str>, to: Option<&str>) -> bool {
        self.from.as_ref().is_none_or(|globs| from.is_some_and(|step| globs.exact(step)))
            && self.to.as_ref().is_none_or(|globs| to.is_some_and(|step| globs.exact(step)))
    }
}

/// The denial of a handoff that is certain before anything is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffDenial {
    /// The rule that denies it; `None` = no rule allows it.
    pub rule_id: Option<String>,
    /// Audit reason.
    pub reason: String,
    /// Whether the rule speaks of this handoff; one that denies all others does not.
    pub named: bool,
}

/// What there is where rules are used.
pub struct Surroundings<'a> {
    /// Whether calls of a tool of this name are possible.
    pub is_tool: &'a dyn Fn(&str) -> bool,
    /// All agents; `None` = not known.
    pub agents: Option<&'a BTreeSet<String>>,
    /// The steps of all agents; `None` = not known.
    pub steps: Option<&'a BTreeSet<String>>,
    /// Whether a path of the worktree is a folder.
    pub is_folder: &'a dyn Fn(&str) -> bool,
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
        let rule = deciding(&self.narrowing, input, scope)?;
        let verdict = RuleVerdict { result: rule.result(), rule_id: Some(rule.id.clone()) };
        (rule.effect == Decision::Deny).then_some(verdict)
    }

    /// Whether rules deny calls like this one by their paths.
    pub fn deny_paths_of(&self, input: &PolicyInput) -> bool {
        self.all().any(|rule| rule.denies_by_path() && rule.is_about(input))
    }

    /// Whether the rule that decides a call denies it by its paths.
    pub fn denies_path(&self, input: &PolicyInput, scope: &CallScope) -> bool {
        let lists = [&self.narrowing, &self.rules];
        lists.into_iter().any(|rules| first_match(rules, input, scope).is_some_and(Rule::denies_by_path))
    }

    /// Rules that decide nothing, or less than they say, each with the reason: an earlier one always decides, or there is not what it
    /// names.
    pub fn idle(&self, around: &Surroundings<'_>) -> Vec<(&str, String)> {
        let reason = |at: usize| {
            let rule = &self.rules[at];
            let before = self.rules[..at].iter().find(|before| {
                before.kind == rule.kind && before.name == rule.name && before.when.is_always()
            });
            match before {
                Some(before) => {
                    Some(format!("the rule \"{}\" before it decides all that it could", before.id))
                }
                None => rule.names_nothing(around).or_else(|| rule.names_a_folder(around)),
            }
        };
        (0..self.rules.len()).filter_map(|at| Some((self.rules[at].id.as_str(), reason(at)?))).collect()
    }

    /// The denial of a handoff that is certain whatever it hands over and whoever asks. `None` where it may be allowed, or
    /// approved by a person, or no rule is about handoffs.
    pub fn handoff_denial(&self, from: &str, to: &str) -> Option<HandoffDenial> {
        let by = |rule: &Rule| HandoffDenial {
            rule_id: Some(rule.id.clone()),
            reason: rule.reason.clone(),
            named: rule.name != RuleName::Any || !rule.when.is_always(),
        };
        if let Certain::Denied(rule) = certain(&self.narrowing, from, to) {
            return Some(by(rule));
        }
        match certain(&self.rules, from, to) {
            Certain::Denied(rule) => Some(by(rule)),
            Certain::NoRule if self.covers(ProposalKind::Handoff) => {
                Some(HandoffDenial { rule_id: None, reason: NO_RULE_MATCHED.to_owned(), named: false })
            }
            Certain::NoRule | Certain::Nothing => None,
        }
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
        match deciding(&self.rules, input, scope) {
            Some(rule) => RuleVerdict { result: rule.result(), rule_id: Some(rule.id.clone()) },
            None => {
                let mut result = PolicyResult::deny(NO_RULE_MATCHED, DenyMode::Throw);
                result.policy_version = self.version();
                RuleVerdict { result, rule_id: None }
            }
        }
    }
}

/// The rule that decides. A person approves a call for what it names: where a link leads to a path that they could not approve, or that no
/// rule is about, that is what counts.
fn deciding<'r>(rules: &'r [Rule], input: &PolicyInput, scope: &CallScope) -> Option<&'r Rule> {
    let first = first_match(rules, input, scope)?;
    if scope.paths.len() < 2 || !first.result().asks_for_approval() {
        return Some(first);
    }
    for path in &scope.paths {
        let alone = CallScope { paths: vec![path.clone()], ..scope.clone() };
        let rule = first_match(rules, input, &alone)?;
        if rule.effect == Decision::Deny && !rule.result().asks_for_approval() {
            return Some(rule);
        }
    }
    Some(first)
}

/// The first rule with the exact name that matches, else the first `*` rule that matches.
fn first_match<'r>(rules: &'r [Rule], input: &PolicyInput, scope: &CallScope) -> Option<&'r Rule> {
    let matching = |any: bool| {
        rules.iter().find(|rule| {
            rule.is_about(input) && (rule.name == RuleName::Any) == any && rule.matches(input, scope)
        })
    };
    matching(false).or_else(|| matching(true))
}

/// What is known of a handoff before it is proposed.
enum Certain<'r> {
    /// This rule denies it, and nobody can lift that.
    Denied(&'r Rule),
    /// No rule allows it.
    NoRule,
    /// A rule may allow it, or leave it to a person.
    Nothing,
}

/// As [`first_match`], for what a handoff brings with it being unknown.
fn certain<'r>(rules: &'r [Rule], from: &str, to: &str) -> Certain<'r> {
    for any in [false, true] {
        for rule in rules.iter().filter(|rule| (rule.name == RuleName::Any) == any && rule.may_fit(from, to))
        {
            if rule.effect == Decision::Allow || rule.reason == APPROVAL_REQUIRED {
                return Certain::Nothing;
            }
            if rule.when.asks_for_steps_alone() {
                return Certain::Denied(rule);
            }
        }
    }
    Certain::NoRule
}

/// `sha256:` and the first 12 hexadecimal digits over a policy file's bytes (P-014).
pub fn policy_version(bytes: &[u8]) -> String {
    format!("sha256:{}", &sha256_hex(bytes)[..12])
}

impl Rule {
    fn denies_by_path(&self) -> bool {
        self.effect == Decision::Deny && self.when.path.is_some()
    }

    /// Whether it speaks of such proposals at all.
    fn is_about(&self, input: &PolicyInput) -> bool {
        self.kind == input.kind && self.name.is(input.resource_name())
    }

    /// Whether there is nothing of what it names.
    fn names_nothing(&self, around: &Surroundings<'_>) -> Option<String> {
        let has = |all: Option<&BTreeSet<String>>, name: &str| all.is_none_or(|all| all.contains(name));
        let step = |name: &str| format!("no agent here has a step \"{name}\"");
        match (self.kind, &self.name) {
            (ProposalKind::Tool, RuleName::Exactly(name)) if !(around.is_tool)(name) => {
                return Some(format!("no tool is called \"{name}\""));
            }
            (ProposalKind::Run, RuleName::Exactly(name)) if !has(around.agents, name) => {
                return Some(format!("no agent here is called \"{name}\""));
            }
            (ProposalKind::Handoff, RuleName::Exactly(name)) if !has(around.steps, name) => {
                return Some(step(name));
            }
            _ => {}
        }
        let steps = around.steps?;
        let fits_none = |globs: &Globs| !steps.iter().any(|step| globs.exact(step));
        for globs in [&self.when.from, &self.when.to].into_iter().flatten() {
            let mut patterns = globs.0.patterns.iter();
            if let Some(gone) = patterns.find(|pattern| is_plain(pattern) && !steps.contains(*pattern)) {
                return Some(step(gone));
            }
            if fits_none(globs) {
                return Some(step(&globs.0.patterns.join("\" or \"")));
            }
        }
        None
    }

    /// Whether it is about files, and a path that it names is a folder: a glob without `**` fits nothing in it.
    fn names_a_folder(&self, around: &Surroundings<'_>) -> Option<String> {
        let is_about_files = match &self.name {
            RuleName::Exactly(name) => ["read_file", "write_file", "edit_file"].contains(&name.as_str()),
            RuleName::Any => true,
        };
        let globs = self.when.path.as_ref().filter(|_| is_about_files)?;
        let reaches_in = |folder: &str| globs.exact(&format!("{folder}/a/file"));
        let mut plain = globs.0.patterns.iter().filter(|pattern| is_plain(pattern));
        let folder = plain.find(|pattern| (around.is_folder)(pattern) && !reaches_in(pattern))?;
        Some(format!("\"{folder}\" is a folder, and no file in it fits; \"{folder}/**\" would fit them"))
    }

    /// Whether it fits a handoff, as far as that depends on the two steps.
    fn may_fit(&self, from: &str, to: &str) -> bool {
        self.kind == ProposalKind::Handoff && self.name.is(to) && self.when.fits_steps(Some(from), Some(to))
    }

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
            && when.fits_steps(input.from.as_deref(), input.to.as_deref())
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
        (Some(Program::Argv(argv)), true) => {
            prefixes.iter().any(|prefix| hidden_command::in_argv(prefix, argv))
        }
        (Some(Program::Line(line)), true) => {
            prefixes.iter().any(|prefix| hidden_command::in_line(prefix, line))
        }
    }
}

/// Whether a glob fits nothing but its own text.
fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '{', '\\'])
}

/// A list of globs, for exact case and for any case. Equal lists share memory, because the policies of many
/// repositories are much alike.
#[derive(Debug, Clone)]
pub struct Globs(Arc<Matchers>);

#[derive(Debug)]
struct Matchers {
    patterns: Vec<String>,
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

    /// Globs on hosts, each in the form in which hosts are compared. A rule looks at the host alone, without scheme, port and
    /// path.
    pub fn hosts(patterns: &[String]) -> Result<Self, GlobError> {
        let plain = patterns.iter().map(|pattern| {
            let bare = pattern.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let address = bare.filter(|bare| bare.contains(':'));
            let behind_brackets = pattern.contains("]:");
            let port = match pattern.rsplit_once(':') {
                Some((host, port)) if address.is_none() && !host.contains(':') => {
                    let is_group = port == "*" && host.chars().all(|c| c.is_ascii_hexdigit());
                    !is_group && (port == "*" || port.chars().all(|c| c.is_ascii_digit()))
                }
                _ => false,
            };
            if port || behind_brackets || pattern.contains('/') || pattern.trim().is_empty() {
                return Err(GlobError::NotAHost(pattern.clone()));
            }
            Ok(host_text(address.unwrap_or(pattern.trim())))
        });
        Self::compile(&plain.collect::<Result<Vec<_>, _>>()?, false)
    }

    /// Globs on names (steps): `*` matches any characters.
    pub fn names(patterns: &[String]) -> Result<Self, GlobError> {
        Self::compile(patterns, false)
    }

    fn compile(patterns: &[String], literal_separator: bool) -> Result<Self, GlobError> {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let said = (patterns.to_vec(), literal_separator);
        if let Some(matchers) = in_use.get(&said).and_then(Weak::upgrade) {
            return Ok(Self(matchers));
        }
        if let Some(negated) = patterns.iter().find(|pattern| pattern.starts_with('!')) {
            return Err(GlobError::Negated(negated.clone()));
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
        let matchers =
            Arc::new(Matchers { patterns: patterns.to_vec(), exact: set(false)?, any_case: set(true)? });
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
    /// More than a host.
    #[error(
        "\"{0}\" is not a host; a rule looks at the host alone: write it like \"example.org\", \"*.example.org\" or \"::1\", without scheme, port and path"
    )]
    NotAHost(String),
    /// Ends with a slash, and so would match nothing.
    #[error("the glob \"{0}\" names a folder and matches no file; write \"{0}**\"")]
    Folder(String),
    /// Begins with a `!`, which takes nothing out.
    #[error(
        "the glob \"{0}\" takes nothing out: `!` has no meaning here; name what is meant, and write `\\!` for a name that begins so"
    )]
    Negated(String),
    /// Not a glob.
    #[error("the glob \"{0}\" cannot be read: {1}")]
    Malformed(String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule about handoffs, `deny` or `allow`, to a step or all, from the steps that a glob names.
    fn rule(effect: Decision, name: RuleName, from: Option<&str>) -> Rule {
        let from = from.map(|glob| Globs::names(&[glob.to_owned()]).unwrap());
        Rule {
            id: format!("{effect:?}"),
            kind: ProposalKind::Handoff,
            name,
            effect,
            reason: "r".to_owned(),
            public_reason: None,
            deny_mode: DenyMode::Throw,
            when: When { from, ..When::default() },
            policy_version: String::new(),
        }
    }

    #[test]
    fn a_handoff_is_denied_for_certain_only_where_nothing_can_let_it_pass() {
        use Decision::{Allow, Deny};
        let b = || RuleName::Exactly("b".to_owned());
        let denial = |rules: Vec<Rule>| RuleSet::new(rules).handoff_denial("a", "b");
        let named = |rules: Vec<Rule>| denial(rules).map(|denial| (denial.rule_id, denial.named));
        assert_eq!(denial(Vec::new()), None, "no rule is about handoffs");
        let unknown = denial(vec![rule(Allow, RuleName::Any, Some("c"))]).unwrap();
        assert_eq!((unknown.rule_id, unknown.reason.as_str()), (None, NO_RULE_MATCHED));
        let deny = || Some("Deny".to_owned());
        assert_eq!(named(vec![rule(Deny, RuleName::Any, None)]), Some((deny(), false)));
        assert_eq!(named(vec![rule(Deny, RuleName::Any, Some("a"))]), Some((deny(), true)));
        assert_eq!(named(vec![rule(Deny, b(), None)]), Some((deny(), true)));
        let both = |one: Rule, other: Rule| denial(vec![one, other]).is_some();
        assert!(!both(rule(Deny, RuleName::Any, None), rule(Allow, b(), None)), "the exact name goes first");
        assert!(both(rule(Deny, b(), None), rule(Allow, RuleName::Any, None)));
        let mut small = rule(Deny, b(), None);
        small.when.max_bytes = Some(10);
        assert!(!both(small.clone(), rule(Allow, RuleName::Any, None)), "who knows what it brings");
        assert!(denial(vec![small]).is_some(), "denied by that rule, or by none");
        let asks = Rule { reason: APPROVAL_REQUIRED.to_owned(), ..rule(Deny, b(), None) };
        assert!(!both(asks, rule(Deny, RuleName::Any, None)), "a person may approve it");
        let narrowed = RuleSet::new(vec![rule(Allow, RuleName::Any, None)]);
        assert!(narrowed.narrowed_by(vec![rule(Deny, b(), None)]).handoff_denial("a", "b").is_some());
    }

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
