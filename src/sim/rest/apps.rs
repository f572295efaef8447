//! GitHub Apps: their own JWT, their installation, and the tokens they mint.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::TimeDelta;
use serde_json::{Value, json};

use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{App, Token, World};

/// The App that signed the request's JWT. Form, issuer and times are checked; the signature is not, because
/// scenarios hold no keys.
fn caller(world: &World, call: &Call) -> Result<App, Reply> {
    let bad = |message: &str| Reply::error(401, message);
    let header = call.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let jwt = header.split_once(' ').map(|(_, jwt)| jwt.trim()).unwrap_or_default();
    let parts: Vec<&str> = jwt.split('.').collect();
    let [head, claims, signature] = parts.as_slice() else {
        return Err(bad("A JSON web token could not be decoded"));
    };
    let decode =
        |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
    let (Some(head), Some(claims)) = (decode(head), decode(claims)) else {
        return Err(bad("A JSON web token could not be decoded"));
    };
    if head["alg"] != "RS256" || signature.is_empty() {
        return Err(bad("A JSON web token could not be decoded"));
    }
    let at = world.now().timestamp();
    let (issued, expires) = (claims["iat"].as_i64().unwrap_or(at), claims["exp"].as_i64().unwrap_or(0));
    if expires <= at {
        return Err(bad(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        ));
    }
    if expires - at > 600 {
        return Err(bad("'Expiration time' claim ('exp') is too far in the future"));
    }
    if issued > at + 60 {
        return Err(bad(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ));
    }
    let issuer =
        claims["iss"].as_str().map(str::to_owned).or_else(|| claims["iss"].as_u64().map(|id| id.to_string()));
    let found = world.apps.iter().find(|app| Some(app.id.to_string()) == issuer);
    found.cloned().ok_or_else(|| Reply::error(404, "Integration not found"))
}

/// `GET /app`.
pub fn show(world: &mut World, call: &Call) -> Outcome {
    call.takes_query(world, &[])?;
    let app = caller(world, call)?;
    Ok(Reply::ok(json!({
        "id": app.id,
        "slug": app.slug,
        "node_id": format!("A_{}", app.id),
        "owner": shapes::user_named(call, world, &app.owner),
        "name": app.slug,
        "description": null,
        "external_url": call.html,
        "html_url": format!("{}/apps/{}", call.html, app.slug),
        "created_at": shapes::time(world.now()),
        "updated_at": shapes::time(world.now()),
        "permissions": app.permissions,
        "events": [],
        "installations_count": 1,
    })))
}

fn installation(call: &Call, world: &World, app: &App) -> Value {
    json!({
        "id": app.installation_id,
        "account": shapes::user_named(call, world, &app.owner),
        "access_tokens_url": format!("{}/app/installations/{}/access_tokens", call.api, app.installation_id),
        "repositories_url": format!("{}/installation/repositories", call.api),
        "html_url": format!("{}/settings/installations/{}", call.html, app.installation_id),
        "app_id": app.id,
        "app_slug": app.slug,
        "target_id": world.find_user(&app.owner).map(|user| user.id),
        "target_type": "Organization",
        "permissions": app.permissions,
        "events": [],
        "created_at": shapes::time(world.now()),
        "updated_at": shapes::time(world.now()),
        "single_file_name": null,
        "repository_selection": if app.repositories.is_some() { "selected" } else { "all" },
        "suspended_at": null,
        "suspended_by": null,
    })
}

/// `GET /app/installations`.
pub fn installations(world: &mut World, call: &Call) -> Outcome {
    call.takes_query(world, &["per_page", "page", "since", "outdated"])?;
    let app = caller(world, call)?;
    call.page(None, vec![installation(call, world, &app)])
}

/// `GET /repos/{o}/{r}/installation`.
pub fn installation_of(world: &mut World, call: &Call, owner: &str, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let app = caller(world, call)?;
    let full = format!("{owner}/{name}");
    let known = world.repository(&full).is_some()
        && app
            .repositories
            .as_ref()
            .is_none_or(|names| names.iter().any(|one| one.eq_ignore_ascii_case(&full)));
    if known { Ok(Reply::ok(installation(call, world, &app))) } else { Err(Reply::not_found()) }
}

/// `POST /app/installations/{id}/access_tokens`: an hour's token, narrowed as asked.
pub fn access_token(world: &mut World, call: &Call, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["repositories", "repository_ids", "permissions"])?;
    let app = caller(world, call)?;
    if id.parse() != Ok(app.installation_id) {
        return Err(Reply::not_found());
    }
    let mut permissions = app.permissions.clone();
    if let Some(asked) = body.get("permissions").and_then(Value::as_object) {
        for (name, level) in asked {
            let level = level.as_str().unwrap_or_default();
            let held = app.permissions.get(name).map(String::as_str);
            if held != Some("write") && held != Some(level) {
                return Err(Reply::error(
                    422,
                    "The permissions requested are not granted to this installation.",
                ));
            }
        }
        permissions.retain(|name, _| asked.contains_key(name));
        for (name, level) in asked {
            permissions.insert(name.clone(), level.as_str().unwrap_or_default().to_owned());
        }
    }
    let named = super::body::names(&body, "repositories");
    let repositories = if named.is_empty() {
        app.repositories.clone()
    } else {
        Some(named.iter().map(|name| format!("{}/{name}", app.owner)).collect())
    };
    let secret = format!("ghs_{}", uuid::Uuid::new_v4().simple());
    let expires_at = world.now() + TimeDelta::hours(1);
    let login = format!("{}[bot]", app.slug);
    world.user(&login);
    world.tokens.push(Token {
        secret: secret.clone(),
        login,
        permissions: Some(permissions.clone()),
        repositories: repositories.clone(),
        installation: Some(app.installation_id),
        expires_at: Some(expires_at),
    });
    Ok(Reply::created(json!({
        "token": secret,
        "expires_at": shapes::time(expires_at),
        "permissions": permissions,
        "repository_selection": if repositories.is_some() { "selected" } else { "all" },
    })))
}
