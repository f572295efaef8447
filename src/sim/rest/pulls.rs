//! Pull requests, checked against the real branches of the bare repository.

use serde_json::json;

use super::body::text;
use super::issues::one_of;
use super::shapes;
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{HeadRepository, Issue, Pull, Repository, World};

/// Reads the branches again, because pushes do not pass the API.
pub fn refresh(world: &mut World, repo: usize) {
    let at = world.now();
    let Repository { issues, branches, git_dir, .. } = &mut world.repositories[repo];
    let mut heads = branches.now(git_dir);
    for issue in issues.values_mut().filter(|issue| issue.open) {
        if let Some(pull) = issue.pull.as_mut().filter(|pull| pull.head_repository == HeadRepository::Here) {
            let mut changed = false;
            for (branch, sha) in [(&pull.head, &mut pull.head_sha), (&pull.base, &mut pull.base_sha)] {
                if let Some(found) = heads.head(branch)
                    && found != sha
                {
                    found.clone_into(sha);
                    changed = true;
                }
            }
            if changed {
                issue.updated_at = at;
            }
        }
    }
}

/// `GET …/pulls`.
pub fn list(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &["state", "head", "base", "sort", "direction", "per_page", "page"])?;
    call.needs(world, &world.repositories[repo], "pull_requests", "read")?;
    refresh(world, repo);
    let repo = &world.repositories[repo];
    let state = one_of(call, "state", &["open", "closed", "all"])?;
    let sort = one_of(call, "sort", &["created", "updated", "popularity", "long-running"])?;
    let direction = one_of(call, "direction", &["desc", "asc"])?;
    let mut found: Vec<(&Issue, &Pull)> = repo
        .issues
        .values()
        .filter_map(|issue| issue.pull.as_ref().map(|pull| (issue, pull)))
        .filter(|(issue, _)| state == "all" || issue.open == (state == "open"))
        .filter(|(_, pull)| call.query("base").is_none_or(|base| pull.base == base))
        .filter(|(_, pull)| {
            // GitHub ignores a head without its owner and lists everything, which hides mistakes: the simulator finds nothing.
            call.query("head").is_none_or(|head| {
                head.split_once(':').is_some_and(|(owner, branch)| {
                    owner.eq_ignore_ascii_case(head_owner(repo, pull)) && branch == pull.head
                })
            })
        })
        .collect();
    if sort == "updated" {
        found.sort_by_key(|(issue, _)| (issue.updated_at, issue.number));
    }
    if direction == "desc" {
        found.reverse();
    }
    if let Some(head) = call.query("head")
        && !head.contains(':')
    {
        let text = format!("GET /{}: `head` must be OWNER:BRANCH, got `{head}`", call.path.join("/"));
        world.violation(text);
        return Err(Reply::invalid("PullRequest", "head", "invalid", None));
    }
    let shapes = found.into_iter().map(|(issue, pull)| shapes::pull(call, world, repo, issue, pull, false));
    call.page(Some(repo.id), shapes.collect())
}

/// Whose repository the head is, or was, in.
pub fn head_owner<'a>(repo: &'a Repository, pull: &'a Pull) -> &'a str {
    match &pull.head_repository {
        HeadRepository::Here => &repo.owner,
        HeadRepository::Fork(owner) | HeadRepository::Deleted(owner) => owner,
    }
}

/// A pull request with all that lists leave out.
pub fn whole(world: &World, call: &Call, repo: usize, number: u64) -> Result<serde_json::Value, Reply> {
    let repo = &world.repositories[repo];
    let issue = repo.issues.get(&number).ok_or_else(Reply::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(Reply::not_found)?;
    Ok(shapes::pull(call, world, repo, issue, pull, true))
}

/// `GET …/pulls/{n}`.
pub fn show(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "pull_requests", "read")?;
    refresh(world, repo);
    Ok(Reply::ok(whole(world, call, repo, number)?))
}

/// `POST …/pulls`.
pub fn create(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &[])?;
    let known = ["title", "head", "base", "body", "draft", "maintainer_can_modify", "head_repo", "issue"];
    let body = call.takes_body(world, &known)?;
    call.needs(world, &world.repositories[repo], "pull_requests", "write")?;
    let author = call.login()?.to_owned();
    let required = |name: &str| -> Result<String, Reply> {
        let value = text(&body, "PullRequest", name)?.filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| Reply::invalid("PullRequest", name, "missing_field", None))
    };
    let (title, head, base) = (required("title")?, required("head")?, required("base")?);
    let content = text(&body, "PullRequest", "body")?.map(str::to_owned);
    if body.contains_key("issue") || body.contains_key("head_repo") {
        world.violation(
            "POST pulls: the simulator does not turn issues into pull requests, nor knows forks".to_owned(),
        );
        return Err(Reply::invalid("PullRequest", "issue", "invalid", None));
    }
    let found = &world.repositories[repo];
    let owner = found.owner.clone();
    let head = match head.split_once(':') {
        Some((login, branch)) if login.eq_ignore_ascii_case(&owner) => branch.to_owned(),
        Some(_) => return Err(Reply::invalid("PullRequest", "head", "invalid", None)),
        None => head,
    };
    let missing = |field: &str| Reply::invalid("PullRequest", field, "invalid", None);
    let base_sha = bare::head(&found.git_dir, &base).ok_or_else(|| missing("base"))?;
    let head_sha = bare::head(&found.git_dir, &head).ok_or_else(|| missing("head"))?;
    let open = found.issues.values().any(|issue| {
        issue.open
            && issue.pull.as_ref().is_some_and(|pull| {
                pull.head_repository == HeadRepository::Here && pull.head == head && pull.base == base
            })
    });
    if open {
        let message = format!("A pull request already exists for {owner}:{head}.");
        return Err(custom(&message));
    }
    let (ahead, _) = bare::ahead_behind(&found.git_dir, &base_sha, &head_sha).unwrap_or_default();
    if ahead == 0 {
        return Err(custom(&format!("No commits between {base} and {head}")));
    }
    let number = world.add_issue(repo, &author, &title, content).ok_or_else(Reply::not_found)?;
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        issue.pull = Some(Pull {
            head,
            head_repository: HeadRepository::Here,
            base,
            head_sha,
            base_sha,
            draft: body.get("draft").and_then(serde_json::Value::as_bool).unwrap_or(false),
            ..Pull::default()
        });
    }
    Ok(Reply::created(whole(world, call, repo, number)?))
}

fn custom(message: &str) -> Reply {
    let mut reply = Reply::error(422, "Validation Failed");
    if let Some(body) = reply.body.as_mut() {
        body["errors"] = json!([{"resource": "PullRequest", "code": "custom", "message": message}]);
    }
    reply
}

/// `PATCH …/pulls/{n}`.
pub fn edit(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["title", "body", "state", "base", "maintainer_can_modify"])?;
    call.needs(world, &world.repositories[repo], "pull_requests", "write")?;
    let actor = call.login()?.to_owned();
    whole(world, call, repo, number)?;
    refresh(world, repo);
    let (title, content) = (text(&body, "PullRequest", "title")?, text(&body, "PullRequest", "body")?);
    let (base, state) = (text(&body, "PullRequest", "base")?, text(&body, "PullRequest", "state")?);
    if title.is_some_and(|title| title.trim().is_empty()) {
        return Err(Reply::invalid("PullRequest", "title", "missing_field", None));
    }
    let at = world.now();
    let found = &mut world.repositories[repo];
    let base_sha = match base {
        None => None,
        Some(base) => Some(
            bare::head(&found.git_dir, base)
                .ok_or_else(|| Reply::invalid("PullRequest", "base", "invalid", None))?,
        ),
    };
    if let Some(issue) = found.issues.get_mut(&number) {
        if let Some(title) = title {
            issue.title = title.to_owned();
        }
        if body.contains_key("body") {
            issue.body = content.map(str::to_owned);
        }
        if let (Some(pull), Some(base), Some(sha)) = (&mut issue.pull, base, base_sha) {
            pull.base = base.to_owned();
            pull.base_sha = sha;
        }
        issue.updated_at = at;
    }
    match state {
        None => {}
        Some("open")
            if world.repositories[repo].issues[&number]
                .pull
                .as_ref()
                .is_some_and(|p| p.merged_at.is_some()) =>
        {
            return Err(custom("state cannot be changed. The pull request is merged."));
        }
        Some(state @ ("open" | "closed")) => {
            world.set_open(repo, number, state == "open", None, &actor);
        }
        Some(_) => return Err(Reply::invalid("PullRequest", "state", "invalid", None)),
    }
    Ok(Reply::ok(whole(world, call, repo, number)?))
}

/// `PUT …/pulls/{n}/merge`: a commit on the base branch; closes what the body says it closes.
pub fn merge(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["commit_title", "commit_message", "sha", "merge_method"])?;
    call.needs(world, &world.repositories[repo], "contents", "write")?;
    let actor = call.login()?.to_owned();
    refresh(world, repo);
    let wanted = text(&body, "PullRequest", "sha")?.map(str::to_owned);
    let method = text(&body, "PullRequest", "merge_method")?.map(str::to_owned);
    let sha = merge_now(world, (repo, number), wanted.as_deref(), method.as_deref(), &actor)?;
    Ok(Reply::ok(json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"})))
}

/// Merges a pull request as `actor`; used by the API and by people through the admin API.
pub fn merge_now(
    world: &mut World,
    (repo, number): (usize, u64),
    wanted: Option<&str>,
    method: Option<&str>,
    actor: &str,
) -> Result<String, Reply> {
    let at = world.now();
    let squash = match method {
        None | Some("merge") => false,
        Some("squash") => true,
        Some(other) => {
            let message = format!("This repository does not allow merging by \"{other}\"");
            return Err(Reply::error(405, &message));
        }
    };
    let found = &world.repositories[repo];
    let issue = found.issues.get(&number).ok_or_else(Reply::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(Reply::not_found)?;
    if !issue.open || pull.draft {
        return Err(Reply::error(405, "Pull Request is not mergeable"));
    }
    if wanted.is_some_and(|wanted| wanted != pull.head_sha) {
        return Err(Reply::error(409, "Head branch was modified. Review and try the merge again."));
    }
    let message = format!("Merge pull request #{number} from {}/{}", found.owner, pull.head);
    let sha = bare::merge(&found.git_dir, (&pull.base, &pull.head), squash, &message, at.timestamp())
        .map_err(|_| Reply::error(405, "Pull Request is not mergeable"))?;
    // GitHub keeps it for each pull request, also where the branch goes.
    bare::keep(&found.git_dir, &format!("refs/pull/{number}/head"), &pull.head_sha)
        .map_err(|error| Reply::error(500, &error.to_string()))?;
    let closes = if pull.base == found.default_branch { closing(issue.body.as_deref()) } else { Vec::new() };
    if let Some(pull) = world.repositories[repo].issues.get_mut(&number).and_then(|issue| issue.pull.as_mut())
    {
        pull.merged_at = Some(at);
        pull.merged_by = Some(actor.to_owned());
        pull.merge_commit = Some(sha.clone());
    }
    world.set_open(repo, number, false, None, actor);
    for other in closes {
        world.set_open(repo, other, false, Some("completed"), actor);
    }
    Ok(sha)
}

/// The issue numbers after GitHub's closing keywords.
fn closing(body: Option<&str>) -> Vec<u64> {
    let Ok(pattern) = regex::Regex::new(r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+#(\d+)") else {
        return Vec::new();
    };
    pattern.captures_iter(body.unwrap_or_default()).filter_map(|found| found[1].parse().ok()).collect()
}
