//! Labels: made when they are needed, added and removed. Repeating is safe.

use http::Method;
use serde_json::json;

use super::Ensured;
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::request::Ask;
use crate::domain::issue_state::{IssueState, LabelSpec, LabelsTable};
use crate::domain::name::RepoName;
use crate::domain::percent::percent_encoded;

const NEEDS: &str = "issues: write";

impl Client {
    /// Makes a label if it does not exist; an existing one keeps its look. A label that was found once is not looked up
    /// again, because GitHub itself makes a label that is put on an issue.
    pub async fn ensure_label(&self, repo: &RepoName, label: LabelSpec<'_>) -> Result<Ensured, Error> {
        let name = (repo.clone(), label.name.to_lowercase());
        if self.memory().labels.lock().await.contains(&name) {
            return Ok(Ensured::Unchanged);
        }
        let made = self.make_label(repo, label).await?;
        self.memory().labels.lock().await.insert(name);
        Ok(made)
    }

    async fn make_label(&self, repo: &RepoName, label: LabelSpec<'_>) -> Result<Ensured, Error> {
        if self.label_exists(repo, label.name).await? {
            return Ok(Ensured::Unchanged);
        }
        let doing = format!("making the label \"{}\" in {repo}", label.name);
        let body = json!({"name": label.name, "color": label.color, "description": label.description});
        // Names are unique, so a second one cannot be made: repeating is safe.
        let ask =
            Ask::write(Method::POST, self.url(&format!("/repos/{repo}/labels")), Some(body), doing, NEEDS)
                .repeatable();
        match self.send(ask).await {
            Ok(_) => Ok(Ensured::Created),
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(Ensured::Unchanged),
            Err(error) => Err(error),
        }
    }

    /// Whether the repository knows the label.
    pub async fn label_exists(&self, repo: &RepoName, name: &str) -> Result<bool, Error> {
        let doing = format!("looking for the label \"{name}\" in {repo}");
        let url = self.url(&format!("/repos/{repo}/labels/{}", percent_encoded(name)));
        match self.send(Ask::get(url, doing, "issues: read")).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts labels on an issue; those that are on stay on. None = no request.
    pub async fn add_labels(&self, repo: &RepoName, number: u64, names: &[&str]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let doing = format!("labelling issue {number} of {repo}");
        let url = self.url(&format!("/repos/{repo}/issues/{number}/labels"));
        let ask = Ask::write(Method::POST, url, Some(json!({"labels": names})), doing, NEEDS).repeatable();
        self.send(ask).await.map(drop)
    }

    /// Takes a label off an issue; one that is not on is fine.
    pub async fn remove_label(&self, repo: &RepoName, number: u64, name: &str) -> Result<(), Error> {
        let doing = format!("taking the label \"{name}\" off issue {number} of {repo}");
        let path = format!("/repos/{repo}/issues/{number}/labels/{}", percent_encoded(name));
        match self.write(Method::DELETE, &path, None, &doing, NEEDS).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Which labels must be removed and added so that an issue with `current` labels shows `state`. The trigger is removed
/// first, so that the issue is not started again if the rest fails.
fn change<'a>(
    labels: &'a LabelsTable,
    current: &[String],
    state: IssueState,
) -> (Vec<&'a str>, Option<&'a str>) {
    let on = |name: &str| current.iter().any(|label| label.trim().eq_ignore_ascii_case(name.trim()));
    let wanted = labels.of(state);
    let trigger = state.is_end().then_some(labels.trigger.as_str());
    let others = labels.others(state).filter(|name| !name.eq_ignore_ascii_case(wanted));
    let off = trigger.into_iter().chain(others).filter(|name| on(name)).collect();
    (off, (!on(wanted)).then_some(wanted))
}

impl Client {
    /// Makes the labels of an issue show `state`, given those it has. Sends no request if they already do.
    pub async fn ensure_labels(
        &self,
        repo: &RepoName,
        number: u64,
        current: &[String],
        state: IssueState,
        labels: &LabelsTable,
    ) -> Result<(), Error> {
        let (off, on) = change(labels, current, state);
        for name in off {
            self.remove_label(repo, number, name).await?;
        }
        if let Some(name) = on {
            // Only for its look. GitHub also makes a label that is put on an issue, and who may label may not be
            // allowed to make one.
            if let Some(spec) = labels.all().map(|(_, spec)| spec).find(|spec| spec.name == name)
                && let Err(error) = self.ensure_label(repo, spec).await
                && !(error.is_absent() || matches!(error.kind, ErrorKind::Forbidden { .. }))
            {
                return Err(error);
            }
            self.add_labels(repo, number, &[name]).await?;
        }
        Ok(())
    }

    /// Makes the labels of an issue show the end of a run that answered a labelling (`answers`, the event's id; `None` = whoever put
    /// the trigger on, it goes), given those it has. Where somebody has put the trigger on again since, it stays: it asks for the
    /// next run.
    pub async fn ensure_end_labels(
        &self,
        repo: &RepoName,
        number: u64,
        mut current: Vec<String>,
        (state, answers): (IssueState, Option<u64>),
        labels: &LabelsTable,
    ) -> Result<(), Error> {
        let is_trigger = |label: &String| label.trim().eq_ignore_ascii_case(labels.trigger.trim());
        if let Some(answered) = answers
            && current.iter().any(is_trigger)
            && let Some(newest) = self.last_labelling(repo, number, &labels.trigger).await?
            && newest.event != answered
        {
            current.retain(|label| !is_trigger(label));
        }
        self.ensure_labels(repo, number, &current, state, labels).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d6_an_end_takes_the_trigger_off_first_and_leaves_one_state_label() {
        let labels = LabelsTable::default();
        let current = ["bug", "Agentd", "agentd:running"].map(str::to_owned);
        let (off, on) = change(&labels, &current, IssueState::Done);
        assert_eq!((off, on), (vec!["agentd", "agentd:running"], Some("agentd:done")));
        let (off, on) = change(&labels, &current, IssueState::Running);
        assert_eq!((off, on), (vec![], None), "while it runs the trigger stays");
        let again = ["agentd", "agentd:done"].map(str::to_owned);
        assert_eq!(change(&labels, &again, IssueState::Queued), (vec!["agentd:done"], Some("agentd:queued")));
    }
}
