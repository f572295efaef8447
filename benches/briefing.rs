//! What it takes to tell a model of a long conversation.
//!
//! `cargo bench --bench briefing`. A thread of 3,000 comments and 200 threads of a review, cleaned, folded and fenced as a
//! briefing does it, and halves and quarters of them. Twice as many comments take about twice the time, and what goes to the
//! model stays within its budget, whatever the number.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured and reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use agentd::config::conversation_file::ConversationTable;
use agentd::domain::fold::{folded, left_out};
use agentd::domain::shown_markdown::shown;
use agentd::domain::untrusted::{fence_with, without_marks};

/// How much longer twice as much may take: a square would take four times as long.
const MOST_GROWTH: f64 = 3.0;
/// Times that each is measured; the least counts.
const ROUNDS: usize = 5;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let rules = ConversationTable::default();
    let mut before: Option<Duration> = None;
    for part in [4, 2, 1] {
        let texts = conversation(3_000 / part, 200 / part);
        let least = (0..ROUNDS).map(|_| timed(&texts, &rules).0).min().unwrap_or_default();
        let characters = timed(&texts, &rules).1;
        println!("{:>5} texts: {least:>9.1?}, {characters} characters told", texts.len());
        assert!(characters <= rules.max_chars, "{characters} characters are over the budget");
        if let Some(before) = before.replace(least) {
            let growth = least.as_secs_f64() / before.as_secs_f64();
            assert!(growth < MOST_GROWTH, "twice as much takes {growth:.1} times as long");
        }
    }
    // A text that hides comments in comments, as deep as it goes, takes no longer than its length.
    let nested = |depth: usize| format!("{}{}", "<!".repeat(depth), "-- -->".repeat(depth));
    for depth in [1_000, 2_000, 4_000] {
        let (text, started) = (nested(depth), Instant::now());
        black_box(shown(&text));
        println!("comments in comments, {depth} deep: {:>9.1?}", started.elapsed());
    }
}

/// Comments with quotes, code, images and hidden words, and longer ones with a hunk before them.
fn conversation(comments: usize, threads: usize) -> Vec<String> {
    let words = "The total is wrong for `discounted 2000 10`; see [the test](tests/run.sh \"hidden\").\n\n> earlier words\n\n\
                 ```sh\nsh tests/run.sh\n```\n<!-- hidden --><img src=\"a/b.png\" alt=\"hidden\"> &amp; more\n";
    let comment = |number: usize| format!("Comment {number}.\n{words}");
    let thread = |number: usize| {
        format!("{}\nThread {number}.\n{}", "+ a line of a hunk\n".repeat(60), words.repeat(3))
    };
    (0..comments).map(comment).chain((0..threads).map(thread)).collect()
}

/// How long telling takes, and how many characters are told.
fn timed(texts: &[String], rules: &ConversationTable) -> (Duration, usize) {
    let started = Instant::now();
    let fenced: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(number, text)| {
            let clean = shown(text);
            let told =
                folded(&clean.text, rules.max_chars_each).map_or(clean.text.clone(), |fold| fold.text());
            let attributes = [("kind", "issue_comment"), ("login", "ada"), ("standing", "trusted")];
            fence_with(&attributes, &format!("comment-{number}"), &without_marks(&told), clean.taken_out)
        })
        .collect();
    let sizes: Vec<usize> = fenced.iter().map(|text| text.chars().count() + 2).collect();
    let gone = left_out(&sizes, rules.max_chars);
    let told =
        sizes.iter().enumerate().filter(|(place, _)| !gone.contains(place)).map(|(_, size)| size).sum();
    (black_box(started.elapsed()), told)
}
