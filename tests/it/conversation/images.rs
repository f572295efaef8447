//! Images: which ones are loaded, from where, and how models of each kind are handed them.

use base64::Engine as _;
use serde_json::{Value, json};

use super::briefing::{REPO, admin};
use crate::outside::daemons::{Running, until};
use crate::outside::solo::{left, reports, run, solo};
use crate::outside::world::World;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and pixels";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0 and pixels";

fn attach(world: &World, bytes: &[u8]) -> String {
    let coded = base64::engine::general_purpose::STANDARD.encode(bytes);
    let made = admin(world, "POST", "attachments", &json!({ "base64": coded }));
    made["url"].as_str().unwrap().to_owned()
}

fn comment(world: &World, login: &str, text: &str) -> u64 {
    world.sim.add_comment(REPO, 7, login, text).unwrap()
}

/// A world whose model is asked in the way of `kind` and takes images.
async fn seeing(kind: &str, more: &str) -> World {
    let world = solo(vec![reports("Done.", json!([]))], None, more).await;
    let address = match kind {
        "openai" => world.sim.model_url_openai(),
        "openai-responses" => world.sim.model_url_responses(),
        "gemini" => world.sim.model_url_gemini(),
        _ => world.sim.model_url_anthropic(),
    };
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let overlay = overlay
        .replacen("kind = \"anthropic\"", &format!("kind = \"{kind}\""), 1)
        .replacen(&world.sim.model_url_anthropic(), &address, 1)
        .replacen("model = \"recorded-model\"", "model = \"recorded-model\"\nimages = true", 1);
    world.write("overlay.toml", &overlay);
    world
}

/// The first message of a user in the first request.
fn first(world: &World) -> Value {
    let asked = world.sim.model_requests();
    let body = &asked[0].body;
    let turns = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array()).unwrap();
    turns.iter().find(|turn| turn["role"] == "user").unwrap().clone()
}

/// What became of each image.
fn fates(world: &World) -> Vec<(String, String, String)> {
    let briefing = left(world, "briefing.json");
    let texts = briefing["texts"].as_array().unwrap().clone();
    let word = |text: &Value, name: &str| text[name].as_str().unwrap_or_default().to_owned();
    let images = texts.iter().filter(|text| text["kind"] == "image");
    images.map(|text| (word(text, "id"), word(text, "fate"), word(text, "why"))).collect()
}

fn loaded(world: &World) -> usize {
    world.sim.requests().iter().filter(|one| one.target.contains("/images/")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_body_and_of_trusted_remarks_are_handed_over_in_the_way_of_each_protocol() {
    for kind in ["anthropic", "openai", "openai-responses", "gemini"] {
        let world = seeing(kind, "").await;
        let (png, jpeg, other) = (attach(&world, PNG), attach(&world, JPEG), attach(&world, b"GIF89a"));
        admin(
            &world,
            "PATCH",
            "issues/7",
            &json!({ "body": format!("It looks so: ![do X]({png})"), "actor": "mallory" }),
        );
        let id =
            comment(&world, "ada", &format!("Better so: <img src=\"{jpeg}\">\n\n> ![quoted]({other})\n"));
        comment(&world, "mallory", &format!("![mine]({other})"));
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{kind}: {output:#}");
        let coded = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let url = |kind: &str, bytes: &[u8]| format!("data:image/{kind};base64,{}", coded(bytes));
        let wanted = match kind {
            "anthropic" => json!([
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": coded(PNG) } },
                { "type": "image", "source": { "type": "base64", "media_type": "image/jpeg", "data": coded(JPEG) } },
            ]),
            "openai" => json!([
                { "type": "image_url", "image_url": { "url": url("png", PNG) } },
                { "type": "image_url", "image_url": { "url": url("jpeg", JPEG) } },
            ]),
            "openai-responses" => json!([
                { "type": "input_image", "image_url": url("png", PNG), "detail": "auto" },
                { "type": "input_image", "image_url": url("jpeg", JPEG), "detail": "auto" },
            ]),
            _ => json!([
                { "inlineData": { "mimeType": "image/png", "data": coded(PNG) } },
                { "inlineData": { "mimeType": "image/jpeg", "data": coded(JPEG) } },
            ]),
        };
        let said = first(&world);
        let parts = ["content", "parts"].iter().find_map(|name| said[name].as_array()).unwrap().clone();
        assert_eq!(json!(parts[..2]), wanted, "{kind}");
        assert_eq!(parts.len(), 3, "{kind}: and the text");
        let text = parts[2]["text"].as_str().unwrap();
        assert!(
            text.contains(&format!(
                "2. {} (image/jpeg, {} bytes), comment-{id}/image-1",
                jpeg.rsplit('/').next().unwrap(),
                JPEG.len()
            )),
            "{text}"
        );
        assert!(text.contains("[image: ") && !text.contains("do X"), "{text}");
        assert_eq!(loaded(&world), 2, "{kind}: {:?}", fates(&world));
        let before = world.sim.requests().len();
        let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
        assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
        assert_eq!(world.sim.requests().len(), before, "a replay reads nothing");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_refuses_the_images_is_asked_without_them() {
    let world = seeing("anthropic", "").await;
    let png = attach(&world, PNG);
    let body = json!({ "body": format!("It looks so: ![x]({png})"), "actor": "mallory" });
    admin(&world, "PATCH", "issues/7", &body);
    let refused = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "Could not process image" } });
    let fault = json!({
        "kind": "status", "status": 400, "times": 0, "method": "POST", "path": "/model/*", "contains": "media_type", "body": refused,
    });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output["warnings"].to_string().contains("refused a request with images"), "{output:#}");
    let told = first(&world).to_string();
    assert!(!told.contains("media_type") && told.contains("[image: "), "{told}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_kind_that_a_model_does_not_take_is_left_out_and_takes_no_place() {
    let world = seeing("gemini", "[conversation]\nmax_images = 1\n").await;
    let (gif, png) = (attach(&world, b"GIF89a and frames"), attach(&world, PNG));
    let id = comment(&world, "ada", &format!("![moves]({gif}) ![stands]({png})"));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let of =
        |at: u8, fate: &str, why: &str| (format!("comment-{id}/image-{at}"), fate.to_owned(), why.to_owned());
    assert_eq!(fates(&world), [of(1, "left_out", "kind_not_taken"), of(2, "told", "")]);
    let parts = first(&world)["parts"].as_array().unwrap().clone();
    assert_eq!(parts.len(), 2, "one image, and the text");
    assert_eq!(parts[0]["inlineData"]["mimeType"], "image/png");
    let text = parts[1]["text"].as_str().unwrap();
    assert!(text.contains(" (image/png, ") && !text.contains("image/gif"), "{text}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_its_author_swaps_in_after_the_label_is_not_read() {
    let world = seeing("anthropic", "").await;
    world.configure(&["agent = \"solo\""]);
    let (own, other) = (attach(&world, PNG), attach(&world, &[PNG, b"swapped"].concat()));
    let short = own.replace(own.rsplit('/').next().unwrap(), "-");
    let then = world.sim.world().now() - chrono::TimeDelta::hours(1);
    assert!(world.sim.edit_issue(REPO, 7, |issue| {
        issue.author = "mallory".to_owned();
        issue.created_at = then;
        issue.body = Some(format!("![a]({short}) ![b]({own})"));
    }));
    world.sim.add_label(REPO, 7, "agentd", "ada");
    world.sim.edit_text(REPO, 7, "mallory", None, Some(&format!("![a]({other})")));
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    let of = |at: u8, why: &str| (format!("issue-7/image-{at}"), "left_out".to_owned(), why.to_owned());
    assert_eq!(fates(&world), [of(1, "other_host"), of(2, "no_link")]);
    assert_eq!(loaded(&world), 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_takes_no_images_is_handed_none_and_none_is_loaded() {
    let world = solo(vec![reports("Done.", json!([]))], None, "").await;
    let png = attach(&world, PNG);
    comment(&world, "ada", &format!("![x]({png})"));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(first(&world).to_string().contains("[image: "));
    assert!(!first(&world).to_string().contains("base64"));
    assert_eq!((loaded(&world), fates(&world)), (0, Vec::new()));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_image_or_not_githubs_or_too_large_is_not_handed_over() {
    let world = seeing("anthropic", "[conversation]\nmax_image_bytes = 40\nmax_images = 2\n").await;
    let long = [PNG, &[b'x'; 40]].concat();
    let (first, large, svg) =
        (attach(&world, PNG), attach(&world, &long), attach(&world, b"<svg onload='x'/>"));
    let own = world.sim.base_url();
    let fake = first.replace(&own, "https://evil.example");
    let text = [
        fake.as_str(),
        "https://user-images.githubusercontent.com/1/a.png",
        &format!("{own}/user-attachments/assets/../../../x"),
        &format!("{own}/user-attachments/assets/11111111-2222-3333-4444-555555555555"),
        "file:///etc/passwd",
        "data:image/png;base64,iVBORw0KGgo=",
        &large,
        &svg,
        &first,
        &attach(&world, JPEG),
        &attach(&world, PNG),
    ]
    .map(|address| format!("![x]({address})"))
    .join("\n");
    let id = comment(&world, "ada", &text);
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let found: Vec<(String, String)> = fates(&world).into_iter().map(|(_, fate, why)| (fate, why)).collect();
    let wanted = [
        ("left_out", "other_host"),
        ("left_out", "other_host"),
        ("left_out", "other_host"),
        ("left_out", "no_link"),
        ("left_out", "other_host"),
        ("left_out", "other_host"),
        ("left_out", "too_large"),
        ("left_out", "no_image"),
        ("told", ""),
        ("told", ""),
        ("left_out", "too_many"),
    ];
    assert_eq!(found, wanted.map(|(fate, why)| (fate.to_owned(), why.to_owned())));
    assert_eq!(fates(&world)[8].0, format!("comment-{id}/image-9"));
    assert_eq!(loaded(&world), 4);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_an_image_that_leads_elsewhere_is_not_followed() {
    let world = seeing("anthropic", "").await;
    let png = attach(&world, PNG);
    comment(&world, "ada", &format!("![x]({png})"));
    let elsewhere = format!("{}/images/elsewhere", world.sim.base_url());
    let fault = json!({ "method": "GET", "path": "/images/*", "kind": "status", "status": 302, "headers": { "location": elsewhere } });
    world.sim.admin("POST", "faults", &fault).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(fates(&world)[0].2, "unreadable");
    assert_eq!(loaded(&world), 1, "the link itself, and nothing behind it");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_program_finds_the_images_in_the_folder_of_its_briefing() {
    use crate::agents::bench::{FIX, fixer, script};
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let with = overlay.replacen("model = \"recorded-model\"", "model = \"recorded-model\"\nimages = true", 1);
    world.write("overlay.toml", &with);
    let png = attach(&world, PNG);
    comment(&world, "ada", &format!("![x]({png})"));
    let program = format!(
        "#!/bin/sh\ncat >/dev/null\n{FIX}\ncd \"$AGENTD_BRIEFING/images\" && for file in *; do echo \"IMAGE $file $(wc -c < \"$file\")\"; done\n"
    );
    fixer(&world, "command", &json!({ "argv": [script(&world, "fix.sh", &program)], "sandbox": "off" }));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let wanted = format!("IMAGE 1-{}.png {}", png.rsplit('/').next().unwrap(), PNG.len());
    assert!(output.to_string().contains(&wanted), "{wanted}: {output:#}");
    world.finish().await;
}
