//! Fences a remark, and folds it where it is too long.

use super::drafting::Drafting;
use super::heard::JudgedRemark;
use super::source::shown as time_shown;
use crate::domain::briefing::{BriefedText, Fate, UNTOLD};
use crate::domain::canonical::sha256_hex;
use crate::domain::fold::folded;
use crate::domain::remark::Standing;
use crate::domain::shown_markdown::{QUOTE_BEGINS, QUOTE_ENDS, shown};
use crate::domain::untrusted::{TakenOut, fence_with, without_marks};

/// The marks around a quote inside of a text.
const QUOTE_OPENS: &str = "<untrusted standing=\"quoted\">\n";
const QUOTE_CLOSES: &str = "\n</untrusted>\n";

/// A remark ready to be told.
pub struct ReadyRemark {
    /// Fenced, and folded by itself.
    pub fenced: String,
    /// The whole cleaned text, without marks of quotes.
    whole: String,
    /// Whether a part of it is left out.
    pub folded: bool,
    heard: JudgedRemark,
}

impl ReadyRemark {
    /// Cleans, redacts, folds and fences.
    pub fn new(draft: &Drafting<'_>, heard: JudgedRemark, longest: usize) -> Self {
        let clean = shown(&heard.remark.text);
        let marked = draft.redacted(&clean.text);
        let trusted = heard.judged.standing == Standing::Trusted;
        let whole = marked.replace([QUOTE_BEGINS, QUOTE_ENDS], "");
        let (text, is_folded) = match folded(if trusted { &marked } else { &whole }, longest) {
            Some(fold) => (fold.text(), true),
            None => (if trusted { marked } else { whole.clone() }, false),
        };
        let text = quotes_fenced(&without_marks(&text));
        let fenced = fenced(&heard, &text, clean.taken_out, is_folded && trusted);
        Self { fenced, whole, folded: is_folded, heard }
    }

    /// The remark.
    pub fn heard(&self) -> &JudgedRemark {
        &self.heard
    }

    /// Characters that telling it takes.
    pub fn size(&self) -> usize {
        self.fenced.chars().count() + 2
    }

    /// Notes in the manifest what became of it, and keeps what is untold of a trusted text.
    pub fn note(&self, draft: &mut Drafting<'_>, whole_left_out: bool) {
        let trusted = self.heard.judged.standing == Standing::Trusted;
        let untold = whole_left_out || self.folded;
        let kept = untold && trusted && draft.keep_untold(&heading(&self.heard), &self.whole);
        let (fate, why) = match (untold, whole_left_out) {
            (false, _) => (Fate::Told, None),
            (true, true) if !kept => (Fate::LeftOut, Some("over_budget")),
            (true, true) => (Fate::Folded, Some("over_budget")),
            (true, false) => (Fate::Folded, Some("too_long")),
        };
        if fate != Fate::LeftOut {
            draft.tells(&self.heard.remark);
        }
        draft.note(manifest(&self.heard, &self.whole, fate, why));
    }
}

/// The entry of a remark that is not told.
pub fn left_out(draft: &Drafting<'_>, heard: &JudgedRemark, why: &str) -> BriefedText {
    let text = draft.redacted(&heard.remark.text);
    manifest(heard, &text, Fate::LeftOut, Some(why))
}

fn manifest(heard: &JudgedRemark, text: &str, fate: Fate, why: Option<&str>) -> BriefedText {
    let remark = &heard.remark;
    BriefedText {
        kind: remark.kind.as_str().to_owned(),
        id: remark.id.to_string(),
        url: remark.url.clone(),
        login: remark.login.clone(),
        standing: Some(heard.judged.standing),
        permission: heard.judged.permission.map(|may| may.as_str().to_owned()),
        created: Some(time_shown(remark.created)),
        edited: remark.edited.map(time_shown),
        sha256: sha256_hex(text.as_bytes()),
        characters: text.chars().count(),
        fate,
        why: why.map(str::to_owned),
    }
}

fn heading(heard: &JudgedRemark) -> String {
    let remark = &heard.remark;
    format!(
        "{} ({}, {}, {})",
        remark.id,
        remark.kind,
        remark.login.as_deref().unwrap_or("a deleted account"),
        time_shown(remark.created)
    )
}

fn fenced(heard: &JudgedRemark, text: &str, taken_out: TakenOut, readable: bool) -> String {
    let remark = &heard.remark;
    let mut notes = Vec::new();
    if heard.after {
        notes.push("written after the label".to_owned());
    }
    if heard.edited_after
        && let Some(edited) = remark.edited
    {
        let by = remark.editor.as_deref().unwrap_or("somebody");
        notes.push(format!("edited by {by} at {}", time_shown(edited)));
    }
    if readable {
        notes.push(format!("folded; tool_output reads all of it by the handle {UNTOLD}"));
    }
    let time = time_shown(remark.created);
    let state = remark.state.map_or("", |state| state.as_str());
    let notes = notes.join("; ");
    let attributes = [
        ("kind", remark.kind.as_str()),
        ("login", remark.login.as_deref().unwrap_or("a deleted account")),
        ("standing", heard.judged.standing.as_str()),
        ("time", &time),
        ("state", state),
        ("note", &notes),
    ];
    fence_with(&attributes, &remark.id.to_string(), text, taken_out)
}

/// A trusted text that is told by itself, cleaned, cut to `longest` characters and fenced as those of a briefing are. `source` says in
/// agentd's words whose text it is.
pub fn fenced_alone(source: &str, text: &str, longest: usize) -> String {
    let mut clean = shown(text);
    if let Some((at, _)) = clean.text.char_indices().nth(longest) {
        clean.taken_out.cut = clean.text[at..].chars().count();
        clean.text.truncate(at);
    }
    let id = &sha256_hex(clean.text.as_bytes())[..12];
    let text = quotes_fenced(&without_marks(&clean.text));
    fence_with(&[("source", source)], id, &text, clean.taken_out)
}

/// A text that people approved in the place of an agent's own one: as it is shown, with its quotes fenced.
pub fn with_quotes_fenced(text: &str) -> String {
    quotes_fenced(&without_marks(&shown(text).text))
}

/// Puts quotes into fences of their own. Where folding took one of a pair of marks, it is put back.
fn quotes_fenced(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut open = false;
    let mut rest = text;
    while let Some(at) = rest.find([QUOTE_BEGINS, QUOTE_ENDS]) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match (from.starts_with(QUOTE_BEGINS), open) {
            (true, false) => {
                out.push_str(QUOTE_OPENS);
                open = true;
            }
            (false, true) => {
                close(&mut out);
                open = false;
            }
            // Its beginning is in the part that is left out: what came since the fold is the quote's end.
            (false, false) => {
                let since = out.rfind("left out …]\n").map_or(0, |at| at + "left out …]\n".len());
                out.insert_str(since, QUOTE_OPENS);
                close(&mut out);
            }
            (true, true) => {}
        }
        rest = &from[QUOTE_BEGINS.len_utf8()..];
    }
    out.push_str(rest);
    if open {
        close(&mut out);
    }
    out
}

fn close(out: &mut String) {
    out.truncate(out.trim_end_matches('\n').len());
    out.push_str(QUOTE_CLOSES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quote_has_its_own_fence_even_where_a_fold_took_one_mark() {
        let mark =
            |text: &str| text.replace('«', &QUOTE_BEGINS.to_string()).replace('»', &QUOTE_ENDS.to_string());
        let opened = |text: &str| quotes_fenced(&mark(text));
        assert_eq!(opened("a\n«> b\n»c"), "a\n<untrusted standing=\"quoted\">\n> b\n</untrusted>\nc");
        for cut in
            ["a «> b", "a\n[… 5 characters left out …]\n> b» c", "«> b\n[… 5 characters left out …]\n> c» d"]
        {
            let found = opened(cut);
            assert_eq!(
                found.matches("<untrusted ").count(),
                found.matches("</untrusted>").count(),
                "{found}"
            );
            assert_eq!(found.matches("<untrusted ").count(), 1, "{found}");
        }
    }

    #[test]
    fn a_text_that_is_told_by_itself_has_its_quotes_fenced_and_nothing_that_is_not_shown() {
        let told = fenced_alone("answer", "> Do it.\n\nNo: <img alt=\"do it\" src=\"x.png\"> look.", 1_000);
        assert!(told.starts_with("<untrusted source=\"answer\" id="), "{told}");
        assert!(told.contains("<untrusted standing=\"quoted\">\n> Do it.\n</untrusted>"), "{told}");
        assert!(!told.contains("do it") && told.contains("attributes that are not shown"), "{told}");
        assert!(
            fenced_alone("answer", &"é".repeat(50), 20)
                .ends_with("(Left out of it: 30 characters at the end.)")
        );
    }
}
