//! Accounts, repositories and who may do what in them.

use serde_json::json;

use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::World;

/// `GET /user`.
pub fn viewer(world: &mut World, call: &Call) -> Outcome {
    call.takes_query(world, &[])?;
    let login = call.login()?.to_owned();
    if call.token.as_ref().is_some_and(|token| token.installation.is_some()) {
        return Err(Reply::error(403, "Resource not accessible by integration"));
    }
    account(world, call, &login)
}

/// `GET /users/{login}`.
pub fn account(world: &mut World, call: &Call, login: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let user = world.find_user(login).ok_or_else(Reply::not_found)?;
    let mut shape = shapes::user(call, user);
    shape["name"] = json!(user.name);
    for unset in ["bio", "blog", "company", "email", "hireable", "location"] {
        shape[unset] = json!(null);
    }
    for none in ["followers", "following", "public_gists", "public_repos"] {
        shape[none] = json!(0);
    }
    for at in ["created_at", "updated_at"] {
        shape[at] = json!(shapes::time(world.now()));
    }
    let mut reply = Reply::ok(shape);
    reply.headers.push(("x-oauth-scopes".to_owned(), "repo".to_owned()));
    Ok(reply)
}

/// `GET /repos/{o}/{r}`.
pub fn show(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &[])?;
    let mut shape = shapes::repository(call, world, &world.repositories[repo]);
    for none in ["network_count", "subscribers_count"] {
        shape[none] = json!(0);
    }
    Ok(Reply::ok(shape))
}

/// `GET …/collaborators/{login}/permission`.
pub fn permission(world: &mut World, call: &Call, repo: usize, login: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "metadata", "read")?;
    call.login()?;
    let user = world.find_user(login).ok_or_else(|| Reply::error(404, &format!("{login} is not a user")))?;
    let role = world.role(&user.login, repo);
    let mut account = shapes::user(call, user);
    account["role_name"] = json!(role.name());
    account["permissions"] = shapes::permissions(role);
    Ok(Reply::ok(json!({ "permission": role.permission(), "role_name": role.name(), "user": account })))
}
