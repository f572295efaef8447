//! Rate limits: what is left, the headers that say so, and the refusals.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;

use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::World;

fn key(call: &Call, resource: &str) -> (String, String) {
    (call.token.as_ref().map_or_else(String::new, |token| token.login.clone()), resource.to_owned())
}

/// What an hour allows; callers without a token have 60.
fn allowed(world: &World, call: &Call) -> u64 {
    if call.token.is_some() { world.limits.per_hour } else { world.limits.per_hour.min(60) }
}

fn used(world: &World, call: &Call, resource: &str) -> u64 {
    world.limits.used.get(&key(call, resource)).copied().unwrap_or(0)
}

/// Refuses a request over the primary or the secondary limit.
pub fn check(world: &mut World, call: &Call, resource: &str) -> Result<(), Reply> {
    let at = world.now();
    if at >= world.limits.window + TimeDelta::hours(1) {
        world.limits.window = at;
        world.limits.used.clear();
    }
    if call.path == ["rate_limit"] {
        return Ok(());
    }
    if used(world, call, resource) >= allowed(world, call) {
        if resource == "graphql" {
            // GraphQL says so with status 200.
            let message = "API rate limit already exceeded for this user.";
            return Err(Reply::ok(json!({"errors": [{"type": "RATE_LIMITED", "message": message}]})));
        }
        let who = call.token.as_ref().map_or("your address", |token| token.login.as_str());
        return Err(Reply::error(403, &format!("API rate limit exceeded for {who}.")));
    }
    let most = world.limits.writes_per_minute;
    if most > 0 && call.method != "GET" && resource == "core" {
        let minute = Duration::from_secs(60);
        let at = world.watch.elapsed();
        world.limits.writes.retain(|one| at.saturating_sub(*one) < minute);
        if world.limits.writes.len() as u64 >= most {
            let wait = world
                .limits
                .writes
                .first()
                .map_or(minute, |first| minute.saturating_sub(at.saturating_sub(*first)));
            return Err(secondary(wait.as_secs().max(1)));
        }
        world.limits.writes.push(at);
    }
    Ok(())
}

/// The refusal of the secondary limit.
pub fn secondary(retry_after: u64) -> Reply {
    let mut reply = Reply::error(
        403,
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    );
    reply.headers.push(("retry-after".to_owned(), retry_after.to_string()));
    reply
}

/// Counts one request.
pub fn count(world: &mut World, call: &Call, resource: &str) {
    *world.limits.used.entry(key(call, resource)).or_default() += 1;
}

/// The headers every reply carries.
pub fn headers(world: &World, call: &Call, resource: &str) -> Vec<(String, String)> {
    let (allowed, used) = (allowed(world, call), used(world, call, resource));
    let reset = (world.limits.window + TimeDelta::hours(1)).timestamp();
    [
        ("x-ratelimit-limit", allowed.to_string()),
        ("x-ratelimit-remaining", allowed.saturating_sub(used).to_string()),
        ("x-ratelimit-used", used.to_string()),
        ("x-ratelimit-reset", reset.to_string()),
        ("x-ratelimit-resource", resource.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// `GET /rate_limit`.
pub fn show(world: &mut World, call: &Call) -> Outcome {
    call.takes_query(world, &[])?;
    let reset = (world.limits.window + TimeDelta::hours(1)).timestamp();
    let one = |resource: &str| {
        let (allowed, used) = (allowed(world, call), used(world, call, resource));
        json!({"limit": allowed, "used": used, "remaining": allowed.saturating_sub(used), "reset": reset})
    };
    Ok(Reply::ok(json!({
        "resources": {"core": one("core"), "graphql": one("graphql"), "search": one("search")},
        "rate": one("core"),
    })))
}
