//! Which text the model is told: the one that stood there when somebody who may asked for the run.

#![expect(clippy::semicolon_if_nothing_returned, reason = "rows of a table read better without")]

use agentd::sim::World as Sim;
use agentd::sim::world::Edit;
use chrono::TimeDelta;

use super::{daemon, issue, label, labels, of, said, told, world};
use crate::outside::daemons::until;

/// What the model is told.
pub enum Told {
    /// This text, and nothing with `EVIL` in it.
    Only(&'static str),
    /// Nothing: the run is refused, with these words.
    Nothing(&'static str),
}
use Told::{Nothing, Only};

/// Name, what happens to an outsider's issue, what the model is told (`#` stands for the issue's number).
pub type Row = (&'static str, fn(&mut Sim, u64), Told);

fn go(sim: &mut Sim, number: u64) {
    label(sim, number, "agentd", "ada");
}

fn body(sim: &mut Sim, number: u64, by: &str, text: &str) {
    assert!(sim.edit_text(0, number, by, None, Some(text)));
}

fn title(sim: &mut Sim, number: u64, by: &str, text: &str) {
    assert!(sim.edit_text(0, number, by, Some(text), None));
}

/// The last edit or rename was so long ago.
fn hours_ago(sim: &mut Sim, number: u64, hours: i64) {
    let at = sim.now() - TimeDelta::hours(hours);
    let issue = of(sim, number);
    if let Some(edit) = issue.edits.last_mut() {
        edit.at = at;
    }
    if let Some(event) = issue.events.last_mut() {
        event.at = at;
    }
}

pub const ROWS: &[Row] = &[
    (
        "body edited by its author after the label",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "body edited twice after the label",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "EVIL");
            body(s, n, "nina", "EVIL again")
        },
        Only("BODY-#."),
    ),
    (
        "body emptied after the label",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "")
        },
        Only("BODY-#."),
    ),
    (
        "title changed after the label",
        |s, n| {
            go(s, n);
            title(s, n, "nina", "EVIL")
        },
        Only("TITLE-#."),
    ),
    (
        "title changed twice after the label",
        |s, n| {
            go(s, n);
            title(s, n, "nina", "EVIL");
            title(s, n, "nina", "EVIL 2")
        },
        Only("TITLE-#."),
    ),
    (
        "title and body changed after the label",
        |s, n| {
            go(s, n);
            title(s, n, "nina", "EVIL");
            body(s, n, "nina", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "a triager edits after the label",
        |s, n| {
            go(s, n);
            body(s, n, "tom", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "an app edits after the label",
        |s, n| {
            go(s, n);
            body(s, n, "helper[bot]", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "an app that is called as a maintainer edits after the label",
        |s, n| {
            go(s, n);
            body(s, n, "ada[bot]", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "an app that is called as a maintainer changes the title after the label",
        |s, n| {
            go(s, n);
            title(s, n, "ada[bot]", "EVIL")
        },
        Only("TITLE-#."),
    ),
    (
        "an account that is gone edits after the label",
        |s, n| {
            go(s, n);
            body(s, n, "", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "an account that is gone changes the title after the label",
        |s, n| {
            go(s, n);
            title(s, n, "", "EVIL")
        },
        Only("TITLE-#."),
    ),
    (
        "a removed collaborator edits after the label",
        |s, n| {
            go(s, n);
            body(s, n, "rex", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "a maintainer's edit after the label, and then the author's",
        |s, n| {
            go(s, n);
            body(s, n, "ada", "ADAS-#.");
            body(s, n, "nina", "EVIL")
        },
        Only("ADAS-"),
    ),
    (
        "a maintainer's edit over the author's after the label",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "EVIL");
            body(s, n, "ada", "ADAS-#.")
        },
        Only("ADAS-"),
    ),
    (
        "a maintainer's title over the author's, and then the author's",
        |s, n| {
            go(s, n);
            title(s, n, "nina", "EVIL");
            title(s, n, "wes", "WES-#.");
            title(s, n, "nina", "EVIL")
        },
        Only("WES-"),
    ),
    (
        "the author's edit before the label, which the maintainer has seen",
        |s, n| {
            body(s, n, "nina", "SEEN-#.");
            hours_ago(s, n, 2);
            go(s, n);
            body(s, n, "nina", "EVIL")
        },
        Only("SEEN-"),
    ),
    (
        "the author's title before the label, which the maintainer has seen",
        |s, n| {
            title(s, n, "nina", "SEEN-#.");
            hours_ago(s, n, 2);
            go(s, n);
            title(s, n, "nina", "EVIL")
        },
        Only("SEEN-"),
    ),
    (
        "taken off, and put on again after the edit",
        |s, n| {
            go(s, n);
            hours_ago(s, n, 3);
            body(s, n, "nina", "SEEN-#.");
            of(s, n).edits.last_mut().unwrap().at -= TimeDelta::hours(2);
            s.set_label(0, n, "agentd", "ada", false);
            go(s, n);
        },
        Only("SEEN-"),
    ),
    (
        "the revision that counts taken out of the history",
        |s, n| {
            body(s, n, "nina", "SEEN");
            hours_ago(s, n, 2);
            go(s, n);
            body(s, n, "nina", "EVIL");
            of(s, n).edits[1].body = None;
        },
        Nothing("does not show what the body was"),
    ),
    (
        "a history that begins after the label",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "EVIL");
            of(s, n).edits.remove(0);
        },
        Nothing("does not show what the body was"),
    ),
    (
        "a hundred and fifty edits after the label",
        |s, n| {
            go(s, n);
            (0..150).for_each(|round| body(s, n, "nina", &format!("EVIL {round}")))
        },
        Only("BODY-#."),
    ),
    (
        "a hundred and fifty titles after the label",
        |s, n| {
            go(s, n);
            (0..150).for_each(|round| title(s, n, "nina", &format!("EVIL {round}")))
        },
        Only("TITLE-#."),
    ),
    (
        "more edits than are read",
        |s, n| {
            go(s, n);
            body(s, n, "nina", "EVIL");
            let last = of(s, n).edits[1].clone();
            for _ in 0..1100 {
                let id = s.new_id();
                of(s, n).edits.push(Edit { id, ..last.clone() });
            }
        },
        Nothing("changed too often"),
    ),
    (
        "the edit after a maintainer's command",
        |s, n| {
            s.add_comment(0, n, "ada", "/agentd run");
            body(s, n, "nina", "EVIL")
        },
        Only("BODY-#."),
    ),
    (
        "an HTML comment, a bidirectional override and tag characters that were there all along",
        |s, n| {
            of(s, n).body = Some(format!(
                "BODY-{n}. <!-- EVIL --> \u{202e}x\u{202c} \u{e0045}\u{e0056}\u{e0049}\u{e004c}"
            ));
            go(s, n);
        },
        Only("BODY-#."),
    ),
];

const FIRST: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_after_the_label_is_not_what_the_model_is_told() {
    let world = world().await;
    {
        let mut sim = world.sim.world();
        (0..ROWS.len()).for_each(|place| issue(&mut sim, FIRST + place as u64, "nina"));
    }
    let daemon = daemon(&world).await;
    {
        let mut sim = world.sim.world();
        for (place, (_, change, _)) in ROWS.iter().enumerate() {
            change(&mut sim, FIRST + place as u64);
        }
        sim.repositories[0].collaborators.remove("rex");
    }
    let end =
        |number| labels(&world, number).iter().any(|one| one == "agentd:done" || one == "agentd:attention");
    for (place, (name, ..)) in ROWS.iter().enumerate() {
        until(name, || end(FIRST + place as u64)).await;
    }
    let mut wrong = Vec::new();
    for (place, (name, _, expected)) in ROWS.iter().enumerate() {
        let number = FIRST + place as u64;
        let (asked, said) = (told(&world, number).join("\n"), said(&world, number).join("\n"));
        let right = match expected {
            Only(text) => {
                let text = text.replace('#', &number.to_string());
                let hidden = ['\u{202e}', '\u{e0045}'].iter().any(|one| asked.contains(*one));
                asked.contains(&text) && !asked.contains("EVIL") && !hidden
            }
            Nothing(words) => asked.is_empty() && said.contains(words),
        };
        if !right {
            wrong.push(format!("{name} ({number}): {asked}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_says_which_text_it_was_and_by_whom_the_label_was_put_on() {
    let world = world().await;
    {
        let mut sim = world.sim.world();
        issue(&mut sim, 8, "nina");
        body(&mut sim, 8, "nina", "SEEN");
        hours_ago(&mut sim, 8, 2);
        go(&mut sim, 8);
        body(&mut sim, 8, "nina", "EVIL");
        title(&mut sim, 8, "nina", "EVIL");
    }
    let daemon = daemon(&world).await;
    until("done", || labels(&world, 8) == ["agentd:done"]).await;
    daemon.stop().await;
    let run = crate::outside::solo::left(&world, "run.json");
    let text = &run["contextSnapshot"]["issueText"];
    assert_eq!((&text["asked"], &text["by"]), (&"label".into(), &"ada".into()), "{run:#}");
    assert_eq!((&text["left_out"], &text["body"]["by"]), (&2.into(), &"nina".into()), "{run:#}");
    assert!(text["at"].is_string() && text["body"]["at"].is_string() && text["title"].is_null(), "{text:#}");
    assert!(run["question"].to_string().contains("SEEN") && !run.to_string().contains("EVIL"), "{run:#}");
    // In the foreground the operator asks now.
    let (code, output) = world.json(&["run", "--issue", "8", "--agent", "solo"]).await;
    assert_eq!((code, &output["objective"]["body"]), (Some(0), &"EVIL".into()), "{output:#}");
    let run = crate::outside::solo::left(&world, "run.json");
    assert_eq!(run["contextSnapshot"]["issueText"]["asked"], "operator", "{run:#}");
    world.finish().await;
}
