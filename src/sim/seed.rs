//! From a scenario to a world: accounts, bare repositories with their commits, issues, faults.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::SimError;
use super::bare::{self, CommitSeed};
use super::branches::Branches;
use super::fault::{Fault, FaultKind};
use super::scenario_file::{
    CheckFile, CommitFile, FaultFile, FaultKindFile, FieldFile, HookFile, IssueFile, PullFile,
    RepositoryFile, ReviewFile, Scenario, ThreadFile, TypedFieldFile,
};
use super::world::{
    App, Comment, Event, FieldContent, HeadRepository, Hook, Issue, NewThread, Pull, Repository, Role, Token,
    User, World,
};

/// Times of seeded commits begin here, so that their ids are the same every time: 2026-01-01.
const FIRST_COMMIT: i64 = 1_767_225_600;

/// Fills an empty world; bare repositories are made under `work_dir/git`.
pub fn fill(world: &mut World, scenario: &Scenario, work_dir: &Path) -> Result<(), SimError> {
    world.limits.per_hour = scenario.limits.per_hour;
    world.limits.writes_per_minute = scenario.limits.writes_per_minute;
    for file in &scenario.users {
        let id = world.new_id();
        world.users.push(User {
            id,
            login: file.login.clone(),
            name: file.name.clone(),
            kind: file.kind.clone().unwrap_or_else(|| "User".to_owned()),
        });
    }
    for file in &scenario.tokens {
        world.user(&file.login);
        world.tokens.push(Token {
            secret: file.token.clone(),
            login: file.login.clone(),
            permissions: file.permissions.clone(),
            repositories: file.repositories.clone(),
            installation: None,
            expires_at: None,
        });
    }
    for file in &scenario.apps {
        world.user(&file.owner);
        world.user(&format!("{}[bot]", file.slug));
        world.apps.push(App {
            id: file.id,
            slug: file.slug.clone(),
            owner: file.owner.clone(),
            installation_id: file.installation_id,
            permissions: file.permissions.clone(),
            repositories: file.repositories.clone(),
        });
    }
    for file in &scenario.repositories {
        repository(world, scenario, file, work_dir)?;
    }
    for file in &scenario.faults {
        let fault = fault(file, world.now())?;
        world.faults.push(fault);
    }
    world.script.set(&scenario.model)?;
    Ok(())
}

/// Adds one repository with everything in it.
pub fn repository(
    world: &mut World,
    scenario: &Scenario,
    file: &RepositoryFile,
    work_dir: &Path,
) -> Result<(), SimError> {
    let (owner, name) = file
        .name
        .split_once('/')
        .filter(|(owner, name)| plain(owner) && plain(name))
        .ok_or_else(|| SimError::wrong(&file.name, "a repository's name must be `owner/name`"))?;
    let default_branch = file.default_branch.clone().unwrap_or_else(|| "main".to_owned());
    let git_dir = work_dir.join("git").join(owner).join(format!("{name}.git"));
    if git_dir.exists() || world.repository(&file.name).is_some() {
        return Err(SimError::wrong(
            &file.name,
            format!(
                "{} exists already; choose an empty work directory, and each name once",
                git_dir.display()
            ),
        ));
    }
    let git = |source| SimError::Git { repository: file.name.clone(), source };
    bare::create(&git_dir, &default_branch).map_err(git)?;
    commits(scenario, file, &git_dir, &default_branch)?;
    let mut collaborators = std::collections::BTreeMap::new();
    for (login, role) in &file.collaborators {
        world.user(login);
        let role = Role::parse(role).ok_or_else(|| {
            SimError::wrong(&file.name, format!("`{role}` is no role (collaborator {login})"))
        })?;
        collaborators.insert(login.clone(), role);
    }
    world.user(owner);
    let (id, created_at) = (world.new_id(), world.now());
    world.repositories.push(Repository {
        id,
        owner: owner.to_owned(),
        name: name.to_owned(),
        private: file.private,
        archived: file.archived,
        default_branch,
        git_dir,
        branches: Branches::default(),
        collaborators,
        labels: Vec::new(),
        issues: std::collections::BTreeMap::new(),
        checks: Vec::new(),
        hooks: Vec::new(),
        protected: file.protected.clone(),
        created_at,
    });
    let index = world.repositories.len() - 1;
    for label in &file.labels {
        world.ensure_label(index, &label.name, label.color.as_deref());
        let found = world.repositories[index].labels.iter_mut().find(|one| one.name == label.name);
        if let Some(found) = found {
            found.description.clone_from(&label.description);
        }
    }
    for one in &file.issues {
        issue(world, index, one)?;
    }
    for one in &file.pulls {
        pull(world, index, one)?;
    }
    for one in &file.checks {
        check(world, index, one);
    }
    for one in &file.hooks {
        hook(world, index, one);
    }
    Ok(())
}

/// Puts a check on its commit or branch, in the place of those of the same name; gives its id.
pub fn check(world: &mut World, index: usize, file: &CheckFile) -> u64 {
    let (id, new_run, at) = (world.new_id(), world.new_id(), world.now());
    let checks = &mut world.repositories[index].checks;
    // Jobs of one workflow on one commit are one workflow run.
    let known = checks.iter().filter(|one| one.on == file.on).filter_map(|one| one.job.as_ref());
    let known = known.filter(|job| Some(&job.workflow) == file.workflow().as_ref());
    let once_more = file.job.as_ref().is_some_and(|job| job.once_more);
    let known = known.filter(|_| !once_more);
    let run = known.map(|job| (job.run, job.attempt)).max().unwrap_or((new_run, 1));
    let check = file.check(id, run, at);
    checks.retain(|one| one.on != check.on || !check.replaces(one));
    checks.push(check);
    id
}

/// Adds a webhook.
pub fn hook(world: &mut World, index: usize, file: &HookFile) {
    let id = world.new_id();
    let (url, secret, events) = (file.url.clone(), file.secret.clone(), file.events.clone());
    world.repositories[index].hooks.push(Hook { id, url, secret, events });
}

/// A path segment that cannot leave its directory.
fn plain(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('.')
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn commits(
    scenario: &Scenario,
    file: &RepositoryFile,
    git_dir: &Path,
    default: &str,
) -> Result<(), SimError> {
    let git = |source| SimError::Git { repository: file.name.clone(), source };
    if let Some(directory) = &file.from_directory {
        let directory = scenario.directory.join(directory);
        let read = |source| SimError::Read { path: directory.clone(), source };
        let mut seed = CommitSeed {
            branch: default.to_owned(),
            message: "Initial commit".to_owned(),
            at: FIRST_COMMIT,
            ..CommitSeed::default()
        };
        bare::add_directory(&mut seed, &directory).map_err(read)?;
        bare::commit(git_dir, &seed).map_err(git)?;
    }
    for (place, commit) in file.commits.iter().enumerate() {
        bare::commit(git_dir, &commit_seed(commit, place, git_dir, default)).map_err(git)?;
    }
    Ok(())
}

/// The commit that an entry of a scenario asks for; `place` counts the entries from 0.
pub fn commit_seed(commit: &CommitFile, place: usize, git_dir: &Path, default: &str) -> CommitSeed {
    let has_default = bare::head(git_dir, default).is_some();
    CommitSeed {
        branch: commit.branch.clone().unwrap_or_else(|| default.to_owned()),
        from: commit.from.clone().or_else(|| has_default.then(|| default.to_owned())),
        message: commit.message.clone().unwrap_or_else(|| format!("Commit {}", place + 1)),
        author: commit.author.clone(),
        at: FIRST_COMMIT + 60 * (i64::try_from(place).unwrap_or(0) + 1),
        files: commit.files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes())).collect(),
        executable: commit.executable.iter().cloned().collect(),
        onto: commit.onto.clone(),
        remove: commit.remove.clone(),
    }
}

/// The value a scenario writes for a field.
pub fn field(file: &FieldFile) -> FieldContent {
    match file {
        FieldFile::Plain(text) | FieldFile::Typed(TypedFieldFile::Text(text)) => {
            FieldContent::Text(text.clone())
        }
        FieldFile::Typed(TypedFieldFile::SingleSelect(name)) => FieldContent::SingleSelect(name.clone()),
        FieldFile::Typed(TypedFieldFile::Number(number)) => FieldContent::Number(*number),
        FieldFile::Typed(TypedFieldFile::Date(date)) => FieldContent::Date(date.clone()),
    }
}

/// Adds one issue and returns its number.
pub fn issue(world: &mut World, repo: usize, file: &IssueFile) -> Result<u64, SimError> {
    let owner = world.repositories[repo].owner.clone();
    let full_name = world.repositories[repo].full_name();
    let number = file.number.unwrap_or_else(|| world.repositories[repo].next_number());
    if world.repositories[repo].issues.contains_key(&number) {
        return Err(SimError::wrong(&full_name, format!("there are two issues with number {number}")));
    }
    let author = file.author.clone().unwrap_or(owner);
    world.user(&author);
    let at = world.now();
    let mut issue = Issue::new(world.new_id(), number, &author, &file.title, file.body.clone(), at);
    issue.assignees.clone_from(&file.assignees);
    issue.locked = file.locked;
    issue.blocked_by.clone_from(&file.blocked_by);
    issue.sub_issues.clone_from(&file.sub_issues);
    issue.moved_to.clone_from(&file.moved_to);
    issue.deleted = file.deleted;
    for comment in &file.comments {
        world.user(&comment.author);
        issue.comments.push(Comment {
            id: world.new_id(),
            author: comment.author.clone(),
            body: comment.body.clone(),
            created_at: at,
            updated_at: at,
            ..Comment::default()
        });
    }
    world.repositories[repo].issues.insert(number, issue);
    let labeller = file.labelled_by.clone().unwrap_or(author);
    world.user(&labeller);
    for label in &file.labels {
        world.set_label(repo, number, label, &labeller, true);
    }
    for (name, value) in &file.fields {
        world.set_field(repo, number, name, Some(field(value)));
    }
    for project in &file.projects {
        let which = (project.title.as_str(), project.number.unwrap_or(1));
        for (name, value) in &project.fields {
            world.set_project_field(repo, number, which, name, Some(field(value)));
        }
        if project.fields.is_empty() {
            world.set_project_field(repo, number, which, "Status", None);
        }
        if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
            for item in issue.projects.iter_mut().filter(|item| item.title == project.title) {
                item.archived = project.archived;
            }
        }
    }
    match file.state.as_deref() {
        None | Some("open") => {}
        Some("closed") => {
            world.set_open(repo, number, false, None, &labeller);
        }
        Some(other) => {
            return Err(SimError::wrong(
                &full_name,
                format!("issue {number}: `{other}` is no state (open, closed)"),
            ));
        }
    }
    Ok(number)
}

fn pull(world: &mut World, repo: usize, file: &PullFile) -> Result<(), SimError> {
    let found = &world.repositories[repo];
    let full_name = found.full_name();
    let base = file.base.clone().unwrap_or_else(|| found.default_branch.clone());
    let sha = |branch: &str| {
        bare::head(&found.git_dir, branch).ok_or_else(|| {
            SimError::wrong(&full_name, format!("pull request `{}`: no branch `{branch}`", file.title))
        })
    };
    let (head_sha, base_sha) = (sha(&file.head)?, sha(&base)?);
    let number = issue(
        world,
        repo,
        &IssueFile {
            number: file.number,
            title: file.title.clone(),
            body: file.body.clone(),
            author: file.author.clone(),
            labels: file.labels.clone(),
            labelled_by: None,
            assignees: Vec::new(),
            state: file.state.clone(),
            locked: false,
            fields: std::collections::BTreeMap::new(),
            projects: Vec::new(),
            blocked_by: Vec::new(),
            sub_issues: Vec::new(),
            comments: Vec::new(),
            moved_to: None,
            deleted: false,
        },
    )?;
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        issue.pull = Some(Pull {
            head: file.head.clone(),
            head_repository: HeadRepository::Here,
            base,
            head_sha,
            base_sha,
            draft: file.draft,
            ..Pull::default()
        });
        issue.events.retain(|event: &Event| event.kind != "closed");
    }
    for one in &file.reviews {
        review(world, (repo, number), one);
    }
    Ok(())
}

/// Reviews a pull request, and gives the review's id and those of the comments of its threads; `None`: there is none.
pub fn review(world: &mut World, at: (usize, u64), file: &ReviewFile) -> Option<(u64, Vec<u64>)> {
    world.user(&file.author);
    let threads: Vec<NewThread> = file.comments.iter().map(thread).collect();
    world.add_review(at, &file.author, &file.state, &file.body, &threads)
}

fn thread(file: &ThreadFile) -> NewThread {
    NewThread {
        path: file.path.clone(),
        line: file.line,
        start_line: file.start_line,
        left: file.side.as_deref() == Some("LEFT"),
        body: file.body.clone(),
    }
}

/// The fault that an entry of a scenario describes; `now` is what a rate limit's reset is counted from.
pub fn fault(file: &FaultFile, now: DateTime<Utc>) -> Result<Fault, SimError> {
    let wrong = |message: String| SimError::wrong(&format!("fault on {}", file.path), message);
    let path = Fault::pattern(&file.path).map_err(|error| wrong(error.to_string()))?;
    let mut delay = Duration::from_millis(file.delay_ms.unwrap_or(0));
    let mut headers: Vec<(String, String)> =
        file.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let kind = match file.kind {
        FaultKindFile::Delay => FaultKind::Delay,
        FaultKindFile::Status => {
            let status = file.status.ok_or_else(|| wrong("`kind = \"status\"` needs `status`".to_owned()))?;
            if !(200..600).contains(&status) {
                return Err(wrong(format!("`{status}` is no HTTP status between 200 and 599")));
            }
            FaultKind::Status { status, headers, body: file.body.clone() }
        }
        FaultKindFile::SecondaryLimit => {
            headers.push(("retry-after".to_owned(), file.retry_after.unwrap_or(1).to_string()));
            let message =
                "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
            FaultKind::Status { status: 403, headers, body: Some(json!({"message": message})) }
        }
        FaultKindFile::PrimaryLimit => {
            let reset = now.timestamp() + i64::try_from(file.retry_after.unwrap_or(1)).unwrap_or(1);
            headers.push(("x-ratelimit-remaining".to_owned(), "0".to_owned()));
            headers.push(("x-ratelimit-reset".to_owned(), reset.to_string()));
            let message = "API rate limit exceeded for user ID 1.";
            FaultKind::Status { status: 403, headers, body: Some(json!({"message": message})) }
        }
        FaultKindFile::Drop => FaultKind::Drop,
        FaultKindFile::LostReply => FaultKind::LostReply,
        FaultKindFile::Truncate => FaultKind::Truncate,
        FaultKindFile::Garbage => FaultKind::Garbage,
        FaultKindFile::Slow => {
            delay = Duration::ZERO;
            FaultKind::Slow(Duration::from_millis(file.delay_ms.unwrap_or(50)))
        }
        FaultKindFile::Hang => FaultKind::Hang,
        FaultKindFile::Double => FaultKind::Double,
    };
    Ok(Fault {
        method: file.method.clone(),
        path,
        contains: file.contains.clone(),
        skip: file.skip,
        times: file.times.unwrap_or(1),
        delay,
        kind,
        hits: 0,
    })
}
