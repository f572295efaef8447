//! Checks what may be published: every change of a branch is checked against the policy's rules of `write_file`, the
//! caps of `[commit]` and a scan for secrets, before it is committed and again before it is pushed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::approved::{self, ApprovedFiles};
use crate::config::config_file::CommitTable;
use crate::domain::call_scope::judged_name;
use crate::domain::name::CommitId;
use crate::domain::policy::{Decision, PolicyInput, Proposed, Risk};
use crate::domain::rules::{Globs, NO_RULE_MATCHED};
use crate::domain::secret_scan::{Certainty, SecretScan};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::envelope::POLICY_NOT_CONFIGURED;
use crate::engine::policy::Policy;
use crate::git::blob::LARGEST_FILE;
use crate::git::error::GitError;
use crate::git::outgoing::{Inspect, Outgoing, OutgoingChange, OutgoingKind};
use crate::git::worktree::Worktree;
use crate::lifecycle::run::Run;
use crate::record::file_mentions::FileMentions;
use crate::sys::worktree_path::WorktreeRoot;

/// The tool whose rules speak of changed files, whatever changed them.
const WRITE: &str = "write_file";
/// Marks a rule's name where a secret was found by its value.
const KNOWN: &str = "\u{1}";
/// The kind of what the patterns of the configuration find.
const OWN_PATTERN: &str = "pattern";
/// Refused files that people are told.
const LONGEST_LIST: usize = 20;

/// That work may not leave.
pub struct Refused {
    /// How the run ends.
    pub stop: Stop,
    /// What may not leave, and why.
    pub what: String,
}

/// Checks what a commit of the worktree would bring. `Some`: nothing may be committed, and the run ends with this.
pub async fn of_worktree(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
) -> Result<Option<Refused>, GitError> {
    let Some(head) = worktree.head().await? else {
        return Err(GitError::Missing { what: format!("a commit on {}", worktree.branch()) });
    };
    let problems = on_commit(run, (worktree, mentions), &head).await?;
    Ok(refused(run, worktree, problems, "committed"))
}

/// Whether all that stands in the worktree may leave as one commit on `base`, whatever the commits behind that brought.
pub async fn may_leave(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
    base: &CommitId,
) -> Result<bool, GitError> {
    Ok(on_commit(run, (worktree, mentions), base).await?.is_empty())
}

/// What may not leave of the commits up to `head`, and of what a commit of the worktree on that would bring.
async fn on_commit(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
    head: &CommitId,
) -> Result<Vec<Problem>, GitError> {
    let left_out = worktree.left_out().await?;
    let mut problems: Vec<Problem> =
        left_out.into_iter().map(|(path, why)| Problem { path, why: why.to_string(), of: None }).collect();
    let tree = worktree.tree().await?;
    let mut known = vec![run.base().clone()];
    known.extend(run.context.last_seen(worktree.branch()).await?);
    let bringing = bringing(run, worktree, ((head, Some(&tree)), &known)).await?;
    problems.extend(self::problems(run, (worktree, mentions), &bringing).await?);
    problems.extend(unpushed_submodules(worktree, &tree, &bringing).await?);
    for (path, files) in worktree.edited_submodules().await? {
        let why = format!(
            "{files} file(s) inside of this submodule are changed or new, and no commit here carries them; put them back, or \
             commit and push them in the submodule's own repository"
        );
        problems.push(Problem { path, why, of: None });
    }
    Ok(problems)
}

/// Submodules that would be at a commit which nobody else can get. `tree`: what leaves in the end, whatever commits on the way had.
async fn unpushed_submodules(
    worktree: &Worktree,
    tree: &str,
    bringing: &Outgoing,
) -> Result<Vec<Problem>, GitError> {
    // A new one is asked where its commits are.
    let moved =
        bringing.changes.iter().filter(|change| change.kind == OutgoingKind::Submodule && !change.is_new);
    let moved = moved.map(|change| (change.path.clone(), change.blob.clone())).collect();
    let found = worktree.unpushed_submodules(tree, moved).await?;
    let why = "the commit that this submodule stands on is on no branch of its remote, as far as is known here, so nobody else could get \
               it; push it in the submodule's own repository (and fetch there, if it was pushed from elsewhere), or put the submodule back";
    Ok(found.into_iter().map(|path| Problem { path, why: why.to_owned(), of: None }).collect())
}

/// Checks what a push of `head` would bring to a remote that has the branch at `there`. `Some`: nothing may be pushed.
pub async fn of_push(
    (run, worktree): (&Run<'_>, &Worktree),
    (head, there): (&CommitId, Option<&CommitId>),
) -> Result<Option<Stop>, GitError> {
    let known: Vec<CommitId> = [Some(run.base()), there].into_iter().flatten().cloned().collect();
    let bringing = bringing(run, worktree, ((head, None), &known)).await?;
    let mentions = run.file_mentions().await;
    let mut problems = problems(run, (worktree, &mentions), &bringing).await?;
    problems.extend(unpushed_submodules(worktree, head.as_str(), &bringing).await?);
    let refused = refused(run, worktree, problems, "pushed");
    if refused.is_none() {
        note_authors(run, &bringing).await?;
        for told in approved::changed_scripts(run).await {
            run.journal.warn("approved_script_changed", told);
        }
    }
    Ok(refused.map(|refused| refused.stop))
}

/// Whoever can commit can write any name: of commits that bear another one than agentd's, people are told.
async fn note_authors(run: &Run<'_>, bringing: &Outgoing) -> Result<(), GitError> {
    let checkout = &run.context.checkout;
    let own = run.context.identity().await?;
    let own = format!("{} <{}>", own.name, own.email);
    let origin = run.context.last_seen(&run.lease.mapping.origin.branch).await?;
    let mut found = Vec::new();
    for (commit, text) in &bringing.messages {
        let mut people: Vec<&str> = text.lines().take(2).filter(|who| **who != own).collect();
        people.dedup();
        let is_of_origin = match &origin {
            Some(origin) if !people.is_empty() => checkout.is_ancestor(commit, origin).await?,
            _ => false,
        };
        if !people.is_empty() && !is_of_origin {
            found.push(format!("{} by {}", commit.short(), people.join(", committed by ")));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let more = found.len().saturating_sub(LONGEST_LIST);
    found.truncate(LONGEST_LIST);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let text = format!(
        "Commits in other names than agentd's are among what was pushed: {}{more}. Who made them is not known: a program of the run can \
         write any name",
        found.join("; ")
    );
    let text = run.plan.redactor.redact(&text).map_or_else(
        |_| "Commits in other names than agentd's are among what was pushed".to_owned(),
        |text| text.into_owned(),
    );
    run.journal.warn("other_authors", text);
    Ok(())
}

async fn bringing(
    run: &Run<'_>,
    worktree: &Worktree,
    (what, known): ((&CommitId, Option<&str>), &[CommitId]),
) -> Result<Outgoing, GitError> {
    let scan = SecretScan::new(&run.plan.redactor);
    let inspect: Inspect = Arc::new(move |lines| {
        let marked = |certainty, rule: String| match certainty {
            Certainty::Known => format!("{KNOWN}{rule}"),
            Certainty::Shape => rule,
        };
        scan.lines(lines).into_iter().map(|(line, rule, certainty)| (line, marked(certainty, rule))).collect()
    });
    // What is over the cap is refused unseen.
    let most = run.context.config.commit.max_bytes.saturating_add(LARGEST_FILE);
    worktree.outgoing(what, known, (most, inspect)).await
}

/// Something that may not leave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    why: String,
    /// The commit that has it; `None` = none yet.
    of: Option<String>,
}

async fn problems(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
    bringing: &Outgoing,
) -> Result<Vec<Problem>, GitError> {
    let mut found = Vec::new();
    let mut problem = |path: &str, commit: Option<&CommitId>, why: String| {
        found.push(Problem {
            path: path.to_owned(),
            why,
            of: commit.map(|commit| commit.short().to_owned()),
        });
    };
    let commit = &run.context.config.commit;
    let allowed = Globs::paths(&commit.secrets_allowed).ok();
    for change in &bringing.changes {
        let told = |why: String| (change.path.as_str(), change.commit.as_ref(), why);
        let mut note = |(path, commit, why)| problem(path, commit, why);
        if let Some(why) = too_large(change, commit, mentions) {
            note(told(why));
        }
        for (line, rule) in &change.found {
            let known = rule.strip_prefix(KNOWN);
            let may = known.is_none() && allowed.as_ref().is_some_and(|globs| globs.exact(&change.path));
            if !may {
                note(told(format!("line {line} holds a secret ({})", known.unwrap_or(rule))));
            }
        }
        if change.kind == OutgoingKind::Submodule
            && change.is_new
            && !worktree.declares(&change.path, change.commit.as_ref()).await?
        {
            let why = "it is a git repository of its own, and .gitmodules does not say where its commits are: none of its files would be \
                       pushed; take its .git away, so that they are committed, or declare it";
            note(told(why.to_owned()));
        }
        if is_named(&change.path, ".lfsconfig") {
            note(told("it says where Git LFS sends files; only a person may change it".to_owned()));
        }
        if is_named(&change.path, ".gitmodules")
            && change.kind == OutgoingKind::File
            && change.bytes <= LARGEST_FILE
        {
            for why in run.context.checkout.refused_submodules(&change.blob).await? {
                note(told(why));
            }
        }
    }
    for (path, commit) in never_committed(run, worktree, bringing).await? {
        let why = "it is of those that are never committed: what `worktree.copy` and `worktree.setup` put there, the built-in list, and \
                   `commit.exclude`";
        problem(&path, Some(&commit), why.to_owned());
    }
    let made = bringing.changes.iter().filter(|change| change.kind == OutgoingKind::File);
    let made: Vec<&str> = made.map(|change| change.path.as_str()).collect();
    for path in worktree.whole_under_lfs(&made).await? {
        let why = "it is under Git LFS (.gitattributes), and git would get the whole file: git-lfs is not installed here, or \
                   worktree.lfs leaves it out; install it, or leave the file as it was";
        problem(&path, None, why.to_owned());
    }
    let scan = SecretScan::new(&run.plan.redactor);
    for change in &bringing.changes {
        if let Some((_, rule, _)) = scan.lines(&[(1, change.path.as_str())]).first() {
            problem(&change.path, change.commit.as_ref(), format!("it holds a secret ({rule})"));
        }
    }
    for (id, text) in &bringing.messages {
        if let Some(rule) = secret_in_message(&scan, text) {
            problem("its message", Some(id), format!("it holds a secret ({rule})"));
        }
    }
    for (id, why) in &bringing.unread {
        problem("its message", Some(id), format!("it cannot be looked through for secrets: {why}"));
    }
    for why in over_the_caps(&bringing.changes, commit) {
        problem("all changes together", None, why);
    }
    found.extend(denied(run, worktree, bringing).await?);
    Ok(found)
}

/// New files of commits that this run's programs made themselves, which agentd would never have committed. What people committed before is
/// theirs to say.
async fn never_committed(
    run: &Run<'_>,
    worktree: &Worktree,
    bringing: &Outgoing,
) -> Result<Vec<(String, CommitId)>, GitError> {
    let first = run.journal.facts().first_head.clone();
    let mut own: BTreeMap<&str, bool> = BTreeMap::new();
    let mut made = Vec::new();
    for change in bringing.changes.iter().filter(|change| change.is_new && change.kind == OutgoingKind::File)
    {
        let Some(commit) = &change.commit else { continue };
        if !own.contains_key(commit.as_str()) {
            let was_there = match &first {
                Some(first) => run.context.checkout.is_ancestor(commit, first).await?,
                None => false,
            };
            own.insert(commit.as_str(), !was_there);
        }
        if own.get(commit.as_str()) == Some(&true) {
            made.push((change.path.clone(), change.blob.clone(), commit.clone()));
        }
    }
    let asked: Vec<_> = made.iter().map(|(path, blob, _)| (path.clone(), blob.clone())).collect();
    let excluded = worktree.excluded_among(&asked, &run.context.config.worktree.copy, first).await?;
    Ok(made
        .into_iter()
        .filter(|(path, ..)| excluded.contains(path))
        .map(|(path, _, commit)| (path, commit))
        .collect())
}

/// What kind of secret a commit's header and message hold, if any. Hashes, times and the id of a run are nobody's secrets, whatever
/// patterns of the configuration they fit. The names of people are in lines of their own.
fn secret_in_message(scan: &SecretScan, text: &str) -> Option<String> {
    let lines: Vec<(u32, &str)> = text.lines().zip(1..).map(|(line, number)| (number, line)).collect();
    let header = text.lines().take_while(|line| !line.is_empty()).count();
    let is_own =
        |number: usize, line: &str| (number <= header && is_of_git(line)) || approved::run_of(line).is_some();
    let (own, rest): (Vec<_>, Vec<_>) =
        lines.iter().copied().partition(|(number, line)| is_own(*number as usize, line));
    let mut found = scan.lines(&lines).into_iter().chain(scan.lines(&rest));
    found
        .find(|(number, rule, _)| rule != OWN_PATTERN || !own.iter().any(|(at, _)| at == number))
        .map(|(_, rule, _)| rule)
}

/// Whether a line of a commit's header is one of hashes, or of an author and a time.
fn is_of_git(line: &str) -> bool {
    let is_hash = |id: &str| id.bytes().all(|byte| byte.is_ascii_hexdigit());
    ["tree ", "parent "].iter().any(|name| line.strip_prefix(name).is_some_and(is_hash))
        || ["author ", "committer "].iter().any(|name| line.starts_with(name))
}

fn too_large(change: &OutgoingChange, caps: &CommitTable, mentions: &FileMentions) -> Option<String> {
    if change.bytes > LARGEST_FILE {
        return Some(format!("{} bytes, more than the {LARGEST_FILE} of any file", change.bytes));
    }
    let (word, capped) = match (change.is_new, change.binary) {
        (_, true) => ("binary", true),
        (true, false) => ("new", true),
        (false, false) => ("", false),
    };
    let over = capped && change.bytes > caps.max_file;
    (over && !mentions.report_names(&change.path)).then(|| {
        format!(
            "{} bytes, more than the {} of a {word} file that the report does not name (commit.max_file)",
            change.bytes, caps.max_file
        )
    })
}

fn over_the_caps(changes: &[OutgoingChange], caps: &CommitTable) -> Vec<String> {
    let files = changes.iter().map(|change| change.path.as_str()).collect::<BTreeSet<_>>().len() as u64;
    let lines: u64 = changes.iter().map(|change| change.lines).sum();
    let bytes = changes.iter().fold(0u64, |sum, change| sum.saturating_add(change.bytes));
    let caps = [
        ("files", files, u64::from(caps.max_files), "max_files"),
        ("added lines", lines, caps.max_lines, "max_lines"),
        ("bytes", bytes, caps.max_bytes, "max_bytes"),
    ];
    let over = caps.into_iter().filter(|(_, used, most, _)| used > most);
    over.map(|(what, used, most, key)| format!("{used} {what}, more than the {most} of commit.{key}"))
        .collect()
}

/// The policy's decision about changed paths, as for `write_file`. A path without a rule is covered by the rule that
/// let the command run. What a person approved is allowed, as it was approved.
async fn denied(run: &Run<'_>, worktree: &Worktree, bringing: &Outgoing) -> Result<Vec<Problem>, GitError> {
    let root = WorktreeRoot::open(worktree.path()).map_err(|error| GitError::Lost(error.to_string()))?;
    let policy = run.plan.policy.clone().in_worktree(root);
    let approved = ApprovedFiles::of(run, bringing).await;
    let mut verdicts: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for change in &bringing.changes {
        if approved.allow(run, change).await? {
            continue;
        }
        for path in asked_about(change) {
            if !verdicts.contains_key(&path) {
                let verdict = verdict(run, &policy, &path).await?;
                verdicts.insert(path.clone(), verdict);
            }
            if let Some(Some(why)) = verdicts.get(&path) {
                let of = change.commit.as_ref().map(|commit| commit.short().to_owned());
                let why = match approved.has(&change.path) {
                    true => format!("it is not as a person approved it, and {why}"),
                    false => why.clone(),
                };
                found.push(Problem { path: change.path.clone(), why, of });
                break;
            }
        }
    }
    Ok(found)
}

/// The names of a change, here and on other machines, and the targets of its links.
fn asked_about(change: &OutgoingChange) -> Vec<String> {
    let mut paths = vec![change.path.clone()];
    match &change.kind {
        // Rules name what is in a folder: what stands in its place has its content.
        OutgoingKind::Link(behind) => {
            paths.push(format!("{}/any", change.path));
            paths.extend(behind.iter().cloned());
        }
        OutgoingKind::Submodule => paths.push(format!("{}/any", change.path)),
        OutgoingKind::File | OutgoingKind::Gone => {}
    }
    // Where names end with dots or spaces, some file systems drop them.
    let folded: Vec<String> = paths
        .iter()
        .map(|path| {
            path.split('/').map(|part| part.trim_end_matches(['.', ' '])).collect::<Vec<_>>().join("/")
        })
        .filter(|folded| !folded.is_empty() && !paths.contains(folded))
        .collect();
    paths.extend(folded);
    paths
}

/// Why the policy denies writing to a path; `None` = it allows it or has no rule for it.
async fn verdict(run: &Run<'_>, policy: &Policy, path: &str) -> Result<Option<String>, GitError> {
    let arguments = json!({ "path": judged_name(path), "content": "" });
    let proposed = Proposed::Tool {
        name: WRITE.to_owned(),
        raw_arguments: arguments.to_string(),
        arguments,
        risk: Risk::Write,
    };
    let input = PolicyInput::new(run.proposal_context(), 0, proposed)
        .map_err(|error| GitError::Lost(error.to_string()))?;
    let result = policy.decide(&input).await.result;
    let silent = [NO_RULE_MATCHED, POLICY_NOT_CONFIGURED].contains(&result.reason.as_str());
    Ok((result.decision == Decision::Deny && !silent)
        .then(|| format!("the policy denies it ({})", result.reason)))
}

fn is_named(path: &str, name: &str) -> bool {
    path.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(name))
}

fn refused(run: &Run<'_>, worktree: &Worktree, mut problems: Vec<Problem>, done: &str) -> Option<Refused> {
    problems.sort();
    problems.dedup();
    if problems.is_empty() {
        return None;
    }
    let mut by_path: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for problem in &problems {
        let of = problem.of.as_ref().map(|commit| format!(" in commit {commit}")).unwrap_or_default();
        by_path.entry(&problem.path).or_default().push(format!("{}{of}", problem.why));
    }
    let shown = by_path.iter().take(LONGEST_LIST).map(|(path, why)| {
        let path: String = path.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        format!("{path}: {}", why.iter().take(3).cloned().collect::<Vec<_>>().join("; "))
    });
    let shown = shown.collect::<Vec<_>>().join(" · ");
    let more = by_path.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" · and {more} more") } else { String::new() };
    let what = format!("{shown}{more}");
    // A later commit that takes it away does not take it out of the history.
    let in_history = match problems.iter().any(|problem| problem.of.is_some()) {
        true => {
            ", also out of the commits that are named (`git reset --soft` to the one before them makes them edits again)"
        }
        false => "",
    };
    let rest = match run.context.replay {
        // Its copy of the repository is thrown away.
        Some(_) => "All of it was in the copy of this replay. If the policy (rules of write_file) or [commit] has changed \
                    since the run, that is why."
            .to_owned(),
        None => format!(
            "All of it is in {}, on {}. Take out what may not leave{in_history}, or let the policy (rules of write_file) or \
             [commit] allow it, and run again.",
            worktree.display(),
            worktree.branch(),
        ),
    };
    let message = format!("The work is not {done}, and nothing was pushed: {what}. {rest}");
    let redacted = |text: &str, withheld: &str| {
        run.plan.redactor.redact(text).map_or_else(|_| withheld.to_owned(), |text| text.into_owned())
    };
    let message = redacted(&message, "The work holds what may not be published; nothing was pushed.");
    let what = redacted(&what, "what it is cannot be told");
    Some(Refused { stop: Stop::new(StopDetail::PolicyDenied, message), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::redaction::Redactor;

    /// Whether a commit with this message may leave where numbers of six digits are secrets.
    fn may_leave(message: &str) -> bool {
        let redactor = Arc::new(Redactor::new([0; 32], Vec::new(), &["[0-9]{6,}".to_owned()]).unwrap());
        let header = "A <a@example.org>\nB <b@example.org>\ntree 0123456789\nauthor A <a@example.org> 1767312000 +0000\n";
        secret_in_message(&SecretScan::new(&redactor), &format!("{header}\n{message}")).is_none()
    }

    #[test]
    fn only_the_header_of_a_commit_is_spared_by_patterns_and_not_what_looks_like_it_in_the_message() {
        assert!(may_leave("Round half up"));
        for message in
            ["author 1234567", "Subject\n\ncommitter 1234567", "Subject\n\ntree 1234567", "It is 1234567"]
        {
            assert!(!may_leave(message), "{message}");
        }
    }
}
