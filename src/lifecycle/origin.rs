//! Stage origin: the branch that the work starts from and returns to. No link set is an error, never a default.
//!
//! Takes a plan. Leaves branch and commit, frozen once the lease is taken. Nothing is made in it, so a crash leaves nothing.

use super::plan::Plan;
use crate::config::{Config, Source};
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::name::{BranchName, CommitId, RepoName};
use crate::domain::origin::{Origin, OriginSource};
use crate::domain::refusal::Refusal;
use crate::domain::run::Warning;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::github::{self, Client, ErrorKind, PageCache};
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::MappingRecord;

/// A plan with its origin.
pub struct Resolved {
    /// What was planned.
    pub plan: Plan,
    /// Frozen from here on.
    pub origin: Origin,
    /// `origin_changed` if a field changed after the mapping was made (D35); `origin_moved` if its work is merged.
    pub warnings: Vec<Warning>,
}

/// The origin, and what is to be said about it.
struct Found {
    origin: Origin,
    warnings: Vec<Warning>,
}

/// Asks the chain, then the remote for the branch's commit. An issue that is mapped keeps its origin as long as that branch
/// exists: a changed field is reported, a different `--origin` refused (D75). Its commit follows the remote if the run is to catch up, or if
/// nothing of the issue's branch is left to merge, or nothing was ever made; then the work starts from the present commit.
pub async fn resolve(plan: Plan, context: &RepositoryContext) -> Result<Resolved, Refusal> {
    let Found { origin, warnings } = find(&plan, context).await?;
    Ok(Resolved { plan, origin, warnings })
}

/// The words around what names an origin branch that does not exist.
const NAMED_BY: &str = ", named by ";
const ABSENT: &str = ", does not exist ";
/// The key of the configuration that names the origin.
const KEY: &str = "origin_branch";

/// Whether a start was refused since the origin branch that the configuration names does not exist: that meets every other issue
/// which names none itself.
pub fn is_of_the_configuration(stop: &Stop) -> bool {
    stop.detail == StopDetail::OriginMissing && stop.message.contains(&format!("{NAMED_BY}{KEY}{ABSENT}"))
}

async fn find(plan: &Plan, context: &RepositoryContext) -> Result<Found, Refusal> {
    let (asked, unreadable) = ask_chain(plan, context).await?;
    let warned = |mut resolved: Found| {
        resolved.warnings.extend(unreadable.clone());
        resolved
    };
    if let Some(mapped) = &plan.mapped {
        return Ok(warned(of_mapping(plan, mapped, asked, context).await?));
    }
    let Some((text, source)) = asked else {
        let refusal = unresolved(plan, context);
        return Err(unreadable.iter().fold(refusal, |refusal, warning| refusal.hint(warning.text.clone())));
    };
    let branch = BranchName::parse(&text).map_err(|error| {
        Refusal::new(
            StopDetail::OriginMissing,
            format!("The origin branch from {} cannot be used: {error}.", link(source, context)),
        )
        .hint(format!(
            "change {} to the name of a branch {}",
            link(source, context),
            context.origin_place()
        ))
    })?;
    if branch == branch_of(&plan.issue.key) {
        let message = format!(
            "The origin branch from {}, \"{branch}\", is the issue's own branch: the work would be pushed onto it without a pull request.",
            link(source, context)
        );
        return Err(Refusal::new(StopDetail::OriginMissing, message)
            .hint("name the branch that the work is to be merged into"));
    }
    let commit = context.origin_tip(&branch, !plan.request.dry_run).await?.ok_or_else(|| {
        Refusal::new(
            StopDetail::OriginMissing,
            format!(
                "The origin branch \"{branch}\"{NAMED_BY}{}{ABSENT}{}.",
                link(source, context),
                context.origin_place()
            ),
        )
        .hint(format!("create it, or change {}", link(source, context)))
    })?;
    Ok(warned(Found { origin: Origin { branch, source, commit }, warnings: Vec::new() }))
}

/// The origin of an issue that is mapped, with the commit that this run compares with.
async fn of_mapping(
    plan: &Plan,
    mapped: &MappingRecord,
    asked: Option<Link>,
    context: &RepositoryContext,
) -> Result<Found, Refusal> {
    let frozen = &mapped.origin;
    let Some(now) = present_tip(plan, frozen, context).await? else {
        return follow_renamed(plan, frozen, asked, context).await;
    };
    let mut kept = keep(frozen.clone(), asked, context)?;
    // A run that a person goes on with has its commit already.
    let moves = plan.request.resume.is_none() && now != kept.origin.commit;
    let merged = match moves && !plan.request.catches_up {
        true => merged(plan, mapped, &now, context).await?,
        false => Merged::Nothing,
    };
    if moves && (plan.request.catches_up || merged != Merged::Nothing) {
        let how = match merged {
            Merged::All => Some("the work of earlier runs is merged; this one starts from"),
            Merged::Part => {
                Some("part of the work of earlier runs is merged; what came after that goes onto")
            }
            Merged::None => Some("the branch has no work yet; this one starts from"),
            Merged::Nothing => None,
        };
        kept.warnings.extend(how.map(|how| Warning {
            code: "origin_moved".to_owned(),
            at: context.clock.now_ms(),
            text: format!("{how} {} as it is now, {}", kept.origin.branch, now.short()),
        }));
        // From here on the branch's own changes are those against this commit.
        kept.origin.commit = now;
    }
    Ok(kept)
}

/// The commit of a mapping's origin branch as it is now; `None` = the branch is gone. A run that a person goes on with may begin
/// where the remote cannot be asked, and knows its commit.
async fn present_tip(
    plan: &Plan,
    frozen: &Origin,
    context: &RepositoryContext,
) -> Result<Option<CommitId>, Refusal> {
    if plan.request.resume.is_none() {
        return context.origin_tip(&frozen.branch, !plan.request.dry_run).await;
    }
    // Another node's clone began from a later commit than this one has.
    let is_here = context.checkout.has_commit(&frozen.commit).await?;
    match context.origin_tip(&frozen.branch, !is_here).await {
        Err(_) if is_here => Ok(Some(frozen.commit.clone())),
        tip => tip,
    }
}

/// The origin of a mapping whose branch was renamed or deleted: the branch that the chain names now, if it has the commit that the
/// issue's work started from. Otherwise nothing that the run makes could ever be published.
async fn follow_renamed(
    plan: &Plan,
    frozen: &Origin,
    asked: Option<Link>,
    context: &RepositoryContext,
) -> Result<Found, Refusal> {
    let gone = format!(
        "The origin branch \"{}\", which the issue is mapped to, does not exist {} any more",
        frozen.branch,
        context.origin_place()
    );
    let refused = |message: String| Refusal::new(StopDetail::OriginMissing, message);
    let named = asked.and_then(|(text, source)| Some((BranchName::parse(&text).ok()?, source)));
    let Some((branch, source)) =
        named.filter(|(branch, _)| *branch != frozen.branch && *branch != branch_of(&plan.issue.key))
    else {
        return Err(refused(format!("{gone}."))
            .hint(format!(
                "if it was renamed, give its new name: --origin BRANCH, or change {}",
                link(frozen.source, context)
            ))
            .hint("or create it again"));
    };
    let Some(now) = context.origin_tip(&branch, !plan.request.dry_run).await? else {
        let message = format!("{gone}, and neither does \"{branch}\", named by {}.", link(source, context));
        return Err(refused(message).hint(format!("create it, or change {}", link(source, context))));
    };
    // Who only looks brings nothing here.
    let is_known = context.checkout.has_commit(&now).await?;
    if is_known && !context.checkout.is_ancestor(&frozen.commit, &now).await? {
        let message = format!(
            "{gone}, and \"{branch}\", named by {}, does not have the commit {} that the issue's work started from.",
            link(source, context),
            frozen.commit.short()
        );
        return Err(refused(message)
            .hint("name a branch that has it")
            .hint("or delete the issue's worktree and its branch first, here and on the remote: the next run makes a new mapping"));
    }
    let warning = Warning {
        code: "origin_changed".to_owned(),
        at: context.clock.now_ms(),
        text: format!(
            "the origin branch \"{}\" does not exist any more; the mapping follows {}, which says \"{branch}\" now",
            frozen.branch,
            link(source, context)
        ),
    };
    let commit = if plan.request.catches_up { now } else { frozen.commit.clone() };
    Ok(Found { origin: Origin { branch, source, commit }, warnings: vec![warning] })
}

/// How much of an issue's branch is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merged {
    /// Nothing, as far as is known; or its worktree has something uncommitted.
    Nothing,
    /// Its first commits, which the origin has, as they are or in others.
    Part,
    /// All of its commits are in its origin or in a merged pull request.
    All,
    /// It has none, and the run that made it has ended: the next one begins anew.
    None,
}

async fn merged(
    plan: &Plan,
    mapped: &MappingRecord,
    origin: &CommitId,
    context: &RepositoryContext,
) -> Result<Merged, Refusal> {
    let branch = &mapped.branch;
    let Some(head) = context.branch_commit(branch).await? else { return Ok(Merged::Nothing) };
    let has_none = head == mapped.origin.commit;
    if has_none && !begins_anew(mapped, context).await {
        return Ok(Merged::Nothing);
    }
    let folder = worktree_of(&plan.issue.key);
    if let Some(worktree) = context.checkout.find_worktree(&context.worktree_root(), &folder)?
        && !worktree.is_clean().await?
    {
        return Ok(Merged::Nothing);
    }
    if has_none {
        // A look brings nothing here: a commit that is not here is taken to come after what is.
        let follows = !context.checkout.has_commit(origin).await?
            || context.checkout.is_ancestor(&head, origin).await?;
        return Ok(if follows { Merged::None } else { Merged::Nothing });
    }
    if context.checkout.is_ancestor(&head, origin).await? {
        return Ok(Merged::All);
    }
    let brings = !plan.request.dry_run;
    let mut part = false;
    for merged in context.merged_heads(branch, None, brings).await? {
        if context.checkout.is_ancestor(&head, &merged).await? {
            return Ok(Merged::All);
        }
        // What the branch had when an earlier run began from the origin is not merged since.
        part = part
            || context.checkout.is_ancestor(&merged, &head).await?
                && context.checkout.is_ancestor(&merged, origin).await?
                && !context.checkout.is_ancestor(&merged, &mapped.origin.commit).await?;
    }
    part =
        part || context.squashed((branch, &head), (&mapped.origin.branch, origin), brings).await?.is_some();
    Ok(if part { Merged::Part } else { Merged::Nothing })
}

/// Whether the last run of an issue has ended so that nothing of it is gone on with, as far as is known here.
async fn begins_anew(mapped: &MappingRecord, context: &RepositoryContext) -> bool {
    let dir = context.state.run(&context.repo, mapped.run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir).ok().flatten());
    let Some(facts) = read.await.ok().flatten() else { return false };
    let goes_on = |end: &Stop| {
        matches!(end.reason(), StopReason::HumanRequested | StopReason::BudgetExceeded)
            || end.detail.is_gone_on_with()
    };
    facts.end.as_ref().is_some_and(|end| !goes_on(end)) && !facts.is_unpublished()
}

/// A link's text and which one it is.
type Link = (String, OriginSource);

/// The first link that is set wins; blank counts as unset. Also gives a warning if the project field could not be read.
async fn ask_chain(
    plan: &Plan,
    context: &RepositoryContext,
) -> Result<(Option<Link>, Option<Warning>), Refusal> {
    let set = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut unreadable = None;
    if let Some(text) = set(plan.request.origin.as_deref()) {
        return Ok((Some((text, OriginSource::Explicit)), None));
    }
    if let (Some(github), Some(snapshot)) = (&context.github, &plan.snapshot) {
        let field = github.issue_field(snapshot, &context.config.github.issue_field).await?;
        if let Some(text) = set(field.as_deref()) {
            return Ok((Some((text, OriginSource::IssueField)), None));
        }
        if let Some(number) = snapshot.issue.key.number() {
            let (field, why) = project_field((&context.repo, &context.config), github, number).await?;
            let at = context.clock.now_ms();
            unreadable = why.map(|text| Warning { code: "project_unreadable".to_owned(), at, text });
            if let Some(text) = set(field.as_deref()) {
                return Ok((Some((text, OriginSource::ProjectField)), unreadable));
            }
        }
    }
    let configured = set(context.repository.origin_branch.as_deref());
    Ok((configured.map(|text| (text, OriginSource::Config)), unreadable))
}

/// Why the field of a project board counts as not set, found before any run with an open issue of the repository. `None` if the field can
/// be read or this is not known.
pub async fn project_unreadable(of: (&RepoName, &Config), github: &Client) -> Option<String> {
    let listing = github.list_open(of.0, &[], &mut PageCache::default()).await.ok()?;
    let number = listing.issues.first()?.issue.key.number()?;
    project_field(of, github, number).await.ok()?.1
}

/// The value of the project field. If nobody configured the field, credentials that cannot read projects do not matter:
/// it counts as unset, and why is said. If the operator named it, it may name a branch, so this is an error (D99).
async fn project_field(
    (repo, config): (&RepoName, &Config),
    github: &Client,
    number: u64,
) -> Result<(Option<String>, Option<String>), github::Error> {
    let name = &config.github.project_field;
    if name.trim().is_empty() {
        return Ok((None, None));
    }
    let wanted = config.source("github.project_field") != Source::Default;
    match github.project_field(repo, number, name).await {
        // A GitHub without GraphQL has no projects. Any other failure is an error, because the field may name a branch.
        Err(error) if error.is_absent() => Ok((None, None)),
        Err(github::Error { kind: ErrorKind::Forbidden { needs }, .. }) if !wanted => {
            let text = format!(
                "the project field \"{name}\" could not be read: the credentials lack the permission \"{needs}\"; it counts as \
                 not set. Grant the permission, or set project_field = \"\" under [github] so that it is never asked for"
            );
            Ok((None, Some(text)))
        }
        field => Ok((field?, None)),
    }
}

fn keep(
    frozen: Origin,
    asked: Option<(String, OriginSource)>,
    context: &RepositoryContext,
) -> Result<Found, Refusal> {
    let mut warnings = Vec::new();
    if let Some((text, source)) = asked {
        let now = BranchName::parse(&text).map_or_else(|_| text.clone(), |branch| branch.to_string());
        if now != frozen.branch.as_str() {
            if source == OriginSource::Explicit {
                return Err(Refusal::new(
                    StopDetail::MappingConflict,
                    format!(
                        "The issue is mapped to the origin \"{}\" ({}), not to \"{now}\".",
                        frozen.branch, frozen.source
                    ),
                )
                .hint("leave --origin out to continue on the issue's branch")
                .hint("or delete the issue's worktree and its branch first, here and on the remote: the next run makes a new mapping"));
            }
            warnings.push(Warning {
                code: "origin_changed".to_owned(),
                at: context.clock.now_ms(),
                text: format!(
                    "{} says \"{now}\" now; the mapping keeps \"{}\", its origin since it was made",
                    link(source, context),
                    frozen.branch
                ),
            });
        }
    }
    Ok(Found { origin: frozen, warnings })
}

fn unresolved(plan: &Plan, context: &RepositoryContext) -> Refusal {
    let refusal = Refusal::new(
        StopDetail::OriginUnresolved,
        "No origin branch is set: neither --origin, nor the issue field, nor the project field, nor origin_branch.",
    )
    .hint("name it once: --origin BRANCH")
    .hint("or for the repository: origin_branch = \"BRANCH\" under [[repositories]] in agentd.toml");
    let github = &context.config.github;
    match of_the_issue(&github.issue_field, &github.project_field).filter(|_| plan.snapshot.is_some()) {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

/// Where people name the origin of one issue. A field without a name is never asked for.
fn of_the_issue(issue_field: &str, project_field: &str) -> Option<String> {
    let place = match (issue_field.trim(), project_field.trim()) {
        ("", "") => return None,
        (own, "") => format!("its field \"{own}\""),
        ("", project) => format!("the field \"{project}\" of its project"),
        (own, project) => format!("its field \"{own}\", or \"{project}\" of its project"),
    };
    Some(format!("or for the issue: {place}"))
}

/// A link of the chain, as people know it.
fn link(source: OriginSource, context: &RepositoryContext) -> String {
    match source {
        OriginSource::Explicit => "--origin".to_owned(),
        OriginSource::IssueField => format!("the issue field \"{}\"", context.config.github.issue_field),
        OriginSource::ProjectField => {
            format!("the project field \"{}\"", context.config.github.project_field)
        }
        OriginSource::Config => KEY.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_a_name_is_no_place_to_name_an_origin() {
        let hint = |own: &str, project: &str| of_the_issue(own, project).unwrap_or_default();
        assert_eq!(
            hint("base", "Target"),
            "or for the issue: its field \"base\", or \"Target\" of its project"
        );
        assert_eq!(hint("base", ""), "or for the issue: its field \"base\"");
        assert_eq!(hint("", "Target"), "or for the issue: the field \"Target\" of its project");
        assert_eq!(of_the_issue("", ""), None);
    }
}
