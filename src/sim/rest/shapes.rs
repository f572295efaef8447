//! The JSON shapes of GitHub's REST resources.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::domain::percent::percent_encoded;
use crate::sim::bare;
use crate::sim::call::Call;
use crate::sim::world::{
    Comment, Event, FieldContent, FieldValue, HeadRepository, Issue, Label, Pull, REACTIONS, Reaction,
    Repository, Role, User, World,
};

/// A time as GitHub writes it.
pub fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An account.
pub fn user(call: &Call, user: &User) -> Value {
    let login = &user.login;
    let url = format!("{}/users/{}", call.api, percent_encoded(login));
    json!({
        "login": login,
        "id": user.id,
        "node_id": format!("U_{}", user.id),
        "avatar_url": format!("{}/avatars/{}", call.html, user.id),
        "gravatar_id": "",
        "url": url,
        "html_url": format!("{}/{}", call.html, percent_encoded(login)),
        "followers_url": format!("{url}/followers"),
        "following_url": format!("{url}/following{{/other_user}}"),
        "gists_url": format!("{url}/gists{{/gist_id}}"),
        "starred_url": format!("{url}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{url}/subscriptions"),
        "organizations_url": format!("{url}/orgs"),
        "repos_url": format!("{url}/repos"),
        "events_url": format!("{url}/events{{/privacy}}"),
        "received_events_url": format!("{url}/received_events"),
        "type": user.kind,
        "user_view_type": "public",
        "site_admin": false,
    })
}

/// An account by login; one that is not known is GitHub's ghost.
pub fn user_named(call: &Call, world: &World, login: &str) -> Value {
    let ghost = User { id: 10137, login: "ghost".to_owned(), name: None, kind: "User".to_owned() };
    user(call, world.find_user(login).unwrap_or(&ghost))
}

/// Who did something; an empty login is an account that is gone, which GitHub gives as `null`.
pub fn person(call: &Call, world: &World, login: &str) -> Value {
    if login.is_empty() { Value::Null } else { user_named(call, world, login) }
}

/// The API URL of a repository.
pub fn repository_url(call: &Call, repo: &Repository) -> String {
    format!("{}/repos/{}", call.api, repo.full_name())
}

/// What hangs below the API URL of a repository.
const REPOSITORY_URLS: [(&str, &str); 36] = [
    ("archive", "/{archive_format}{/ref}"),
    ("assignees", "/assignees{/user}"),
    ("blobs", "/git/blobs{/sha}"),
    ("branches", "/branches{/branch}"),
    ("collaborators", "/collaborators{/collaborator}"),
    ("comments", "/comments{/number}"),
    ("commits", "/commits{/sha}"),
    ("compare", "/compare/{base}...{head}"),
    ("contents", "/contents/{+path}"),
    ("contributors", "/contributors"),
    ("deployments", "/deployments"),
    ("downloads", "/downloads"),
    ("events", "/events"),
    ("forks", "/forks"),
    ("git_commits", "/git/commits{/sha}"),
    ("git_refs", "/git/refs{/sha}"),
    ("git_tags", "/git/tags{/sha}"),
    ("hooks", "/hooks"),
    ("issue_comment", "/issues/comments{/number}"),
    ("issue_events", "/issues/events{/number}"),
    ("issues", "/issues{/number}"),
    ("keys", "/keys{/key_id}"),
    ("labels", "/labels{/name}"),
    ("languages", "/languages"),
    ("merges", "/merges"),
    ("milestones", "/milestones{/number}"),
    ("notifications", "/notifications{?since,all,participating}"),
    ("pulls", "/pulls{/number}"),
    ("releases", "/releases{/id}"),
    ("stargazers", "/stargazers"),
    ("statuses", "/statuses/{sha}"),
    ("subscribers", "/subscribers"),
    ("subscription", "/subscription"),
    ("tags", "/tags"),
    ("teams", "/teams"),
    ("trees", "/git/trees{/sha}"),
];

/// A repository.
pub fn repository(call: &Call, world: &World, repo: &Repository) -> Value {
    let url = repository_url(call, repo);
    let html = format!("{}/{}", call.html, repo.full_name());
    let remote = format!("{}/git/{}.git", world.base, repo.full_name());
    let role = call.token.as_ref().map_or(Role::None, |token| {
        if token.installation.is_some() { Role::Write } else { world.role(&token.login, repo) }
    });
    let open = repo.issues.values().filter(|issue| issue.open && !issue.deleted).count();
    let mut shape = json!({
        "id": repo.id,
        "node_id": format!("R_{}", repo.id),
        "name": repo.name,
        "full_name": repo.full_name(),
        "private": repo.private,
        "owner": user_named(call, world, &repo.owner),
        "html_url": html,
        "description": null,
        "fork": false,
        "url": url,
        "clone_url": remote,
        "git_url": remote,
        "ssh_url": remote,
        "svn_url": html,
        "mirror_url": null,
        "license": null,
    });
    for (name, rest) in REPOSITORY_URLS {
        shape[format!("{name}_url")] = json!(format!("{url}{rest}"));
    }
    let rest = json!({
        "homepage": null,
        "language": null,
        "forks_count": 0, "stargazers_count": 0, "watchers_count": 0, "size": 1,
        "forks": 0, "watchers": 0,
        "open_issues_count": open,
        "open_issues": open,
        "default_branch": repo.default_branch,
        "topics": [],
        "has_issues": true, "has_projects": true, "has_wiki": false, "has_pages": false,
        "has_downloads": false, "has_discussions": false,
        "archived": repo.archived,
        "disabled": false,
        "visibility": if repo.private { "private" } else { "public" },
        "created_at": time(repo.created_at),
        "updated_at": time(repo.created_at),
        "pushed_at": time(repo.created_at),
        "permissions": permissions(role),
        "allow_squash_merge": true, "allow_merge_commit": true, "allow_rebase_merge": false,
        "delete_branch_on_merge": false,
    });
    extend(&mut shape, rest);
    shape
}

/// What a role may do.
pub fn permissions(role: Role) -> Value {
    json!({
        "admin": role >= Role::Admin,
        "maintain": role >= Role::Maintain,
        "push": role >= Role::Write,
        "triage": role >= Role::Triage,
        "pull": role >= Role::Read,
    })
}

fn extend(shape: &mut Value, more: Value) {
    if let (Some(shape), Value::Object(more)) = (shape.as_object_mut(), more) {
        shape.extend(more);
    }
}

/// A label.
pub fn label(call: &Call, repo: &Repository, label: &Label) -> Value {
    json!({
        "id": label.id,
        "node_id": format!("LA_{}", label.id),
        "url": format!("{}/labels/{}", repository_url(call, repo), percent_encoded(&label.name)),
        "name": label.name,
        "color": label.color,
        "default": false,
        "description": label.description,
    })
}

/// How an author stands to the repository.
pub fn association(repo: &Repository, login: &str) -> &'static str {
    if repo.owner.eq_ignore_ascii_case(login) {
        "OWNER"
    } else if repo.collaborators.keys().any(|name| name.eq_ignore_ascii_case(login)) {
        "COLLABORATOR"
    } else if repo.issues.values().any(|issue| {
        issue.author == login && issue.pull.as_ref().is_some_and(|pull| pull.merged_at.is_some())
    }) {
        "CONTRIBUTOR"
    } else {
        "NONE"
    }
}

/// A value of an issue field.
pub fn field_value(field: &FieldValue) -> Value {
    let (kind, value) = match &field.value {
        FieldContent::Text(text) => ("text", json!(text)),
        FieldContent::SingleSelect(name) => ("single_select", json!(name)),
        FieldContent::Number(number) => ("number", json!(number)),
        FieldContent::Date(date) => ("date", json!(date)),
    };
    let mut shape = json!({
        "issue_field_id": field.id,
        "issue_field_name": field.name,
        "node_id": format!("IFV_{}", field.id),
        "data_type": kind,
        "value": value,
    });
    if let FieldContent::SingleSelect(name) = &field.value {
        shape["single_select_option"] = json!({"id": option_id(name), "name": name, "color": "gray"});
    }
    shape
}

/// A stable id for an option that scenarios know only by name.
pub fn option_id(name: &str) -> u64 {
    name.bytes().fold(7, |sum: u64, byte| (sum * 31 + u64::from(byte)) % 1_000_003)
}

/// An issue, or a pull request in its issue form.
pub fn issue(call: &Call, world: &World, repo: &Repository, issue: &Issue) -> Value {
    let url = format!("{}/issues/{}", repository_url(call, repo), issue.number);
    let html = issue_html(call, repo, issue);
    let labels: Vec<Value> = issue
        .labels
        .iter()
        .filter_map(|name| repo.label(name))
        .map(|found| label(call, repo, found))
        .collect();
    let assignees: Vec<Value> = issue.assignees.iter().map(|login| user_named(call, world, login)).collect();
    let is_open = |number: &u64| repo.issues.get(number).is_some_and(|other| other.open);
    let open_blockers = issue.blocked_by.iter().filter(|number| is_open(number)).count();
    let blocking: Vec<&Issue> =
        repo.issues.values().filter(|other| other.blocked_by.contains(&issue.number)).collect();
    let finished = issue.sub_issues.iter().filter(|number| !is_open(number)).count();
    let parent = repo.issues.values().find(|other| other.sub_issues.contains(&issue.number));
    let mut shape = json!({
        "url": url,
        "repository_url": repository_url(call, repo),
        "labels_url": format!("{url}/labels{{/name}}"),
        "comments_url": format!("{url}/comments"),
        "events_url": format!("{url}/events"),
        "html_url": html,
        "id": issue.id,
        "node_id": if issue.pull.is_some() { format!("PR_{}", issue.id) } else { format!("I_{}", issue.id) },
        "number": issue.number,
        "title": issue.title,
        "user": user_named(call, world, &issue.author),
        "labels": labels,
        "state": if issue.open { "open" } else { "closed" },
        "locked": issue.locked,
        "assignee": assignees.first(),
        "assignees": assignees,
        "milestone": null,
        "comments": issue.comments.len(),
        "created_at": time(issue.created_at),
        "updated_at": time(issue.updated_at),
        "closed_at": issue.closed_at.map(time),
        "author_association": association(repo, &issue.author),
        "type": null,
        "active_lock_reason": issue.lock_reason,
        "sub_issues_summary": {
            "total": issue.sub_issues.len(),
            "completed": finished,
            "percent_completed": (finished * 100).checked_div(issue.sub_issues.len()).unwrap_or(0),
        },
        "issue_dependencies_summary": {
            "blocked_by": open_blockers,
            "total_blocked_by": issue.blocked_by.len(),
            "blocking": blocking.iter().filter(|other| other.open).count(),
            "total_blocking": blocking.len(),
        },
        "issue_field_values": issue.fields.iter().map(field_value).collect::<Vec<_>>(),
        "body": issue.body,
        "closed_by": issue.closed_by.as_ref().map(|login| user_named(call, world, login)),
        "reactions": reactions(&url, &issue.reactions),
        "timeline_url": format!("{url}/timeline"),
        "performed_via_github_app": null,
        "state_reason": issue.state_reason,
    });
    if let Some(parent) = parent {
        shape["parent_issue_url"] = json!(format!("{}/issues/{}", repository_url(call, repo), parent.number));
    }
    if let Some(pull) = &issue.pull {
        shape["draft"] = json!(pull.draft);
        shape["pull_request"] = json!({
            "url": format!("{}/pulls/{}", repository_url(call, repo), issue.number),
            "html_url": html,
            "diff_url": format!("{html}.diff"),
            "patch_url": format!("{html}.patch"),
            "merged_at": pull.merged_at.map(time),
        });
    }
    shape
}

/// The address of an issue or pull request for people.
pub fn issue_html(call: &Call, repo: &Repository, issue: &Issue) -> String {
    let kind = if issue.pull.is_some() { "pull" } else { "issues" };
    format!("{}/{}/{kind}/{}", call.html, repo.full_name(), issue.number)
}

/// The sum of reactions that stands in a text's shape.
pub fn reactions(url: &str, found: &[Reaction]) -> Value {
    let mut shape = json!({"url": format!("{url}/reactions"), "total_count": found.len()});
    for content in REACTIONS {
        shape[content] = json!(found.iter().filter(|one| one.content == content).count());
    }
    shape
}

/// A comment of an issue.
pub fn comment(call: &Call, world: &World, repo: &Repository, of: &Issue, comment: &Comment) -> Value {
    let url = format!("{}/issues/comments/{}", repository_url(call, repo), comment.id);
    json!({
        "url": url,
        "html_url": format!("{}#issuecomment-{}", issue_html(call, repo, of), comment.id),
        "issue_url": format!("{}/issues/{}", repository_url(call, repo), of.number),
        "id": comment.id,
        "node_id": format!("IC_{}", comment.id),
        "user": person(call, world, &comment.author),
        "created_at": time(comment.created_at),
        "updated_at": time(comment.updated_at),
        "body": comment.body,
        "author_association": association(repo, &comment.author),
        "reactions": reactions(&url, &comment.reactions),
        "performed_via_github_app": null,
    })
}

/// Something that happened to an issue.
pub fn event(call: &Call, world: &World, repo: &Repository, event: &Event) -> Value {
    let mut shape = json!({
        "id": event.id,
        "node_id": format!("EV_{}", event.id),
        "url": format!("{}/issues/events/{}", repository_url(call, repo), event.id),
        "actor": person(call, world, &event.actor),
        "event": event.kind,
        "commit_id": null,
        "commit_url": null,
        "created_at": time(event.at),
        "performed_via_github_app": null,
    });
    if let Some((from, to)) = &event.rename {
        shape["rename"] = json!({"from": from, "to": to});
    }
    if let Some(name) = &event.label {
        let color = repo.label(name).map_or("ededed", |label| label.color.as_str());
        shape["label"] = json!({"name": name, "color": color});
    }
    shape
}

/// A pull request; `whole` adds what lists leave out.
pub fn pull(call: &Call, world: &World, repo: &Repository, of: &Issue, pull: &Pull, whole: bool) -> Value {
    let api = repository_url(call, repo);
    let url = format!("{api}/pulls/{}", of.number);
    let html = issue_html(call, repo, of);
    let issue_url = format!("{api}/issues/{}", of.number);
    let as_issue = issue(call, world, repo, of);
    let side = |branch: &str, sha: &str| {
        json!({
            "label": format!("{}:{branch}", repo.owner),
            "ref": branch,
            "sha": sha,
            "user": user_named(call, world, &repo.owner),
            "repo": repository(call, world, repo),
        })
    };
    let mut head = side(&pull.head, &pull.head_sha);
    if let HeadRepository::Fork(owner) | HeadRepository::Deleted(owner) = &pull.head_repository {
        head["label"] = json!(format!("{owner}:{}", pull.head));
        head["user"] = user_named(call, world, owner);
        head["repo"] = match &pull.head_repository {
            HeadRepository::Fork(_) => {
                let mut fork = repository(call, world, repo);
                fork["full_name"] = json!(format!("{owner}/{}", repo.name));
                fork["owner"] = head["user"].clone();
                fork["fork"] = json!(true);
                fork
            }
            _ => Value::Null,
        };
    }
    let links = json!({
        "self": {"href": url}, "html": {"href": html}, "issue": {"href": issue_url},
        "comments": {"href": format!("{issue_url}/comments")},
        "review_comments": {"href": format!("{url}/comments")},
        "review_comment": {"href": format!("{api}/pulls/comments{{/number}}")},
        "commits": {"href": format!("{url}/commits")},
        "statuses": {"href": format!("{api}/statuses/{}", pull.head_sha)},
    });
    let reviewers = pull.requested_reviewers.iter().map(|login| user_named(call, world, login));
    let mut shape = json!({
        "url": url,
        "id": of.id,
        "node_id": format!("PR_{}", of.id),
        "html_url": html,
        "diff_url": format!("{html}.diff"),
        "patch_url": format!("{html}.patch"),
        "issue_url": issue_url,
        "commits_url": format!("{url}/commits"),
        "review_comments_url": format!("{url}/comments"),
        "review_comment_url": format!("{api}/pulls/comments{{/number}}"),
        "comments_url": format!("{issue_url}/comments"),
        "statuses_url": format!("{api}/statuses/{}", pull.head_sha),
        "number": of.number,
        "state": if of.open { "open" } else { "closed" },
        "locked": of.locked,
        "title": of.title,
        "user": as_issue["user"],
        "body": of.body,
        "labels": as_issue["labels"],
        "milestone": null,
        "active_lock_reason": of.lock_reason,
        "created_at": time(of.created_at),
        "updated_at": time(of.updated_at),
        "closed_at": of.closed_at.map(time),
        "merged_at": pull.merged_at.map(time),
        "merge_commit_sha": pull.merge_commit,
        "assignee": as_issue["assignee"],
        "assignees": as_issue["assignees"],
        "requested_reviewers": reviewers.collect::<Vec<_>>(),
        "requested_teams": [],
        "head": head,
        "base": side(&pull.base, &pull.base_sha),
        "_links": links,
        "author_association": as_issue["author_association"],
        "auto_merge": null,
        "draft": pull.draft,
    });
    if whole {
        let (added, removed, files) =
            bare::diff_stat(&repo.git_dir, &pull.base_sha, &pull.head_sha).unwrap_or_default();
        let (ahead, _) =
            bare::ahead_behind(&repo.git_dir, &pull.base_sha, &pull.head_sha).unwrap_or_default();
        let conflicts =
            of.open && bare::conflict(&repo.git_dir, &pull.base_sha, &pull.head_sha) == Some(true);
        let extra = json!({
            "merged": pull.merged_at.is_some(),
            "mergeable": if of.open { json!(!conflicts) } else { Value::Null },
            "rebaseable": of.open && !conflicts,
            "mergeable_state": if conflicts { "dirty" } else if pull.draft { "draft" } else { "clean" },
            "merged_by": pull.merged_by.as_ref().map(|login| user_named(call, world, login)),
            "comments": of.comments.len(),
            "review_comments": pull.threads.iter().map(|thread| thread.comments.len()).sum::<usize>(),
            "maintainer_can_modify": false,
            "commits": ahead,
            "additions": added,
            "deletions": removed,
            "changed_files": files,
        });
        extend(&mut shape, extra);
    }
    shape
}
