//! The simulated REST API: the caller, the rest of its limit, and the resource that answers.

pub mod actions;
pub mod apps;
mod body;
pub mod checks;
pub mod comments;
pub mod events;
pub mod fields;
pub mod issues;
pub mod labels;
pub mod limits;
mod media;
pub mod people;
pub mod pulls;
pub mod reactions;
pub mod refs;
pub mod repositories;
pub mod review_comments;
pub mod reviews;
pub mod shapes;

use chrono::TimeDelta;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::call::{Call, Outcome, Reply};
use super::world::{TextPlace, World};
use super::{graphql, signed_link};

/// A reply with all its headers, ready to be sent, and whether it was counted.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body; empty for 204 and 304.
    pub body: Vec<u8>,
    /// Whether the request used up some of the primary limit.
    pub counted: bool,
}

/// Answers one REST or GraphQL request.
pub fn answer(world: &mut World, call: &mut Call) -> Answer {
    let resource = if call.path == ["graphql"] { "graphql" } else { "core" };
    let outcome = authenticate(world, call).and_then(|()| limits::check(world, call, resource));
    let free = call.path == ["rate_limit"] || outcome.is_err();
    let mut reply = match outcome.and_then(|()| dispatch(world, call)) {
        Ok(reply) | Err(reply) => reply,
    };
    let media = media::wanted(call);
    if let Some(body) = reply.body.as_mut().filter(|_| media != "raw" && reply.status < 300) {
        media::widen(world, call, media, body);
    }
    let mut body = reply.body.take().map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let mut counted = !free;
    if call.method == "GET" && reply.status == 200 {
        let tag = etag(call, &body);
        let known =
            call.headers.get("if-none-match").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if known.split(',').any(|part| weak(part) == weak(&tag)) {
            reply.status = 304;
            body.clear();
            counted = counted && call.token.is_none();
        }
        reply.headers.push(("etag".to_owned(), tag));
        reply.headers.push(("cache-control".to_owned(), "private, max-age=60, s-maxage=60".to_owned()));
        reply.headers.push((
            "vary".to_owned(),
            "Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, X-Requested-With"
                .to_owned(),
        ));
    }
    if counted {
        limits::count(world, call, resource);
    }
    reply.headers.extend(limits::headers(world, call, resource));
    if !body.is_empty() {
        reply.headers.push(("content-type".to_owned(), "application/json; charset=utf-8".to_owned()));
    }
    let version = call.headers.get("x-github-api-version").and_then(|value| value.to_str().ok());
    reply
        .headers
        .push(("x-github-api-version-selected".to_owned(), version.unwrap_or("2022-11-28").to_owned()));
    let media = match media {
        "raw" => "github.v3; format=json".to_owned(),
        kind => format!("github.v3; param={kind}; format=json"),
    };
    reply.headers.push(("x-github-media-type".to_owned(), media));
    Answer { status: reply.status, headers: reply.headers, body, counted }
}

fn etag(call: &Call, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(call.token.as_ref().map_or("", |token| token.login.as_str()));
    hash.update(body);
    format!("W/\"{}\"", hex::encode(hash.finalize()))
}

fn weak(tag: &str) -> &str {
    tag.trim().trim_start_matches("W/").trim_matches('"')
}

fn authenticate(world: &mut World, call: &mut Call) -> Result<(), Reply> {
    let Some(header) = call.headers.get("authorization") else { return Ok(()) };
    let header = header.to_str().unwrap_or_default().to_owned();
    let (scheme, secret) = header.split_once(' ').unwrap_or(("", header.as_str()));
    if !scheme.eq_ignore_ascii_case("bearer") && !scheme.eq_ignore_ascii_case("token") {
        return Err(Reply::error(401, "Bad credentials"));
    }
    // An App's own JWT is no token; the routes of Apps look at it themselves.
    if matches!(call.path.first().map(String::as_str), Some("app")) {
        return Ok(());
    }
    match world.token(secret.trim()) {
        Some(token) => {
            call.token = Some(token.clone());
            Ok(())
        }
        None => Err(Reply::error(401, "Bad credentials")),
    }
}

fn dispatch(world: &mut World, call: &mut Call) -> Outcome {
    if call.headers.get("user-agent").is_none() {
        world.violation(format!("{} /{}: no User-Agent header", call.method, call.path.join("/")));
        return Err(Reply::error(
            403,
            "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.",
        ));
    }
    // `/repositories/{id}/…` is what `Link` headers say; it means the same as `/repos/{owner}/{name}/…`.
    if let [first, id, rest @ ..] = call.path.as_slice()
        && first == "repositories"
    {
        let repo =
            world.repositories.iter().find(|repo| repo.id.to_string() == *id).ok_or_else(Reply::not_found)?;
        let mut path = vec!["repos".to_owned(), repo.owner.clone(), repo.name.clone()];
        path.extend(rest.iter().cloned());
        call.path = path;
    }
    let call = &*call;
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match (call.method.as_str(), path.as_slice()) {
        ("POST", ["graphql"]) => graphql::answer(world, call),
        ("GET", []) => {
            Ok(Reply::ok(json!({"repository_url": format!("{}/repos/{{owner}}/{{repo}}", call.api)})))
        }
        ("GET", ["user"]) => repositories::viewer(world, call),
        ("GET", ["users", login]) => repositories::account(world, call, login),
        ("GET", ["user-attachments", "assets", id]) => attachment(world, id),
        ("GET", ["rate_limit"]) => limits::show(world, call),
        ("GET", ["app"]) => apps::show(world, call),
        ("GET", ["app", "installations"]) => apps::installations(world, call),
        ("POST", ["app", "installations", id, "access_tokens"]) => apps::access_token(world, call, id),
        ("GET", ["repos", owner, name, "installation"]) => apps::installation_of(world, call, owner, name),
        (_, ["repos", owner, name, rest @ ..]) => {
            let repo = call.repository(world, owner, name)?;
            in_repository(world, call, repo, rest)
        }
        _ => unknown_route(world, call),
    }
}

/// A public repository's file is shown to everybody, by a signed link; a private one's has only the links in `body_html`.
fn attachment(world: &World, id: &str) -> Outcome {
    let found = world.attachments.iter().find(|one| one.id == id && one.public);
    found.ok_or_else(Reply::not_found)?;
    let until = world.now() + TimeDelta::seconds(300);
    let link = signed_link::link(world, &format!("/images/{id}"), until);
    Err(Reply { status: 302, headers: vec![("location".to_owned(), link)], body: None })
}

fn in_repository(world: &mut World, call: &Call, repo: usize, rest: &[&str]) -> Outcome {
    match (call.method.as_str(), rest) {
        ("GET", []) => repositories::show(world, call, repo),
        ("GET", ["collaborators", login, "permission"]) => repositories::permission(world, call, repo, login),
        ("GET", ["branches"]) => refs::branches(world, call, repo),
        ("GET", ["branches", name @ ..]) => refs::branch(world, call, repo, &name.join("/")),
        ("GET", ["git", "ref", name @ ..]) => refs::show(world, call, repo, &name.join("/")),
        ("GET", ["git", "matching-refs", name @ ..]) => refs::matching(world, call, repo, &name.join("/")),
        ("DELETE", ["git", "refs", name @ ..]) => refs::delete(world, call, repo, &name.join("/")),
        ("GET", ["commits", name @ .., "status"]) => checks::status(world, call, repo, &name.join("/")),
        ("GET", ["commits", name @ .., "check-runs"]) => checks::runs(world, call, repo, &name.join("/")),
        ("GET", ["check-runs", id, "annotations"]) => checks::annotations(world, call, repo, id),
        (_, ["actions", rest @ ..]) => actions::answer(world, call, repo, rest),
        ("GET", ["commits", name @ ..]) => refs::commit(world, call, repo, &name.join("/")),
        ("GET", ["labels"]) => labels::list(world, call, repo),
        ("POST", ["labels"]) => labels::create(world, call, repo),
        ("GET", ["labels", name]) => labels::show(world, call, repo, name),
        ("PATCH" | "POST", ["labels", name]) => labels::edit(world, call, repo, name),
        ("GET", ["issues"]) => issues::list(world, call, repo),
        ("POST", ["issues"]) => issues::create(world, call, repo),
        ("GET", ["issues", "comments"]) => comments::all(world, call, repo),
        (_, ["issues", "comments", id]) => comments::one(world, call, repo, id),
        (_, ["issues" | "pulls", "comments", id, "reactions", rest @ ..]) => {
            reactions::of_comment(world, call, repo, id, rest)
        }
        (_, ["issues", number, rest @ ..]) => match number.parse() {
            Ok(number) => on_issue(world, call, repo, number, rest),
            Err(_) => unknown_route(world, call),
        },
        ("GET", ["pulls"]) => pulls::list(world, call, repo),
        ("POST", ["pulls"]) => pulls::create(world, call, repo),
        ("GET", ["pulls", "comments"]) => review_comments::all(world, call, repo),
        (_, ["pulls", "comments", id]) => review_comments::one(world, call, repo, id),
        (_, ["pulls", number, rest @ ..]) => match (number.parse(), call.method.as_str(), rest) {
            (Ok(number), "GET", []) => pulls::show(world, call, repo, number),
            (Ok(number), "PATCH" | "POST", []) => pulls::edit(world, call, repo, number),
            (Ok(number), "PUT", ["merge"]) => pulls::merge(world, call, repo, number),
            (Ok(number), ..) => on_pull(world, call, repo, number, rest),
            _ => unknown_route(world, call),
        },
        _ => unknown_route(world, call),
    }
}

fn on_pull(world: &mut World, call: &Call, repo: usize, number: u64, rest: &[&str]) -> Outcome {
    match (call.method.as_str(), rest) {
        ("GET" | "POST" | "DELETE", ["requested_reviewers"]) => people::reviewers(world, call, repo, number),
        ("GET", ["reviews"]) => reviews::list(world, call, repo, number),
        ("GET", ["reviews", id]) => reviews::show(world, call, repo, number, id),
        ("GET", ["reviews", id, "comments"]) => reviews::comments(world, call, repo, number, id),
        ("GET", ["comments"]) => review_comments::list(world, call, repo, number),
        ("POST", ["comments"]) => review_comments::create(world, call, repo, number),
        ("POST", ["comments", id, "replies"]) => review_comments::reply(world, call, repo, number, id),
        _ => unknown_route(world, call),
    }
}

// As on GitHub, POST does what PATCH does where an address has no POST of its own.
fn on_issue(world: &mut World, call: &Call, repo: usize, number: u64, rest: &[&str]) -> Outcome {
    issues::visible(world, call, repo, number)?;
    match (call.method.as_str(), rest) {
        ("GET", []) => issues::show(world, call, repo, number),
        ("PATCH" | "POST", []) => issues::edit(world, call, repo, number),
        ("GET", ["comments"]) => comments::list(world, call, repo, number),
        ("POST", ["comments"]) => comments::create(world, call, repo, number),
        ("GET", ["labels"]) => labels::of_issue(world, call, repo, number),
        ("POST", ["labels"]) => labels::add(world, call, repo, number),
        ("PUT", ["labels"]) => labels::replace(world, call, repo, number),
        ("DELETE", ["labels"]) => labels::clear(world, call, repo, number),
        ("DELETE", ["labels", name]) => labels::remove(world, call, repo, number, name),
        (_, ["reactions", rest @ ..]) => reactions::answer(world, call, repo, TextPlace::Body(number), rest),
        ("POST" | "DELETE", ["assignees"]) => people::assignees(world, call, repo, number),
        ("PUT" | "DELETE", ["lock"]) => people::lock(world, call, repo, number),
        ("GET", ["events"]) => events::list(world, call, repo, number),
        ("GET", ["timeline"]) => events::timeline(world, call, repo, number),
        ("GET", ["issue-field-values"]) => fields::list(world, call, repo, number),
        ("GET", ["dependencies", "blocked_by"]) => issues::blocked_by(world, call, repo, number),
        ("GET", ["dependencies", "blocking"]) => issues::blocking(world, call, repo, number),
        ("GET", ["sub_issues"]) => issues::sub_issues(world, call, repo, number),
        ("GET", ["parent"]) => issues::parent(world, call, repo, number),
        _ => unknown_route(world, call),
    }
}

fn unknown_route(world: &mut World, call: &Call) -> Outcome {
    world.violation(format!("{} /{}: the simulator has no such route", call.method, call.path.join("/")));
    Err(Reply::not_found())
}
