//! Branches, refs and commits, read from the bare repository.

use serde_json::{Value, json};

use super::shapes::{repository_url, time, user};
use crate::domain::percent::percent_encoded;
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Repository, World};

fn protected(repo: &Repository, branch: &str) -> bool {
    repo.protected
        .iter()
        .any(|pattern| globset::Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(branch)))
}

/// `GET …/branches`.
pub fn branches(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &["protected", "per_page", "page"])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "read")?;
    let api = repository_url(call, repo);
    let found = bare::refs(&repo.git_dir, "refs/heads/").into_iter().filter_map(|(name, sha, _)| {
        let name = name.strip_prefix("refs/heads/")?.to_owned();
        let guarded = protected(repo, &name);
        if call.query("protected").is_some_and(|wanted| (wanted == "true") != guarded) {
            return None;
        }
        let commit = json!({"sha": sha, "url": format!("{api}/commits/{sha}")});
        Some(json!({"name": name, "commit": commit, "protected": guarded}))
    });
    call.page(Some(repo.id), found.collect())
}

/// `GET …/branches/{branch}`.
pub fn branch(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "read")?;
    let sha = bare::head(&repo.git_dir, name).ok_or_else(|| Reply::error(404, "Branch not found"))?;
    let api = repository_url(call, repo);
    Ok(Reply::ok(json!({
        "name": name,
        "commit": commit_shape(call, (world, repo), &sha).ok_or_else(Reply::not_found)?,
        "_links": {
            "self": format!("{api}/branches/{}", percent_encoded(name)),
            "html": format!("{}/{}/tree/{name}", call.html, repo.full_name()),
        },
        "protected": protected(repo, name),
        "protection": {"enabled": protected(repo, name)},
        "protection_url": format!("{api}/branches/{}/protection", percent_encoded(name)),
    })))
}

fn ref_shape(call: &Call, repo: &Repository, (name, sha, kind): (String, String, &str)) -> Value {
    let api = repository_url(call, repo);
    json!({
        "ref": name,
        "node_id": format!("REF_{}", percent_encoded(&name)),
        "url": format!("{api}/git/{name}"),
        "object": {"sha": sha, "type": kind, "url": format!("{api}/git/{kind}s/{sha}")},
    })
}

/// `GET …/git/ref/{ref}`: exactly that ref.
pub fn show(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "read")?;
    let full = format!("refs/{name}");
    let found = bare::refs(&repo.git_dir, &full).into_iter().find(|(name, ..)| *name == full);
    Ok(Reply::ok(ref_shape(call, repo, found.ok_or_else(Reply::not_found)?)))
}

/// `GET …/git/matching-refs/{prefix}`: every ref that begins so.
pub fn matching(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "read")?;
    let found = bare::refs(&repo.git_dir, &format!("refs/{name}"));
    call.page(Some(repo.id), found.into_iter().map(|one| ref_shape(call, repo, one)).collect())
}

/// `DELETE …/git/refs/{ref}`.
pub fn delete(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "write")?;
    let branch = name.strip_prefix("heads/").unwrap_or_default();
    if protected(repo, branch) || branch == repo.default_branch {
        return Err(Reply::error(422, "Cannot delete this branch"));
    }
    if !bare::delete_branch(&repo.git_dir, branch) {
        return Err(Reply::error(422, "Reference does not exist"));
    }
    Ok(Reply::no_content())
}

/// `GET …/commits/{ref}`.
pub fn commit(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "contents", "read")?;
    let missing = || Reply::error(422, &format!("No commit found for SHA: {name}"));
    let sha = bare::resolve(&repo.git_dir, name).ok_or_else(missing)?;
    Ok(Reply::ok(commit_shape(call, (world, repo), &sha).ok_or_else(missing)?))
}

fn commit_shape(call: &Call, (world, repo): (&World, &Repository), sha: &str) -> Option<Value> {
    let facts = bare::commit_facts(&repo.git_dir, sha)?;
    let api = repository_url(call, repo);
    let who = json!({
        "name": facts.name,
        "email": facts.mail,
        "date": chrono::DateTime::from_timestamp(facts.at, 0).map(time),
    });
    // GitHub knows people by the addresses that it gives them.
    let local = facts.mail.strip_suffix("@users.noreply.github.com");
    let known = local.and_then(|local| world.find_user(local.rsplit('+').next()?)).map(|one| user(call, one));
    let link = |sha: &String| json!({"sha": sha, "url": format!("{api}/commits/{sha}")});
    Some(json!({
        "sha": sha,
        "node_id": format!("C_{sha}"),
        "url": format!("{api}/commits/{sha}"),
        "html_url": format!("{}/{}/commit/{sha}", call.html, repo.full_name()),
        "comments_url": format!("{api}/commits/{sha}/comments"),
        "commit": {
            "url": format!("{api}/git/commits/{sha}"),
            "author": who,
            "committer": who,
            "message": facts.message,
            "tree": {"sha": facts.tree, "url": format!("{api}/git/trees/{}", facts.tree)},
            "comment_count": 0,
        },
        "author": known,
        "committer": known,
        "parents": facts.parents.iter().map(link).collect::<Vec<_>>(),
    }))
}
