//! The admin API under `/_sim`: look at the simulated world, and change it as other people would.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Response;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

mod remarks;

use super::call::{decode, parse_query};
use super::rest::{pulls, shapes};
use super::scenario_file::{CheckFile, CommitFile, FaultFile, FieldFile, HookFile, IssueFile, ReplyFile};
use super::shared::{Shared, plain_response};
use super::world::{FieldContent, Issue, Role, TextPlace, ThreadComment, World};
use super::{SimError, bare, seed};

type Answer = Result<Value, (u16, String)>;

const NO_ROUTE: (u16, &str) = (404, "no such admin route; GET /_sim lists them");

fn no_route() -> Answer {
    Err((NO_ROUTE.0, NO_ROUTE.1.to_owned()))
}

/// Answers one request below `/_sim`.
pub async fn answer(shared: &Arc<Shared>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.unwrap_or_default();
    let path: Vec<String> =
        parts.uri.path().split('/').filter(|part| !part.is_empty()).skip(1).map(decode).collect();
    let query = parse_query(parts.uri.query().unwrap_or_default());
    let method = parts.method.as_str().to_owned();
    let shared = Arc::clone(shared);
    let done = tokio::task::spawn_blocking(move || {
        let body = if body.is_empty() {
            json!({})
        } else {
            match serde_json::from_slice(&body) {
                Ok(body) => body,
                Err(error) => return Err((400, format!("the body is not JSON: {error}"))),
            }
        };
        at_its_time(&mut shared.world(), &method, &path, &query, &body)
    })
    .await;
    let (status, body) = match done {
        Ok(Ok(body)) => (200, body),
        Ok(Err((status, message))) => (status, json!({"error": message})),
        Err(_) => (500, json!({"error": "the simulator failed"})),
    };
    let mut text = format!("{body:#}").into_bytes();
    text.push(b'\n');
    plain_response(status, "application/json", text)
}

/// Does a request from within the program; `path` is without `/_sim` and without a query.
pub fn change(world: &mut World, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let path: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    at_its_time(world, method, &path, &[], body).map_err(|(_, message)| message)
}

/// A change happens now, or at the time that its `at` says.
fn at_its_time(
    world: &mut World,
    method: &str,
    path: &[String],
    query: &[(String, String)],
    body: &Value,
) -> Answer {
    if let Some(at) = body["at"].as_str() {
        let at = DateTime::parse_from_rfc3339(at).map_err(|error| (422, format!("`at`: {error}")))?;
        world.pretended = Some(at.with_timezone(&Utc));
    }
    let answer = dispatch(world, method, path, query, body);
    world.pretended = None;
    answer
}

/// Refuses what a route does not know.
fn known(body: &Value, known: &[&str]) -> Result<(), (u16, String)> {
    for name in body.as_object().into_iter().flat_map(|body| body.keys()) {
        if !known.contains(&name.as_str()) {
            return Err((422, format!("unknown key `{name}` (known: {})", known.join(", "))));
        }
    }
    Ok(())
}

fn dispatch(
    world: &mut World,
    method: &str,
    path: &[String],
    query: &[(String, String)],
    body: &Value,
) -> Answer {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let after: u64 =
        query.iter().find(|(name, _)| name == "after").and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    match (method, path.as_slice()) {
        ("GET", []) => Ok(json!({"routes": ROUTES})),
        ("GET", ["state"]) => Ok(state(world)),
        ("GET", ["violations"]) => Ok(json!(world.violations)),
        ("DELETE", ["violations"]) => {
            world.violations.clear();
            Ok(json!({"ok": true}))
        }
        ("GET", ["requests"]) => Ok(requests(world, after)),
        ("GET", ["model", "requests"]) => Ok(model_requests(world, after)),
        ("GET", ["model", "unused"]) => Ok(json!(world.script.unused())),
        ("POST", ["model", "replies"]) => {
            let replies = match body {
                Value::Array(replies) => replies.clone(),
                one => vec![one.clone()],
            };
            for reply in replies {
                let reply: ReplyFile = parse(&reply)?;
                world.script.push(reply).map_err(bad)?;
            }
            Ok(json!({"ok": true}))
        }
        ("DELETE", ["model", "replies"]) => {
            world.script.clear();
            Ok(json!({"ok": true}))
        }
        ("POST", ["faults"]) => {
            let file: FaultFile = parse(body)?;
            let fault = seed::fault(&file, world.now()).map_err(bad)?;
            world.faults.push(fault);
            Ok(json!({"ok": true}))
        }
        ("DELETE", ["faults"]) => {
            world.faults.clear();
            Ok(json!({"ok": true}))
        }
        ("POST", ["limits"]) => limits(world, body),
        (_, ["repos", owner, name, rest @ ..]) => {
            let repo = world
                .repository_index(owner, name)
                .ok_or_else(|| (404, format!("there is no repository {owner}/{name}")))?;
            in_repository(world, method, repo, rest, body)
        }
        _ => no_route(),
    }
}

/// The routes, as `GET /_sim` lists them.
const ROUTES: &[&str] = &[
    "GET /_sim/state",
    "GET /_sim/violations",
    "DELETE /_sim/violations",
    "GET /_sim/requests?after=SEQ",
    "GET /_sim/model/requests?after=SEQ",
    "GET /_sim/model/unused",
    "POST /_sim/model/replies {reply} or [{reply}, …]",
    "DELETE /_sim/model/replies",
    "POST /_sim/faults {fault}",
    "DELETE /_sim/faults",
    "POST /_sim/limits {per_hour?, used?, writes_per_minute?}",
    "POST /_sim/repos/O/R/issues {issue}",
    "PATCH /_sim/repos/O/R/issues/N {title?, body?, state?, locked?, lock_reason?, moved_to?, deleted?, blocked_by?, sub_issues?, draft?, base?, history?, actor?}",
    "PUT /_sim/repos/O/R/issues/N/labels/NAME {actor?}",
    "DELETE /_sim/repos/O/R/issues/N/labels/NAME {actor?}",
    "POST /_sim/repos/O/R/issues/N/comments {body, size?, count?, actor?}",
    "POST /_sim/repos/O/R/issues/N/reactions {content, actor?}",
    "PATCH /_sim/repos/O/R/comments/ID {body?, size?, minimized?, history?, actor?}",
    "DELETE /_sim/repos/O/R/comments/ID",
    "POST /_sim/repos/O/R/comments/ID/reactions {content, actor?}",
    "POST /_sim/repos/O/R/comments/ID/replies {body, size?, actor?}",
    "PUT, DELETE /_sim/repos/O/R/comments/ID/resolved {actor?}",
    "POST /_sim/repos/O/R/attachments {base64, type?}",
    "PUT /_sim/repos/O/R/issues/N/fields/NAME {value}",
    "PUT /_sim/repos/O/R/issues/N/projects/TITLE/fields/NAME {value, number?}",
    "PUT /_sim/repos/O/R/collaborators/LOGIN {role}",
    "PUT /_sim/repos/O/R/protected [patterns]",
    "POST /_sim/repos/O/R/commits {branch, from?, onto?, message?, files, executable?, remove?}",
    "DELETE /_sim/repos/O/R/branches/NAME",
    "GET /_sim/repos/O/R/files/REF/PATH",
    "POST /_sim/repos/O/R/pulls/N/merge {actor?, merge_method?}",
    "POST /_sim/repos/O/R/pulls/N/reviews {author, state, body?, comments?: [{path, line?, start_line?, side?, body}]}",
    "POST /_sim/repos/O/R/hooks {url, secret, events?}",
    "POST /_sim/repos/O/R/checks {on, name, kind?, outcome?, description?, required?, summary?, text?, annotations?, details_url?, job?}",
];

fn parse<T: serde::de::DeserializeOwned>(body: &Value) -> Result<T, (u16, String)> {
    T::deserialize(body).map_err(|error| (422, error.to_string()))
}

fn bad(error: SimError) -> (u16, String) {
    (422, error.to_string())
}

fn limits(world: &mut World, body: &Value) -> Answer {
    if let Some(per_hour) = body["per_hour"].as_u64() {
        world.limits.per_hour = per_hour;
    }
    if let Some(writes) = body["writes_per_minute"].as_u64() {
        world.limits.writes_per_minute = writes;
        world.limits.writes.clear();
    }
    if let Some(used) = body["used"].as_u64() {
        let logins: Vec<String> = world.tokens.iter().map(|token| token.login.clone()).collect();
        for login in logins {
            for resource in ["core", "graphql"] {
                world.limits.used.insert((login.clone(), resource.to_owned()), used);
            }
        }
        world.limits.window = world.now();
    }
    Ok(json!({"ok": true}))
}

fn in_repository(world: &mut World, method: &str, repo: usize, rest: &[&str], body: &Value) -> Answer {
    let owner = world.repositories[repo].owner.clone();
    let actor = body["actor"].as_str().map_or(owner, str::to_owned);
    world.user(&actor);
    match (method, rest) {
        ("POST", ["issues"]) => {
            let file: IssueFile = parse(body)?;
            let number = seed::issue(world, repo, &file).map_err(bad)?;
            Ok(json!({"number": number}))
        }
        (_, ["issues", number, rest @ ..]) => {
            let number = number
                .parse()
                .ok()
                .filter(|number| world.repositories[repo].issues.contains_key(number))
                .ok_or_else(|| (404, format!("there is no issue {number}")))?;
            on_issue(world, method, repo, number, rest, body, &actor)
        }
        ("PUT", ["collaborators", login]) => {
            let role = body["role"].as_str().unwrap_or_default();
            let role = Role::parse(role).ok_or_else(|| (422, format!("`{role}` is no role")))?;
            world.user(login);
            world.repositories[repo].collaborators.insert((*login).to_owned(), role);
            Ok(json!({"ok": true}))
        }
        ("PUT", ["protected"]) => {
            world.repositories[repo].protected = parse(body)?;
            Ok(json!({"ok": true}))
        }
        ("POST", ["commits"]) => {
            let file: CommitFile = parse(body)?;
            let found = &world.repositories[repo];
            let place = bare::log(&found.git_dir, &found.default_branch).len();
            let seed = seed::commit_seed(&file, place, &found.git_dir, &found.default_branch);
            let sha = bare::commit(&found.git_dir, &seed).map_err(|error| (422, error.to_string()))?;
            Ok(json!({"sha": sha}))
        }
        ("DELETE", ["branches", name @ ..]) => {
            let deleted = bare::delete_branch(&world.repositories[repo].git_dir, &name.join("/"));
            if deleted { Ok(json!({"ok": true})) } else { Err((404, "there is no such branch".to_owned())) }
        }
        ("GET", ["files", revision, path @ ..]) => {
            let content = bare::file(&world.repositories[repo].git_dir, revision, &path.join("/"));
            let content = content.ok_or_else(|| (404, "there is no such file".to_owned()))?;
            Ok(json!({"content": String::from_utf8_lossy(&content)}))
        }
        ("POST", ["pulls", number, "merge"]) => {
            let number = number.parse().map_err(|_| (404, "no such pull request".to_owned()))?;
            pulls::refresh(world, repo);
            let method = body["merge_method"].as_str();
            let merged = pulls::merge_now(world, (repo, number), None, method, &actor);
            let sha = merged.map_err(|reply| {
                let message = reply.body.map(|body| body["message"].to_string());
                (reply.status, message.unwrap_or_default())
            })?;
            Ok(json!({"sha": sha}))
        }
        ("POST", ["pulls", number, "reviews"]) => {
            let number = number.parse().map_err(|_| (404, "no such pull request".to_owned()))?;
            remarks::review(world, (repo, number), body)
        }
        (_, ["comments", id, rest @ ..]) => remarks::on_text(world, method, repo, (id, rest), body, &actor),
        ("POST", ["attachments"]) => remarks::attach(world, repo, body),
        ("POST", ["hooks"]) => {
            seed::hook(world, repo, &parse::<HookFile>(body)?);
            Ok(json!({"ok": true}))
        }
        ("POST", ["checks"]) => {
            let check: CheckFile = parse(body)?;
            Ok(json!({"id": seed::check(world, repo, &check)}))
        }
        _ => no_route(),
    }
}

fn on_issue(
    world: &mut World,
    method: &str,
    repo: usize,
    number: u64,
    rest: &[&str],
    body: &Value,
    actor: &str,
) -> Answer {
    let value = || -> Result<Option<FieldContent>, (u16, String)> {
        match &body["value"] {
            Value::Null => Ok(None),
            value => Ok(Some(seed::field(&parse::<FieldFile>(value)?))),
        }
    };
    match (method, rest) {
        ("PATCH", []) => edit(world, repo, number, body, actor),
        ("PUT", ["labels", name]) => Ok(json!({"changed": world.set_label(repo, number, name, actor, true)})),
        ("DELETE", ["labels", name]) => {
            Ok(json!({"changed": world.set_label(repo, number, name, actor, false)}))
        }
        ("POST", ["comments"]) => remarks::write(world, repo, number, body, actor),
        ("POST", ["reactions"]) => {
            known(body, &["content", "actor", "at"])?;
            let content = body["content"].as_str().unwrap_or_default();
            let made = world.react(repo, TextPlace::Body(number), actor, content);
            Ok(json!({"id": made.map(|(reaction, _)| reaction.id)}))
        }
        ("PUT", ["fields", name]) => {
            world.set_field(repo, number, name, value()?);
            Ok(json!({"ok": true}))
        }
        ("PUT", ["projects", title, "fields", name]) => {
            let project = body["number"].as_u64().unwrap_or(1);
            world.set_project_field(repo, number, (title, project), name, value()?);
            Ok(json!({"ok": true}))
        }
        _ => no_route(),
    }
}

fn edit(world: &mut World, repo: usize, number: u64, body: &Value, actor: &str) -> Answer {
    known(
        body,
        &[
            "title",
            "body",
            "state",
            "locked",
            "lock_reason",
            "moved_to",
            "deleted",
            "blocked_by",
            "sub_issues",
            "draft",
            "base",
            "history",
            "actor",
            "at",
        ],
    )?;
    let numbers = |name: &str| -> Result<Option<Vec<u64>>, (u16, String)> {
        if body[name].is_null() { Ok(None) } else { parse(&body[name]).map(Some) }
    };
    let (blocked_by, sub_issues) = (numbers("blocked_by")?, numbers("sub_issues")?);
    world.edit_text(repo, number, actor, body["title"].as_str(), body["body"].as_str());
    let at = world.now();
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        if let Some(locked) = body["locked"].as_bool() {
            issue.locked = locked;
            issue.lock_reason = body["lock_reason"].as_str().map(str::to_owned).filter(|_| locked);
        }
        if body["history"] == "withheld" {
            issue.edits.iter_mut().for_each(|edit| edit.body = None);
        }
        if let Some(pull) = &mut issue.pull {
            if let Some(draft) = body["draft"].as_bool() {
                pull.draft = draft;
            }
            if let Some(base) = body["base"].as_str() {
                base.clone_into(&mut pull.base);
            }
        }
        if let Some(deleted) = body["deleted"].as_bool() {
            issue.deleted = deleted;
        }
        if let Some(to) = body["moved_to"].as_str() {
            issue.moved_to = Some(to.to_owned());
        }
        if let Some(numbers) = blocked_by {
            issue.blocked_by = numbers;
        }
        if let Some(numbers) = sub_issues {
            issue.sub_issues = numbers;
        }
        issue.updated_at = at;
    }
    match body["state"].as_str() {
        None => {}
        Some(state @ ("open" | "closed")) => {
            world.set_open(repo, number, state == "open", None, actor);
        }
        Some(other) => return Err((422, format!("`{other}` is no state (open, closed)"))),
    }
    Ok(json!({"ok": true}))
}

/// Everything, as JSON.
pub fn state(world: &mut World) -> Value {
    for repo in 0..world.repositories.len() {
        pulls::refresh(world, repo);
    }
    let repositories = world.repositories.iter().map(|repo| {
        let branches: serde_json::Map<String, Value> = bare::refs(&repo.git_dir, "refs/heads/")
            .into_iter()
            .map(|(name, sha, _)| (name.trim_start_matches("refs/heads/").to_owned(), json!(sha)))
            .collect();
        json!({
            "name": repo.full_name(),
            "git_dir": repo.git_dir,
            "default_branch": repo.default_branch,
            "branches": branches,
            "labels": repo.labels.iter().map(|label| &label.name).collect::<Vec<_>>(),
            "issues": repo.issues.values().filter(|issue| issue.pull.is_none()).map(issue_state).collect::<Vec<_>>(),
            "pulls": repo.issues.values().filter(|issue| issue.pull.is_some()).map(issue_state).collect::<Vec<_>>(),
        })
    });
    json!({
        "base": world.base,
        "repositories": repositories.collect::<Vec<_>>(),
        "violations": world.violations,
        "requests": world.requests.len(),
        "model_requests": world.model_requests.len(),
        "unused_replies": world.script.unused(),
    })
}

fn issue_state(issue: &Issue) -> Value {
    let comments =
        issue.comments.iter().map(|one| json!({"id": one.id, "author": one.author, "body": one.body}));
    let events =
        issue.events.iter().map(|one| json!({"event": one.kind, "actor": one.actor, "label": one.label}));
    let mut shape = json!({
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": if issue.open { "open" } else { "closed" },
        "author": issue.author,
        "labels": issue.labels,
        "fields": issue.fields.iter().map(shapes::field_value).collect::<Vec<_>>(),
        "comments": comments.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    });
    if let Some(pull) = &issue.pull {
        shape["head"] = json!(pull.head);
        shape["base"] = json!(pull.base);
        shape["head_sha"] = json!(pull.head_sha);
        shape["draft"] = json!(pull.draft);
        shape["merged"] = json!(pull.merged_at.is_some());
        let said = |one: &ThreadComment| json!({"id": one.comment.id, "author": one.comment.author, "body": one.comment.body});
        let threads = pull.threads.iter().map(|thread| {
            let comments: Vec<Value> = thread.comments.iter().map(said).collect();
            json!({"id": thread.id, "path": thread.path, "line": thread.line,
                   "resolved": thread.resolved_by.is_some(), "comments": comments})
        });
        shape["threads"] = threads.collect();
    }
    shape
}

fn requests(world: &World, after: u64) -> Value {
    let shape = |one: &Arc<super::world::Request>| {
        let headers: serde_json::Map<String, Value> =
            one.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "seq": one.seq, "at_ms": millis(one.at), "method": one.method, "target": one.target,
            "login": one.login, "status": one.status, "counted": one.counted, "headers": headers, "body": one.body.read(),
        })
    };
    // The newest ones are asked for again and again, however long the log is.
    let from = world.requests.partition_point(|one| one.seq <= after);
    world.requests[from..].iter().map(shape).collect()
}

fn model_requests(world: &World, after: u64) -> Value {
    let shape = |one: &Arc<super::world::ModelRequest>| {
        json!({
            "seq": one.seq, "at_ms": millis(one.at), "wire": one.wire, "model": one.model,
            "stream": one.stream, "reply": one.reply, "body": one.body.read(),
        })
    };
    world.model_requests.iter().filter(|one| one.seq > after).map(shape).collect()
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
