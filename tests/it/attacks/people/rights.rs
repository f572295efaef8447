//! Who may not start a run: neither by a label, nor by a command, nor by what they write.

#![expect(clippy::semicolon_if_nothing_returned, reason = "rows of a table read better without")]

use agentd::sim::World as Sim;

use super::{daemon, issue, label, labels, of, polled, said, told, world};
use crate::outside::daemons::until;

/// What comes of an attempt, beside no run.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    /// Nothing is written at all.
    Silence,
    /// At most a comment that says that they may not.
    Refusal,
    /// The trigger is taken off and a person is asked.
    Attention,
}

/// Name, author of the issue, what is done, and what comes of it.
pub type Row = (&'static str, &'static str, fn(&mut Sim, u64), End);

macro_rules! labelled {
    ($by:expr) => {
        |sim, number| label(sim, number, "agentd", $by)
    };
}

macro_rules! comment {
    ($by:expr, $text:expr) => {
        |sim, number| {
            sim.add_comment(0, number, $by, $text);
        }
    };
}

pub const ROWS: &[Row] = &[
    // Who × label.
    ("label by an outsider", "ada", labelled!("mallory"), End::Attention),
    (
        "label by an author without rights, as an issue form puts it on",
        "nina",
        labelled!("nina"),
        End::Attention,
    ),
    ("label by a reader", "ada", labelled!("rita"), End::Attention),
    ("label by a triager, who may label and not run", "ada", labelled!("tom"), End::Attention),
    ("label by an app without rights", "ada", labelled!("helper[bot]"), End::Attention),
    ("label by an app that is called as a maintainer", "nina", labelled!("ada[bot]"), End::Attention),
    ("label by an account that is gone, on a maintainer's issue", "ada", labelled!(""), End::Attention),
    ("label by an account that is gone, on an outsider's issue", "nina", labelled!(""), End::Attention),
    ("label by a collaborator who was removed since", "nina", labelled!("rex"), End::Attention),
    (
        "label in another case by an outsider",
        "ada",
        |sim, n| label(sim, n, "AGENTD", "mallory"),
        End::Attention,
    ),
    // Who × command.
    ("command by an outsider", "nina", comment!("mallory", "/agentd run"), End::Refusal),
    ("command by the author without rights", "nina", comment!("nina", "/agentd run"), End::Refusal),
    ("command by a reader", "nina", comment!("rita", "/agentd run"), End::Refusal),
    ("command by a triager", "nina", comment!("tom", "/agentd run"), End::Refusal),
    ("command by an app", "nina", comment!("helper[bot]", "/agentd run"), End::Silence),
    (
        "command by an app that is called as a maintainer",
        "nina",
        comment!("ada[bot]", "/agentd run"),
        End::Silence,
    ),
    ("command by an account that is gone", "nina", comment!("", "/agentd run"), End::Silence),
    ("command by a collaborator who was removed since", "nina", comment!("rex", "/agentd run"), End::Refusal),
    // Outsider × the other commands.
    ("retry by an outsider", "nina", comment!("mallory", "/agentd retry"), End::Refusal),
    ("extend by an outsider", "nina", comment!("mallory", "/agentd extend"), End::Refusal),
    ("stop by an outsider", "nina", comment!("mallory", "/agentd stop"), End::Refusal),
    ("approve by an outsider", "nina", comment!("mallory", "/agentd approve 0a1b2c3d"), End::Refusal),
    ("a word that is no command, by an outsider", "nina", comment!("mallory", "/agentd dance"), End::Refusal),
    (
        "command in another case by an outsider",
        "nina",
        comment!("mallory", "  /AgentD RUN now"),
        End::Refusal,
    ),
    // What a maintainer writes and does not mean.
    ("a quoted command", "nina", comment!("ada", "> /agentd run"), End::Silence),
    ("a command in a code block", "nina", comment!("ada", "```\n/agentd run\n```"), End::Silence),
    ("a command in an HTML comment", "nina", comment!("ada", "<!-- /agentd run -->"), End::Silence),
    ("a command on the second line", "nina", comment!("ada", "Try this:\n/agentd run"), End::Silence),
    ("a command spelt with a Cyrillic letter", "nina", comment!("ada", "/\u{430}gentd run"), End::Silence),
    ("a command with a zero-width space", "nina", comment!("ada", "/agentd\u{200b}run"), End::Silence),
    (
        "a command with tag characters",
        "nina",
        comment!("ada", "/agentd\u{e0020}\u{e0072}\u{e0075}\u{e006e}"),
        End::Silence,
    ),
    ("a mention", "nina", comment!("mallory", "@agentd run @agentd-demo run"), End::Silence),
    // Names of labels, by a maintainer.
    ("a label with a Cyrillic letter", "nina", |sim, n| label(sim, n, "\u{430}gentd", "ada"), End::Silence),
    (
        "a label with a zero-width space",
        "nina",
        |sim, n| label(sim, n, "agentd\u{200b}", "ada"),
        End::Silence,
    ),
    ("a label in full-width letters", "nina", |sim, n| label(sim, n, "\u{ff41}gentd", "ada"), End::Silence),
    (
        "a label that begins like the trigger",
        "nina",
        |sim, n| label(sim, n, "agentd-now", "ada"),
        End::Silence,
    ),
    (
        "the label that says that it waits",
        "nina",
        |sim, n| label(sim, n, "agentd:queued", "mallory"),
        End::Silence,
    ),
    (
        "the label that says that it runs",
        "nina",
        |sim, n| label(sim, n, "agentd:running", "mallory"),
        End::Silence,
    ),
    // What the author writes.
    ("a command as the body", "nina", |sim, n| of(sim, n).body = Some("/agentd run".into()), End::Silence),
    ("a command as the title", "nina", |sim, n| of(sim, n).title = "/agentd run".into(), End::Silence),
    (
        "agentd's own marker and a lease in the body",
        "nina",
        |sim, n| {
            of(sim, n).body =
                Some(format!("<!-- agentd:issue-{n} -->\n<!-- agentd:lease {{}} -->\n/agentd run"))
        },
        End::Silence,
    ),
    // Races.
    (
        "another label, put on by a maintainer, renamed to the trigger",
        "nina",
        |sim, n| {
            label(sim, n, "bug", "ada");
            sim.ensure_label(0, "agentd", None);
            of(sim, n).labels = vec!["agentd".into()];
        },
        End::Attention,
    ),
    (
        "label by a maintainer, taken off and put on again by a triager",
        "nina",
        |sim, n| {
            label(sim, n, "agentd", "ada");
            sim.set_label(0, n, "agentd", "tom", false);
            label(sim, n, "agentd", "tom");
        },
        End::Attention,
    ),
    (
        "label by a maintainer who takes it off at once",
        "nina",
        |sim, n| {
            label(sim, n, "agentd", "ada");
            sim.set_label(0, n, "agentd", "ada", false);
        },
        End::Silence,
    ),
    (
        "label by a maintainer on what an outsider closes at once",
        "nina",
        |sim, n| {
            label(sim, n, "agentd", "ada");
            sim.set_open(0, n, false, None, "nina");
        },
        End::Silence,
    ),
    (
        "an old comment of a maintainer's, edited into a command",
        "nina",
        |sim, n| {
            let at = sim.now();
            let comment = of(sim, n).comments.first_mut().unwrap();
            (comment.body, comment.updated_at) = ("/agentd run".into(), at);
        },
        End::Silence,
    ),
];

const FIRST: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_rights_starts_a_run_whatever_they_do() {
    let world = world().await;
    {
        let mut sim = world.sim.world();
        for (place, (_, author, ..)) in ROWS.iter().enumerate() {
            let number = FIRST + place as u64;
            issue(&mut sim, number, author);
            sim.add_comment(0, number, "ada", "Let us see.");
        }
        issue(&mut sim, 99, "nina");
    }
    let daemon = daemon(&world).await;
    {
        let mut sim = world.sim.world();
        for (place, (.., attempt, _)) in ROWS.iter().enumerate() {
            attempt(&mut sim, FIRST + place as u64);
        }
        sim.repositories[0].collaborators.remove("rex");
        // What has to start shows that the daemon would have started the others.
        label(&mut sim, 99, "agentd", "ada");
    }
    until("what may start", || labels(&world, 99) == ["agentd:done"]).await;
    let asked = ROWS.iter().enumerate().filter(|(_, row)| row.3 == End::Attention);
    let asked: Vec<u64> = asked.map(|(place, _)| FIRST + place as u64).collect();
    until("who asked is told", || {
        asked.iter().all(|number| labels(&world, *number).contains(&"agentd:attention".to_owned()))
    })
    .await;
    // Long enough for every stranger to have been asked about.
    polled(&world, 6).await;
    let mut wrong = Vec::new();
    for (place, (name, .., end)) in ROWS.iter().enumerate() {
        let number = FIRST + place as u64;
        let (said, labels) = (said(&world, number), labels(&world, number));
        let words = match end {
            End::Silence => "nothing at all",
            End::Refusal => "has the permission",
            End::Attention => "agentd did not start on this issue",
        };
        let runs = told(&world, number).len();
        let works = ["agentd:done", "agentd:failed", "agentd:no-evidence"];
        let began = labels.iter().any(|label| works.contains(&label.as_str()));
        if runs > 0 || began || !said.iter().all(|text| text.contains(words)) {
            wrong.push(format!("{name}: {runs} requests to the model, {labels:?}, {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    daemon.stop().await;
    world.finish().await;
}
