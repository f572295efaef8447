//! The policy: rules, a program, or both. It is asked about every admission, tool call and handoff (P-002…P-007,
//! P-038).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::domain::agent_program::AgentProgram;
use crate::domain::approval::{Approval, Denial, NamedFile};
use crate::domain::call_scope::{CallScope, Program, ScopePath, program_of};
use crate::domain::canonical::{canonical_sha256, sha256_hex};
use crate::domain::denied_files::{DeniedFiles, READ_FILE, leaves_out, takes_folders_whole};
use crate::domain::executed::named;
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::policy::{
    Decision, DenyMode, FILE_TOOLS, PROTOCOL_TOOLS, PolicyInput, PolicyResult, ProposalContext, ProposalKind,
    Proposed, Risk,
};
use crate::domain::rules::{APPROVED, HandoffDenial, RuleSet, RuleVerdict};
use crate::sys::clock::Stopwatch;
use crate::sys::worktree_path::WorktreeRoot;

use super::envelope::POLICY_NOT_CONFIGURED;
use super::policy_program::PolicyProgram;

/// Version of decisions that no policy file or program made.
pub const BUILTIN_VERSION: &str = "builtin";

/// What a policy says, and how long it took to say it.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyVerdict {
    /// What the policy said. A denial without a mode is a hard one (P-015).
    pub result: PolicyResult,
    /// The declarative rule that decided or took part, if one did.
    pub rule_id: Option<String>,
    /// The approval that lifted a denial. It is used up. If the proposal does not run, the approval is given back.
    pub approval: Option<Box<Approval>>,
    /// The files that the command of a call names which waits for a person; `None` = it waits for nobody, or has no command.
    pub files: Option<Vec<NamedFile>>,
    /// The paths of the call, as they were when it was judged.
    pub paths: JudgedPaths,
    /// Time it took.
    pub duration: Duration,
}

/// Where approvals wait. Only what was taken lets a call run, so that two runs cannot use the same one (P-037).
#[derive(Clone)]
pub struct ApprovalBook {
    /// Takes the approval for a proposal (its hash) of a principal, if there is one that holds.
    pub take: TakeGrant,
    /// Puts one back that nothing was done with.
    pub give_back: GiveBack,
    /// Finds a person's decision against a proposal.
    pub denied: FindDenial,
}

/// See [`ApprovalBook::take`].
pub type TakeGrant = Arc<dyn Fn(String, Uuid) -> BoxFuture<'static, Option<Approval>> + Send + Sync>;
/// See [`ApprovalBook::denied`].
pub type FindDenial = Arc<dyn Fn(String) -> BoxFuture<'static, Option<Denial>> + Send + Sync>;
/// See [`ApprovalBook::give_back`].
pub type GiveBack = Arc<dyn Fn(Approval) -> BoxFuture<'static, ()> + Send + Sync>;

impl std::fmt::Debug for ApprovalBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApprovalBook")
    }
}

/// Everything that decides on proposals. It is read once at the start of a run and then fixed.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Arc<RuleSet>,
    program: Option<PolicyProgram>,
    worktree: Option<WorktreeRoot>,
    plan: Option<Vec<Vec<String>>>,
    approvals: Option<ApprovalBook>,
    made: Arc<BTreeMap<String, String>>,
}

impl Policy {
    /// Rules, a program, or both. Without either, everything but protocol tools and admissions is denied.
    pub fn new(rules: RuleSet, program: Option<PolicyProgram>) -> Self {
        Self { rules: Arc::new(rules), program, ..Self::default() }
    }

    /// Lets path rules see through symbolic links of this worktree, and take absolute paths below it.
    pub fn in_worktree(self, worktree: WorktreeRoot) -> Self {
        Self { worktree: Some(worktree), ..self }
    }

    /// Lets approvals lift denials that ask for approval. Without it nothing does.
    pub fn approved_by(self, approvals: ApprovalBook) -> Self {
        Self { approvals: Some(approvals), ..self }
    }

    /// Lets people know, where they are asked, what an earlier run has done of a call; words by the hashes of proposals.
    pub fn made_before(self, made: BTreeMap<String, String>) -> Self {
        Self { made: Arc::new(made), ..self }
    }

    /// Permission mode `plan`: tools that are not known to read only are softly denied, and commands too, except exactly the given verify
    /// commands (D78).
    pub fn planning(self, verify_commands: &[Vec<String>]) -> Self {
        Self { plan: Some(verify_commands.to_vec()), ..self }
    }

    /// Versions of the rule files, for the record of the run's start.
    pub fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = self.rules.all().map(|rule| rule.policy_version.clone()).collect();
        versions.dedup();
        versions
    }

    /// The files that a call must not show, where it is one that leaves files out.
    pub fn denied_files(&self, input: &PolicyInput) -> DeniedFiles {
        match input.tool.as_deref().is_some_and(leaves_out) {
            true => DeniedFiles::of(&self.rules, input),
            false => DeniedFiles::default(),
        }
    }

    /// The files that sessions must not read: what a report cites of them is not looked up.
    pub fn denied_to_readers(&self, context: ProposalContext) -> DeniedFiles {
        let reads = Proposed::Tool {
            name: READ_FILE.to_owned(),
            raw_arguments: "{}".to_owned(),
            arguments: Value::Object(Map::new()),
            risk: Risk::Read,
        };
        DeniedFiles::of(&self.rules, &PolicyInput::unsealed(context, 0, reads))
    }

    /// Whether a tool of the worktree is to reach what is no plain path there: no rule allows that.
    pub async fn leads_out(&self, input: &PolicyInput) -> bool {
        input.tool.as_deref().is_some_and(|tool| FILE_TOOLS.contains(&tool))
            && self.scope(input).await.paths.contains(&ScopePath::Unclear)
    }

    /// The denial of a handoff that is certain before it is proposed. `None` where rules, program or a person may let it pass.
    pub fn handoff_denial(&self, from: &str, to: &str) -> Option<HandoffDenial> {
        self.rules.handoff_denial(from, to).or_else(|| {
            let nobody = self.program.is_none() && !self.rules.covers(ProposalKind::Handoff);
            let reason = POLICY_NOT_CONFIGURED.to_owned();
            nobody.then_some(HandoffDenial { rule_id: None, reason, named: false })
        })
    }

    /// Decides on a proposal. The same input gets the same answer, if the program answers the same (P-007).
    pub async fn decide(&self, input: &PolicyInput) -> PolicyVerdict {
        self.decide_on(input, input.risk == Risk::Read).await
    }

    /// The same, for a call of a tool of which it is known whether it only reads.
    pub async fn decide_on(&self, input: &PolicyInput, only_reads: bool) -> PolicyVerdict {
        let watch = Stopwatch::start();
        let scope = self.scope(input).await;
        let RuleVerdict { mut result, rule_id } = self.judge(input, &scope, only_reads).await;
        let paths = self.judged(scope);
        let (mut used, mut files) = (None, None);
        if result.asks_for_approval() {
            files = self.named_files(input.arguments.as_ref()).await;
        }
        if result.asks_for_approval()
            && let Some(book) = &self.approvals
        {
            if let Some(approval) = (book.take)(input.proposal_hash.clone(), input.principal.id).await {
                let changed = approval.changed_files(files.as_deref().unwrap_or_default());
                if changed.is_empty() {
                    result = lifted(result, &approval);
                    used = Some(Box::new(approval));
                } else {
                    // The approval is not kept: what it was given for is gone, and a daemon would go on with it again and again.
                    result = asked_again(result, &changed);
                }
            } else if let Some(denial) = (book.denied)(input.proposal_hash.clone()).await {
                result = denied_by(result, &denial);
            }
        }
        if result.asks_for_approval()
            && let Some(known) = self.made.get(&input.proposal_hash)
        {
            result = with_words(result, known);
        }
        result.deny_mode = match result.decision {
            Decision::Allow => None,
            Decision::Deny => Some(result.deny_mode.unwrap_or(DenyMode::Throw)),
        };
        PolicyVerdict { result, rule_id, approval: used, files, paths, duration: watch.elapsed() }
    }

    /// Without a worktree nobody sees where links lead.
    fn judged(&self, scope: CallScope) -> JudgedPaths {
        let inside = |path| match path {
            ScopePath::Inside(path) => Some(path),
            ScopePath::Unclear => None,
        };
        match &self.worktree {
            Some(_) => JudgedPaths::of(scope.paths.into_iter().filter_map(inside)),
            None => JudgedPaths::default(),
        }
    }

    /// The files of the worktree that the command of a call names, and what they hold now. `None` = the call has no command.
    pub async fn named_files(&self, arguments: Option<&Value>) -> Option<Vec<NamedFile>> {
        let program = program_of(arguments?)?;
        let root = self.worktree.clone()?;
        tokio::task::spawn_blocking(move || named_files(&root, &program)).await.ok()
    }

    /// Puts back an approval that lifted the denial of a proposal which did not run after all.
    pub async fn give_back(&self, approval: Approval) {
        if let Some(book) = &self.approvals {
            (book.give_back)(approval).await;
        }
    }

    async fn judge(&self, input: &PolicyInput, scope: &CallScope, only_reads: bool) -> RuleVerdict {
        if is_protocol_tool(input) {
            return builtin(PolicyResult::allow("protocol_tool"));
        }
        if let Some(denial) = self.plan_denial(input, scope, only_reads) {
            return builtin(denial);
        }
        if let Some(denial) = self.rules.deny(input, scope) {
            return self.explained(denial, input, scope);
        }
        let decide = || self.explained(self.rules.decide(input, scope), input, scope);
        let by_rule = self.rules.covers(input.kind).then(decide);
        match (by_rule, &self.program) {
            // Admission is decided before; rules and program may only narrow it (D71).
            (None, None) if input.kind == ProposalKind::Run => builtin(PolicyResult::allow("admitted")),
            (None, None) => builtin(PolicyResult::deny(POLICY_NOT_CONFIGURED, DenyMode::Throw)),
            (Some(verdict), None) => verdict,
            (Some(verdict), Some(_)) if is_final_denial(&verdict.result) => verdict,
            (by_rule, Some(program)) => {
                let by_program = Box::pin(program.ask(input)).await;
                compose(by_rule, by_program)
            }
        }
    }

    /// A rule's denial with its true reason: a path may be refused because nobody can say where it leads, and not for what the rule protects.
    fn explained(&self, mut verdict: RuleVerdict, input: &PolicyInput, scope: &CallScope) -> RuleVerdict {
        if verdict.result.decision != Decision::Deny || !scope.paths.contains(&ScopePath::Unclear) {
            return verdict;
        }
        let mut clear = scope.clone();
        clear.paths.retain(|path| *path != ScopePath::Unclear);
        let without = self.rules.deny(input, &clear).unwrap_or_else(|| self.rules.decide(input, &clear));
        if without.rule_id != verdict.rule_id {
            verdict.result.public_reason = Some(UNCLEAR.to_owned());
        }
        verdict
    }

    async fn scope(&self, input: &PolicyInput) -> CallScope {
        let mut scope = CallScope::of(input, self.worktree.as_ref().map(|root| root.path().as_path()));
        if let (Some(root), false) = (self.worktree.clone(), scope.paths.is_empty()) {
            let named = scope.paths.clone();
            let denied = match takes_folders_whole(input) {
                true => DeniedFiles::of(&self.rules, input),
                false => DeniedFiles::default(),
            };
            let followed = tokio::task::spawn_blocking(move || {
                let mut real: Vec<_> = named.iter().map(|path| follow_links(&root, path)).collect();
                real.extend(denied_below(&root, &real, &denied));
                real
            });
            let followed = followed.await.unwrap_or_else(|_| vec![ScopePath::Unclear]);
            for path in followed {
                if !scope.paths.contains(&path) {
                    scope.paths.push(path);
                }
            }
        }
        scope
    }

    fn plan_denial(&self, input: &PolicyInput, scope: &CallScope, only_reads: bool) -> Option<PolicyResult> {
        let verify_commands = self.plan.as_ref()?;
        let changes = match input.risk {
            Risk::Read | Risk::Network => !only_reads,
            Risk::Write | Risk::Vcs => true,
            // An agent program is started so that it can read and nothing else.
            Risk::Exec if AgentProgram::is_tool(input.resource_name()) => false,
            Risk::Exec => !matches!(&scope.program, Some(Program::Argv(argv))
                if input.tool.as_deref() == Some("run_command") && verify_commands.contains(argv)),
        };
        (input.kind == ProposalKind::Tool && changes).then(|| PolicyResult {
            public_reason: Some(
                "This agent only plans: it may read and run the verify commands, but change nothing. Describe the change instead."
                    .into(),
            ),
            ..PolicyResult::deny("plan_mode", DenyMode::ToolResult)
        })
    }
}

/// Why a path is refused that leads nowhere in the repository.
const UNCLEAR: &str = "Where this path leads is not clear: out of the repository, to nothing, or by a name that cannot be read. It is \
     refused like what a rule protects.";

fn is_protocol_tool(input: &PolicyInput) -> bool {
    input.kind == ProposalKind::Tool && PROTOCOL_TOOLS.contains(&input.resource_name())
}

fn builtin(mut result: PolicyResult) -> RuleVerdict {
    result.policy_version = Some(BUILTIN_VERSION.into());
    RuleVerdict { result, rule_id: None }
}

/// The result of a denial that a person has lifted. The recorded decision says who lifted it, and for which run.
fn lifted(denial: PolicyResult, approval: &Approval) -> PolicyResult {
    let told = |value: &str| Value::from(value);
    let metadata = Map::from_iter([
        ("approval".to_owned(), told("granted")),
        ("deniedAs".to_owned(), told(&denial.reason)),
        ("approver".to_owned(), told(approval.approver.login.as_deref().unwrap_or("local operator"))),
        ("approverId".to_owned(), told(&approval.approver.id.to_string())),
        ("grantedAt".to_owned(), told(&approval.granted_at.to_rfc3339())),
        ("suspendedIn".to_owned(), told(&approval.run_id.to_string())),
    ]);
    PolicyResult {
        policy_version: denial.policy_version,
        metadata: Some(metadata),
        ..PolicyResult::allow(APPROVED)
    }
}

/// A denial that a person had lifted for other files than those that are there now.
fn asked_again(denial: PolicyResult, changed: &[String]) -> PolicyResult {
    let files = changed.join(", ");
    with_words(
        denial,
        &format!("It was approved, and since then {files} has changed, so that it is asked again."),
    )
}

/// A denial with a sentence before what people read of it.
fn with_words(denial: PolicyResult, words: &str) -> PolicyResult {
    let reason = denial.public_reason.as_deref().unwrap_or_default();
    PolicyResult { public_reason: Some(format!("{words} {reason}").trim_end().to_owned()), ..denial }
}

/// Reads the files that a command names. One that cannot be read is none. Blocks.
fn named_files(root: &WorktreeRoot, program: &Program) -> Vec<NamedFile> {
    let words: Vec<&str> = match program {
        Program::Argv(argv) => argv.iter().map(String::as_str).collect(),
        Program::Line(line) => vec!["sh", "-c", line],
        Program::Unclear => return Vec::new(),
    };
    let inside = |word: &str| {
        let path = Path::new(word);
        let path = path.strip_prefix(root.path().as_path()).unwrap_or(path);
        root.resolve(path.to_str()?).ok()
    };
    let is_there = |word: &str| {
        // A word alone that is a folder's name is more often something else, such as a script's.
        let may_be_folder = word.trim_start_matches("./").contains('/');
        inside(word).is_some_and(|path| {
            let place = path.absolute();
            place.as_path().is_file()
                || (may_be_folder && place.as_path().is_dir() && !path.relative().is_empty())
        })
    };
    let read = |word: String| {
        let path = inside(&word)?;
        let place = path.absolute();
        let sha256 = match place.as_path().is_dir() {
            true => folder_sha256(place.as_path())?,
            false => path.sha256().ok()?,
        };
        Some(NamedFile { sha256, path: path.relative() })
    };
    let mut files: Vec<NamedFile> = named(&words, &is_there).into_iter().filter_map(read).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Files and bytes below a folder that are held against an approval.
const MOST_IN_FOLDER: usize = 2_000;
const LARGEST_FOLDER: u64 = 64 << 20;

/// A hash over the names and contents of all files below a folder. `None` = there are too many, or one cannot be read. Blocks.
fn folder_sha256(folder: &Path) -> Option<String> {
    let (mut open, mut found, mut bytes) = (vec![folder.to_owned()], Vec::new(), 0);
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).ok()? {
            let path = entry.ok()?.path();
            let meta = path.symlink_metadata().ok()?;
            bytes += meta.len();
            if found.len() >= MOST_IN_FOLDER || bytes > LARGEST_FOLDER {
                return None;
            }
            if meta.is_dir() {
                open.push(path);
                continue;
            }
            let content = match meta.is_symlink() {
                true => path.read_link().ok()?.to_string_lossy().into_owned().into_bytes(),
                false if meta.is_file() => std::fs::read(&path).ok()?,
                false => Vec::new(),
            };
            found.push((path.to_string_lossy().into_owned(), sha256_hex(&content)));
        }
    }
    found.sort_unstable();
    canonical_sha256(&found).ok()
}

/// What becomes of a denial that a person was asked about and did not lift: the model is told, and goes on without the call.
fn denied_by(denial: PolicyResult, decided: &Denial) -> PolicyResult {
    let told = |value: &str| Value::from(value);
    let metadata = Map::from_iter([
        ("approval".to_owned(), told("denied")),
        ("deniedAs".to_owned(), told(&denial.reason)),
        ("decidedBy".to_owned(), told(decided.decided_by.login.as_deref().unwrap_or("local operator"))),
        ("decidedAt".to_owned(), told(&decided.decided_at.to_rfc3339())),
        ("suspendedIn".to_owned(), told(&decided.run_id.to_string())),
    ]);
    PolicyResult {
        policy_version: denial.policy_version,
        public_reason: Some(
            "A person was asked about this very call and decided against it. Go on without it.".into(),
        ),
        metadata: Some(metadata),
        ..PolicyResult::deny("denied_by_person", DenyMode::ToolResult)
    }
}

fn is_final_denial(result: &PolicyResult) -> bool {
    result.decision == Decision::Deny && !result.asks_for_approval()
}

/// The program may narrow what the rules say. Its denial wins over their permission, and a denial that no approval can
/// lift wins over one that an approval can lift (D46).
fn compose(by_rule: Option<RuleVerdict>, by_program: PolicyResult) -> RuleVerdict {
    match by_rule {
        Some(rule) if rule.result.decision == Decision::Deny && !is_final_denial(&by_program) => rule,
        Some(rule) if by_program.decision == Decision::Allow => {
            let policy_version = by_program.policy_version.clone().or(rule.result.policy_version);
            RuleVerdict { result: PolicyResult { policy_version, ..by_program }, rule_id: rule.rule_id }
        }
        _ => RuleVerdict { result: by_program, rule_id: None },
    }
}

/// Where a path leads when its links are followed.
fn follow_links(root: &WorktreeRoot, path: &ScopePath) -> ScopePath {
    match path {
        ScopePath::Inside(named) => match root.resolve(named) {
            Ok(real) => ScopePath::Inside(real.relative()),
            Err(_) => ScopePath::Unclear,
        },
        ScopePath::Unclear => ScopePath::Unclear,
    }
}

/// Entries of folders that are looked at for one call; a call about more is not clear.
const MOST_BELOW: usize = 200_000;

/// A path below the given folders that is denied, the first that is found, links followed. Who is given a folder is given
/// what is in it, ignored files too.
fn denied_below(root: &WorktreeRoot, folders: &[ScopePath], denied: &DeniedFiles) -> Option<ScopePath> {
    if denied.is_empty() {
        return None;
    }
    let inside = |path: &ScopePath| match path {
        ScopePath::Inside(path) => Some(path.clone()),
        ScopePath::Unclear => None,
    };
    let mut open: Vec<String> = folders.iter().filter_map(inside).collect();
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(root.path().join(&folder).as_path()) else { continue };
        for entry in entries.flatten() {
            // What has no name in UTF-8 is compared as far as it can be read.
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == ".git" {
                continue;
            }
            let path = if folder == "." { name } else { format!("{folder}/{name}") };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let real = if is_link { root.resolve(&path).map(|real| real.relative()).ok() } else { None };
            for path in [Some(path), real].into_iter().flatten() {
                if denied.contains(&path) {
                    return Some(ScopePath::Inside(path));
                }
                if seen.insert(path.clone()) {
                    open.push(path);
                }
            }
            if seen.len() > MOST_BELOW {
                return Some(ScopePath::Unclear);
            }
        }
    }
    None
}
