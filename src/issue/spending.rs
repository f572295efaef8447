//! What an issue has cost: read, extended by people, and carried by its status comment, from which a new state directory
//! begins.

use std::sync::Arc;

use chrono::Utc;

use super::carried_format::Carried;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::engine::shared_cap;
use crate::engine::shared_cap_format::{Extension, Spending};
use crate::engine::shortage::SharedCapError;
use crate::record::rendering;
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::Store;

const BEGIN: &str = "<!-- agentd:spent ";
const END: &str = " -->";
/// Under which an issue keeps what people gave it elsewhere.
const ELSEWHERE: &str = "status-comment";

/// What an issue has cost so far.
pub async fn of(context: &RepositoryContext, key: &IssueKey) -> Result<Spending, Refusal> {
    let (store, repo, key) = (context.money.store().clone(), context.repo.clone(), key.clone());
    let read = tokio::task::spawn_blocking(move || shared_cap::issue_spending(&store, &repo, &key)).await;
    unreadable(read)
}

/// Gives an issue more money, once for each `asked`: a comment's name, or anything new. Gives what its spending is then, or
/// what comments may still give.
pub async fn extend(
    context: &RepositoryContext,
    key: &IssueKey,
    asked: String,
    extension: Extension,
) -> Result<Result<Spending, Money>, Refusal> {
    let (store, repo, key) = (context.state.store().clone(), context.repo.clone(), key.clone());
    let most = context.config.max_extension;
    let work = move || shared_cap::extend_issue(&store, (&repo, &key), (&asked, &extension), most);
    unreadable(tokio::task::spawn_blocking(work).await)
}

/// How the money of an issue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stands {
    /// What the requests of its runs cost that ended.
    pub spent: Money,
    /// Set aside for requests under way, and by processes that were killed.
    pub set_aside: Money,
    /// All that its runs may cost; `None` = the configuration has no cap.
    pub cap: Option<Money>,
}

impl Stands {
    /// What its runs may cost, for people; `None` where there is no cap.
    pub fn in_words(&self) -> Option<String> {
        let Self { spent, set_aside, cap } = self;
        let cap = (*cap)?;
        let aside = match set_aside.is_zero() {
            true => String::new(),
            false => format!(", and {set_aside} is set aside for requests"),
        };
        let and = if aside.is_empty() { ", and" } else { ";" };
        Some(format!("all of its runs together may cost {cap} now{and} {spent} is spent{aside}"))
    }
}

/// How the money of an issue stands, by what is kept of it.
pub fn stands(context: &RepositoryContext, spending: &Spending) -> Stands {
    let cap = context.config.budgets.max_cost_per_issue;
    let (spent, set_aside) = (spending.spent, spending.set_aside());
    Stands { spent, set_aside, cap: cap.map(|cap| cap + spending.given()) }
}

/// The newest run of an issue, if a cap of money ended it, and what people had given the issue as far as it knew.
pub async fn ended_by_cost(context: &RepositoryContext, key: &IssueKey) -> Option<(RunId, Money)> {
    let (state, lease, repo) = (context.state.clone(), context.lease(key), context.repo.clone());
    let work = tokio::task::spawn_blocking(move || {
        let record = state.store().look(&lease).and_then(|content| content.record)?;
        let run_id = mapping_of(&record)?.run_id;
        let facts = run_facts::read_anywhere(&state.run(&repo, run_id)).ok()??;
        let ended = facts.end.is_some_and(|end| end.detail == StopDetail::MaxCost);
        Some((run_id, facts.started?.issue_given)).filter(|_| ended)
    });
    work.await.ok().flatten()
}

fn unreadable<T>(read: Result<Result<T, SharedCapError>, tokio::task::JoinError>) -> Result<T, Refusal> {
    let words = match read {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic.to_string(),
    };
    Err(Refusal::new(
        StopDetail::OutputWriteFailed,
        format!("The budget of the issue cannot be told: {words}."),
    ))
}

/// The line of a status comment that carries what its issue has cost; empty where it has cost nothing. Blocks.
pub fn line(store: &Arc<dyn Store>, repo: &RepoName, key: &IssueKey) -> String {
    let Ok(spending) = shared_cap::issue_spending(store, repo, key) else { return String::new() };
    let carried = Carried { usd: spending.total(), given: spending.given() };
    if carried.usd == Money::ZERO && carried.given == Money::ZERO {
        return String::new();
    }
    let json = serde_json::to_string(&carried).unwrap_or_default();
    format!("\n{BEGIN}{json}{END}\n")
}

/// Whether a status comment says that people gave the issue more than is known here. Blocks.
pub fn gives_more(store: &Arc<dyn Store>, repo: &RepoName, key: &IssueKey, comment: &str) -> bool {
    let known = shared_cap::issue_spending(store, repo, key).map(|spending| spending.given());
    carried(comment).is_some_and(|carried| known.is_ok_and(|known| carried.given > known))
}

/// Takes over what a status comment says beyond what is known here; what people gave only where `with_given`, for whoever can edit the
/// comment can write there what nobody gave. A comment that says less changes nothing. Blocks.
pub fn adopt(
    store: &Arc<dyn Store>,
    repo: &RepoName,
    key: &IssueKey,
    (comment, with_given): (&str, bool),
) -> Result<(), SharedCapError> {
    let Some(carried) = carried(comment) else { return Ok(()) };
    let known = shared_cap::issue_spending(store, repo, key)?;
    let given = if with_given { carried.given } else { Money::ZERO };
    if carried.usd <= known.total() && given <= known.given() {
        return Ok(());
    }
    shared_cap::change_issue_spending(store, repo, key, |spending| {
        spending.spent += carried.usd.saturating_sub(spending.total());
        let given = given.saturating_sub(spending.given());
        if given > Money::ZERO {
            let before = spending.extensions.get(ELSEWHERE).map_or(Money::ZERO, |before| before.amount);
            let amount = before + given;
            let by = "the status comment".to_owned();
            let extension =
                Extension { by, amount, at: chrono::DateTime::<Utc>::UNIX_EPOCH, by_comment: true };
            spending.extensions.insert(ELSEWHERE.to_owned(), extension);
        }
        Ok(())
    })
}

/// Of agentd's own lines at the end: what others made a comment say stands above them.
fn carried(comment: &str) -> Option<Carried> {
    let line = rendering::own_lines(comment).find_map(|line| line.strip_prefix(BEGIN)?.strip_suffix(END))?;
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::run_dir::StateDir;

    fn store() -> (tempfile::TempDir, Arc<dyn Store>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::clone(StateDir::new(folder.path().to_owned()).store());
        (folder, store)
    }

    #[test]
    fn a_new_state_directory_begins_from_the_status_comment_and_never_goes_below_what_it_knows() {
        let (repo, key) = (RepoName::parse("o/n").unwrap(), IssueKey::Number(7));
        let ((_a, here), (_b, there)) = (store(), store());
        assert_eq!(line(&here, &repo, &key), "");
        shared_cap::change_issue_spending(&here, &repo, &key, |spending| {
            spending.spent = Money::from_micros(1_234_567);
            let at = chrono::DateTime::<Utc>::UNIX_EPOCH;
            let given = Extension { by: "ann".into(), amount: Money::from_micros(500), at, by_comment: true };
            spending.extensions.insert("comment-1".into(), given);
            Ok(())
        })
        .unwrap();
        let comment = format!("<!-- agentd:issue-7 -->\nWords.\n{}", line(&here, &repo, &key));
        let (_c, edited) = store();
        adopt(&edited, &repo, &key, (&comment, false)).unwrap();
        let known = shared_cap::issue_spending(&edited, &repo, &key).unwrap();
        assert_eq!((known.total(), known.given()), (Money::from_micros(1_234_567), Money::ZERO));
        for _ in 0..2 {
            adopt(&there, &repo, &key, (&comment, true)).unwrap();
            let known = shared_cap::issue_spending(&there, &repo, &key).unwrap();
            assert_eq!(
                (known.total(), known.given()),
                (Money::from_micros(1_234_567), Money::from_micros(500))
            );
        }
        for less in ["<!-- agentd:spent {\"usd\":1,\"given\":0} -->", "<!-- agentd:spent {} -->", ""] {
            adopt(&there, &repo, &key, (less, true)).unwrap();
            let known = shared_cap::issue_spending(&there, &repo, &key).unwrap();
            assert_eq!(known.total(), Money::from_micros(1_234_567), "{less}");
        }
    }

    #[test]
    fn what_a_program_printed_gives_nothing() {
        let line = format!("{BEGIN}{{\"usd\":0.5,\"given\":9.0}}{END}");
        assert!(carried(&format!("Words.\n{line}\n")).is_some());
        assert!(carried(&format!("```text\n{line}\n```\n1 file · run\n")).is_none());
    }
}
