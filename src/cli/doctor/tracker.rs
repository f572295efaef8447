//! What GitHub says of a repository: whether the token sees it, and what it may do there. That needs no checkout.

use super::{Finding, refused, weak};
use crate::cli::context::Context;
use crate::config::Config;
use crate::config::config_file::Publish;
use crate::domain::name::{BranchName, RepoName};
use crate::domain::policy::ActorPermission;
use crate::domain::shell_words;
use crate::github::{self, Right};
use crate::lifecycle::origin;
use crate::repository::context::RepositoryContext;
use crate::repository::open::own_client;

/// A repository on GitHub, and who asks about it.
pub struct Tracker<'a> {
    repo: &'a RepoName,
    config: &'a Config,
    publish: Publish,
    /// Labels that a sweep asks for.
    swept: Vec<String>,
    github: &'a github::Client,
}

/// The same of a repository that agentd clones itself, whether it has done so or not.
pub async fn of_clone(context: &Context, config: &Config) -> Vec<Finding> {
    let Some(repo) = &context.global.repo else { return Vec::new() };
    let github = match own_client(config, false) {
        Ok(Some(github)) => github,
        // That there are none, or what is wrong with them, is told beside the credentials.
        Ok(None) => return Vec::new(),
        Err(_) if config.github_credentials().is_err() => return Vec::new(),
        Err(refusal) => return vec![refused("github", refusal.into())],
    };
    let entry = config.repository(Some(repo), None);
    let tracker =
        Tracker { repo, config, publish: entry.publish, swept: entry.sweep.labels, github: &github };
    let mut findings = match tracker.look().await {
        Ok((findings, _)) => findings,
        Err(unreadable) => return vec![unreadable],
    };
    match entry.origin_branch.as_deref().map(BranchName::parse) {
        Some(Ok(branch)) => findings.extend(tracker.rights(&branch).await),
        Some(Err(error)) => {
            let remedy = "set origin_branch to a branch's name";
            findings.push(Finding::problem("origin", error.to_string(), remedy));
        }
        None => findings.push(Finding::problem(
            "origin",
            format!("{repo} has no `path` and no origin_branch: it is not cloned"),
            "set origin_branch of the repository's entry in agentd.toml",
        )),
    }
    findings
}

impl<'a> Tracker<'a> {
    /// That of a checkout; `None` where nobody is asked.
    pub fn of(site: &'a RepositoryContext) -> Option<Self> {
        let github = site.github.as_ref()?;
        let entry = &site.repository;
        let swept = entry.sweep.labels.clone();
        Some(Self { repo: &site.repo, config: &site.config, publish: entry.publish, swept, github })
    }

    /// What is to be said of it; `Err`: it cannot be read, and which rights there are is not known then.
    pub async fn look(&self) -> Result<(Vec<Finding>, github::Repository), Finding> {
        let repository = self.github.repository(self.repo).await.map_err(|error| {
            let asked = &self.config.github.api_url;
            let told = format!("{error} (asked: {asked}); permissions are not tried");
            Finding::problem("github", told, "check github.api_url, the token, and the repository's name")
        })?;
        let viewer = self.github.viewer().await.ok();
        let who = viewer.map_or_else(|| "the token".to_owned(), |viewer| viewer.actor.login.clone());
        let mut findings = vec![self.permission(&who, &repository)];
        findings.extend(viewer.and_then(weak::token));
        findings.push(self.trigger().await);
        findings.extend(self.unknown_swept().await);
        if let Some(why) = origin::project_unreadable((self.repo, self.config), self.github).await {
            let remedy = "give the token: projects, read; or set project_field = \"\" under [github]";
            findings.push(Finding::warning("project_unreadable", why, remedy));
        }
        Ok((findings, repository))
    }

    fn permission(&self, who: &str, repository: &github::Repository) -> Finding {
        let (what, repo) = ("github", self.repo);
        match repository.permission {
            _ if repository.archived => Finding::problem(
                what,
                format!("{repo} is archived: nothing can be written"),
                "unarchive it, or name another repository",
            ),
            Some(permission) if permission < ActorPermission::Write => Finding::problem(
                what,
                format!(
                    "{who} has the permission \"{}\" on {repo}: branches cannot be pushed",
                    permission.as_str()
                ),
                "give it write access, and the token: contents, issues and pull requests, read and write",
            ),
            Some(permission) => {
                Finding::ok(what, format!("{who} has the permission \"{}\" on {repo}", permission.as_str()))
            }
            None => Finding::ok(what, format!("{who} can read {repo}; GitHub does not say what else")),
        }
    }

    /// Where a checkout knows the repository by an earlier name.
    pub fn renamed(&self, repository: &github::Repository) -> Option<Finding> {
        let (repo, now) = (self.repo, &repository.full_name);
        (!now.eq_ignore_ascii_case(&repo.to_string())).then(|| {
            Finding::warning(
                "github",
                format!("{repo} is called {now} now"),
                format!(
                    "set the remote to the new address, and write `name = \"{repo}\"` in its entry of agentd.toml: GitHub still knows it by that \
                     name, and what waits, was taken over or approved is kept under it"
                ),
            )
        })
    }

    async fn trigger(&self) -> Finding {
        let (what, repo) = ("labels", self.repo);
        let trigger = &self.config.github.labels.trigger;
        match self.github.label_exists(repo, trigger).await {
            Ok(true) => Finding::ok(what, format!("\"{trigger}\" starts a run")),
            Ok(false) => Finding::warning(
                what,
                format!("{repo} has no label \"{trigger}\" yet"),
                format!(
                    "make it, so that people can put it on: {}",
                    shell_words::line(&["gh", "label", "create", trigger, "--repo", &repo.to_string()])
                ),
            ),
            Err(error) => Finding::problem(what, error.to_string(), "give the token: issues, read and write"),
        }
    }

    /// Labels that no issue can have: a sweep that asks for one takes nothing, and says nothing of it.
    async fn unknown_swept(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for label in &self.swept {
            if matches!(self.github.label_exists(self.repo, label).await, Ok(false)) {
                findings.push(Finding::warning(
                    "sweep",
                    format!("{} has no label \"{label}\": no sweep takes an issue", self.repo),
                    "correct sweep_labels, or make the label",
                ));
            }
        }
        findings
    }

    /// Each right that a run needs, by a request that needs it.
    pub async fn rights(&self, origin: &BranchName) -> Vec<Finding> {
        let what = "permissions";
        let mut rights = vec![Right::ReadIssues, Right::WriteIssues];
        if self.publish == Publish::PullRequest {
            rights.extend([Right::ReadPulls, Right::WritePulls]);
        }
        let (mut held, mut findings) = (Vec::new(), Vec::new());
        for right in rights {
            match self.github.try_right(self.repo, right, origin).await {
                Ok(()) => held.push(right.permission()),
                Err(error) => {
                    let remedy = format!("give the token or App: {}", right.permission());
                    findings.push(Finding::problem(what, error.to_string(), remedy));
                }
            }
        }
        if !held.is_empty() {
            let told = format!("{} (tried; nothing was changed)", held.join(", "));
            findings.insert(0, Finding::ok(what, told));
        }
        findings
    }
}
