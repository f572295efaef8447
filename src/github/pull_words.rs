//! Title and body of a pull request. What people changed of them since agentd set them stays; agentd's own words are brought up to date
//! where they still stand as agentd wrote them.

use std::ops::Range;

use super::pulls::{Pull, PullSpec};
use crate::domain::canonical::sha256_hex;
use crate::domain::outgoing::{LONGEST_BODY, cut};

/// How the comment begins that says what agentd made of a pull request last.
const SET: &str = "<!-- agentd:set ";
const END: &str = " -->";
/// As many characters of a hash tell two texts apart.
const DIGITS: usize = 16;
/// So many lines of people's above agentd's words are looked behind.
const MOST_ABOVE: usize = 2_000;
const SHORTENED: &str = "*Shortened: GitHub takes no longer text. The rest is in the run's report.*";

/// What agentd made of a pull request last, as a comment in its body says that nobody sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetLast {
    /// Whether it is a draft.
    pub draft: bool,
    /// Its base branch.
    pub base: String,
    /// Hash of its title.
    title: Option<String>,
    /// How many lines agentd's words in its body have, and their hash.
    words: Option<(usize, String)>,
}

impl SetLast {
    pub(super) fn of(body: &str) -> Option<Self> {
        Some(Self::read(body)?.1)
    }

    fn read(body: &str) -> Option<(Range<usize>, Self)> {
        let at = body.rfind(SET)?;
        let said = body[at + SET.len()..].split_once(END)?.0;
        let mut parts = said.split(' ');
        let (draft, base) = (parts.next()? == "draft", parts.next()?.to_owned());
        let title = parts.next().map(str::to_owned);
        let words = parts.next().and_then(|words| {
            let (lines, hash) = words.split_once(':')?;
            Some((lines.parse().ok()?, hash.to_owned()))
        });
        Some((at..at + SET.len() + said.len() + END.len(), Self { draft, base, title, words }))
    }

    fn comment(&self) -> String {
        let draft = if self.draft { "draft" } else { "ready" };
        let mut said = format!("{SET}{draft} {}", self.base);
        if let Some(title) = &self.title {
            said += &format!(" {title}");
        }
        if let Some((lines, hash)) = self.words.as_ref().filter(|_| self.title.is_some()) {
            said += &format!(" {lines}:{hash}");
        }
        said + END
    }
}

/// What a pull request should be called and say, with what is remembered of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub title: String,
    pub body: String,
    /// Whether people changed agentd's own words, so that these are no longer brought up to date.
    pub is_peoples: bool,
}

/// The words of a new pull request.
pub(super) fn of_new(spec: &PullSpec, draft: bool) -> Words {
    put(String::new(), "", &remembered(spec, draft), (spec, None))
}

/// The words of one that is there.
pub(super) fn of_known(pull: &Pull, spec: &PullSpec, draft: bool) -> Words {
    let words = beside_peoples(pull, spec, draft);
    match words.body.chars().count() > LONGEST_BODY {
        // There is no room beside what people wrote.
        true => Words { body: pull.body.clone(), is_peoples: true, ..words },
        false => words,
    }
}

fn beside_peoples(pull: &Pull, spec: &PullSpec, draft: bool) -> Words {
    // The web page writes line ends so.
    let body = pull.body.replace("\r\n", "\n");
    let set = remembered(spec, draft);
    let Some((at, last)) = SetLast::read(&body) else {
        // A person opened it, or wrote everything anew: then what agentd has to say of its work stands below.
        let own = if body.trim().is_empty() { String::new() } else { format!("{}\n\n", body.trim_end()) };
        return put(own, "", &set, (spec, Some(&pull.title)));
    };
    let title = Some(&pull.title).filter(|title| last.title != Some(hash(title)));
    let (before, after) = (&body[..at.start], &body[at.end..]);
    let own = match &last.words {
        Some((lines, hash)) => standing(before, *lines, hash),
        // An earlier agentd did not note them.
        None => Some(0..before.len()),
    };
    match own {
        Some(own) => {
            let (above, below) = (&before[..own.start], before[own.end..].trim_end());
            let after = match below.trim().is_empty() {
                true => after.to_owned(),
                false => format!("\n{}{after}", below.trim_start_matches('\n')),
            };
            put(above.to_owned(), &after, &set, (spec, title))
        }
        None => {
            // Should they stand there again, they are agentd's again.
            let comment = SetLast { words: last.words, ..set }.comment();
            let title = title.unwrap_or(&spec.title).clone();
            Words { title, body: format!("{before}{comment}{after}"), is_peoples: true }
        }
    }
}

fn remembered(spec: &PullSpec, draft: bool) -> SetLast {
    SetLast { draft, base: spec.base.to_string(), title: Some(hash(&spec.title)), words: None }
}

/// Agentd's words, with the comment behind them, between those of people. They make room where GitHub takes no more.
fn put(above: String, below: &str, set: &SetLast, (spec, title): (&PullSpec, Option<&String>)) -> Words {
    let longest = SetLast { words: Some((LONGEST_BODY, "0".repeat(DIGITS))), ..set.clone() }.comment();
    let taken: usize = [&above, below, &longest, "\n\n"].map(|text| text.chars().count()).iter().sum();
    let own = cut(spec.body.trim_end(), LONGEST_BODY.saturating_sub(taken), SHORTENED).trim_end().to_owned();
    let set = SetLast { words: Some((own.lines().count(), hash(&own))), ..set.clone() };
    let body = format!("{above}{own}\n\n{}{below}", set.comment());
    Words { title: title.unwrap_or(&spec.title).clone(), body, is_peoples: false }
}

/// Where so many lines stand together that have this hash.
fn standing(text: &str, lines: usize, wanted: &str) -> Option<Range<usize>> {
    let mut begins = vec![0];
    begins.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    begins.push(text.len() + 1);
    begins.windows(lines.max(1).saturating_add(1)).take(MOST_ABOVE).find_map(|window| {
        let own = *window.first()?..*window.last()? - 1;
        (hash(&text[own.clone()]) == wanted).then_some(own)
    })
}

fn hash(text: &str) -> String {
    let mut hash = sha256_hex(text.trim().as_bytes());
    hash.truncate(DIGITS);
    hash
}
