//! Media types: texts as HTML beside their Markdown, with signed links to their images.

use chrono::TimeDelta;
use regex::{Captures, Regex};
use serde_json::{Value, json};

use crate::sim::call::Call;
use crate::sim::signed_link::{self, IMAGE_LINK};
use crate::sim::world::World;

/// How texts are wanted: `raw` (Markdown), `text`, `html` or `full` (all of them).
pub fn wanted(call: &Call) -> &'static str {
    let accept = call.headers.get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known = ["full", "html", "text"];
    known.into_iter().find(|kind| accept.contains(&format!(".{kind}+json"))).unwrap_or("raw")
}

/// Puts into every text of an answer what its media type wants.
pub fn widen(world: &World, call: &Call, kind: &str, answer: &mut Value) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(|item| widen(world, call, kind, item)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| widen(world, call, kind, field));
            let Some(body) = fields.get("body").filter(|_| fields.contains_key("node_id")) else { return };
            let body = body.as_str().unwrap_or_default().to_owned();
            if kind == "full" || kind == "html" {
                fields.insert("body_html".to_owned(), json!(html(world, call, &body)));
            }
            if kind == "full" || kind == "text" {
                fields.insert("body_text".to_owned(), json!(body));
            }
            if kind != "full" {
                fields.shift_remove("body");
            }
        }
        _ => {}
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The text with its images as GitHub shows them; all other Markdown stays as it is, escaped.
fn html(world: &World, call: &Call, body: &str) -> String {
    let pattern = r#"!\[(?P<alt>[^\]]*)\]\((?P<url>[^)\s]+)\)|<img[^>]*?src="(?P<src>[^"]+)"[^>]*>"#;
    let Ok(images) = Regex::new(pattern) else { return escaped(body) };
    let mut html = String::from("<p dir=\"auto\">");
    let mut at = 0;
    for found in images.captures_iter(body) {
        let Some(whole) = found.get(0) else { continue };
        html.push_str(&escaped(&body[at..whole.start()]));
        html.push_str(&image(world, call, &found));
        at = whole.end();
    }
    html.push_str(&escaped(&body[at..]));
    html.push_str("</p>");
    html
}

/// An own attachment gets a signed link; any other address is shown by GitHub's own server.
fn image(world: &World, call: &Call, found: &Captures<'_>) -> String {
    let group = |name: &str| found.name(name).map(|text| text.as_str());
    let url = group("url").or_else(|| group("src")).unwrap_or_default();
    let own = url.strip_prefix(&format!("{}/user-attachments/assets/", call.html));
    let shown = match own.filter(|id| world.attachments.iter().any(|one| one.id == **id)) {
        Some(id) => {
            let until = world.now() + TimeDelta::from_std(IMAGE_LINK).unwrap_or_default();
            signed_link::link(world, &format!("/images/{id}"), until)
        }
        None => format!("{}/camo/{}", world.second, hex::encode(url)),
    };
    let alt = escaped(group("alt").unwrap_or_default());
    format!(
        "<a target=\"_blank\" href=\"{0}\"><img src=\"{0}\" alt=\"{alt}\" style=\"max-width: 100%;\"></a>",
        escaped(&shown)
    )
}
