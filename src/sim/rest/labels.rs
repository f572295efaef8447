//! Labels of a repository and on its issues.

use serde_json::Value;

use super::body::{names, text};
use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Label, World};

const PAGING: [&str; 2] = ["per_page", "page"];

/// `GET …/labels`.
pub fn list(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &PAGING)?;
    let repo = &world.repositories[repo];
    call.page(Some(repo.id), repo.labels.iter().map(|label| shapes::label(call, repo, label)).collect())
}

/// `GET …/labels/{name}`.
pub fn show(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    let label = repo.label(name).ok_or_else(Reply::not_found)?;
    Ok(Reply::ok(shapes::label(call, repo, label)))
}

fn color(body: &serde_json::Map<String, Value>) -> Result<Option<String>, Reply> {
    match text(body, "Label", "color")? {
        None => Ok(None),
        Some(color) if color.len() == 6 && color.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(Some(color.to_ascii_lowercase()))
        }
        Some(_) => Err(Reply::invalid("Label", "color", "invalid", None)),
    }
}

/// `POST …/labels`.
pub fn create(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let body = call.takes_body(world, &["name", "color", "description"])?;
    let name = text(&body, "Label", "name")?.unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Reply::invalid("Label", "name", "missing_field", None));
    }
    if name.chars().count() > 50 {
        return Err(Reply::invalid(
            "Label",
            "name",
            "invalid",
            Some("name is too long (maximum is 50 characters)"),
        ));
    }
    if world.repositories[repo].label(&name).is_some() {
        return Err(Reply::invalid("Label", "name", "already_exists", None));
    }
    let description = text(&body, "Label", "description")?.map(str::to_owned);
    if description.as_ref().is_some_and(|text| text.chars().count() > 100) {
        let message = "description is too long (maximum is 100 characters)";
        return Err(Reply::invalid("Label", "description", "invalid", Some(message)));
    }
    let color = color(&body)?.unwrap_or_else(|| "ededed".to_owned());
    let label = Label { id: world.new_id(), name, color, description };
    let repo = &mut world.repositories[repo];
    repo.labels.push(label.clone());
    Ok(Reply::created(shapes::label(call, repo, &label)))
}

/// `PATCH …/labels/{name}`: colour and description.
pub fn edit(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let body = call.takes_body(world, &["color", "description"])?;
    let (color, description) = (color(&body)?, text(&body, "Label", "description")?.map(str::to_owned));
    let repo = &mut world.repositories[repo];
    let label = repo.labels.iter_mut().find(|label| label.name.eq_ignore_ascii_case(name));
    let label = label.ok_or_else(Reply::not_found)?;
    if let Some(color) = color {
        label.color = color;
    }
    if description.is_some() {
        label.description = description;
    }
    let label = label.clone();
    Ok(Reply::ok(shapes::label(call, repo, &label)))
}

fn on_issue(world: &World, call: &Call, repo: usize, number: u64) -> Vec<Value> {
    let repo = &world.repositories[repo];
    let names = repo.issues[&number].labels.iter();
    names.filter_map(|name| repo.label(name)).map(|label| shapes::label(call, repo, label)).collect()
}

/// `GET …/issues/{n}/labels`.
pub fn of_issue(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &PAGING)?;
    call.page(Some(world.repositories[repo].id), on_issue(world, call, repo, number))
}

/// The names in a body that is `{"labels": […]}` or just `[…]`.
fn wanted(world: &mut World, call: &Call) -> Result<Vec<String>, Reply> {
    if let Ok(Value::Array(list)) = serde_json::from_slice(&call.body) {
        let mut body = serde_json::Map::new();
        body.insert("labels".to_owned(), Value::Array(list));
        return Ok(names(&body, "labels"));
    }
    let body = call.takes_body(world, &["labels"])?;
    Ok(names(&body, "labels"))
}

/// `POST …/issues/{n}/labels`.
pub fn add(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let actor = call.login()?.to_owned();
    for name in wanted(world, call)? {
        world.set_label(repo, number, &name, &actor, true);
    }
    Ok(Reply::ok(Value::Array(on_issue(world, call, repo, number))))
}

/// Makes the issue's labels exactly these.
pub fn set_all(world: &mut World, repo: usize, number: u64, wanted: &[String], actor: &str) {
    let now = world.repositories[repo].issues[&number].labels.clone();
    for name in now.iter().filter(|name| !wanted.iter().any(|other| other.eq_ignore_ascii_case(name))) {
        world.set_label(repo, number, name, actor, false);
    }
    for name in wanted {
        world.set_label(repo, number, name, actor, true);
    }
}

/// `PUT …/issues/{n}/labels`.
pub fn replace(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let actor = call.login()?.to_owned();
    let wanted = wanted(world, call)?;
    set_all(world, repo, number, &wanted, &actor);
    Ok(Reply::ok(Value::Array(on_issue(world, call, repo, number))))
}

/// `DELETE …/issues/{n}/labels`.
pub fn clear(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let actor = call.login()?.to_owned();
    set_all(world, repo, number, &[], &actor);
    Ok(Reply::no_content())
}

/// `DELETE …/issues/{n}/labels/{name}`.
pub fn remove(world: &mut World, call: &Call, repo: usize, number: u64, name: &str) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let actor = call.login()?.to_owned();
    if !world.set_label(repo, number, name, &actor, false) {
        return Err(Reply::error(404, "Label does not exist"));
    }
    Ok(Reply::ok(Value::Array(on_issue(world, call, repo, number))))
}
