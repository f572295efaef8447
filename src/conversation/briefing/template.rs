//! The pull request template of the origin commit: told to the model, and the frame of the pull request's text.

use pulldown_cmark::{Event, Parser, Tag};

use super::drafting::{Drafting, of_file};
use super::source::Source;
use crate::domain::briefing::{Block, Fate};
use crate::domain::fold::folded;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::refusal::Refusal;
use crate::domain::shown_markdown::options;
use crate::domain::stop::StopDetail;
use crate::domain::untrusted::{fence_with, plain, without_marks};
use crate::git::tree_files::{TreeEntry, TreeFile};
use crate::repository::context::RepositoryContext;

/// Characters of a template that are used.
const LONGEST: usize = 20_000;

/// Reads the template, and writes it for the model.
///
/// # Errors
/// Git could not be read, or the template that the configuration names is not there.
pub async fn write(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    context: &RepositoryContext,
) -> Result<Option<String>, Refusal> {
    let Some((path, text)) = read((&source.origin.branch, &source.origin.commit), context).await? else {
        return Ok(None);
    };
    let text = draft.redacted(&text);
    let text = folded(&text, LONGEST).map_or(text.clone(), |fold| fold.text());
    // What GitHub hides in it tells authors what to write: here it is for the model.
    let fenced = fence_with(
        &[("kind", "pull_request_template")],
        &path,
        &without_marks(&plain(&text.replace("<!--", "(").replace("-->", ")"), LONGEST).text),
        Default::default(),
    );
    draft.add(
        Block::PullRequestTemplate,
        &format!(
            "The form of pull requests in this repository. If the last report of the flow has `pull_request_body`, fill these \
             headings there, in this order; tick a box only if it is true.\n{fenced}"
        ),
    );
    draft.note(of_file("pull_request_template", &path, &text, (Fate::Told, None)));
    Ok(Some(text))
}

/// The template of a commit of the origin branch: its path and text. `None` = the repository has none.
///
/// # Errors
/// Git could not be read, or what the configuration names is no text file of that commit.
pub async fn read(
    (branch, commit): (&BranchName, &CommitId),
    context: &RepositoryContext,
) -> Result<Option<(String, String)>, Refusal> {
    let named = context.config.conversation.pull_request_template.trim().trim_start_matches("./").to_owned();
    let wanted = named.clone();
    let is_wanted = move |path: &str| if wanted.is_empty() { rank(path).is_some() } else { path == wanted };
    let mut files = context.checkout.tree_files(commit, is_wanted).await?;
    files.sort_by_key(|file| rank(&file.path));
    match files.into_iter().next() {
        Some(TreeFile { path, found: TreeEntry::Text { text, .. } }) => Ok(Some((path, text))),
        _ if named.is_empty() => Ok(None),
        _ => {
            let message = format!(
                "There is no text file {named} in the origin branch {branch} at {}, and conversation.pull_request_template names it.",
                commit.short()
            );
            Err(Refusal::new(StopDetail::ConfigInvalid, message)
                .hint("set conversation.pull_request_template to a file of that branch, or to \"\""))
        }
    }
}

/// GitHub's places for the only template, the first one counting. `None` = another file.
fn rank(path: &str) -> Option<usize> {
    let path = path.to_ascii_lowercase();
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let place = [".github", "", "docs"].iter().position(|place| *place == folder)?;
    ["pull_request_template.md", "pull_request_template.txt", "pull_request_template"]
        .contains(&name)
        .then_some(place)
}

/// The text of a pull request in the frame of its template: the template's headings in their order, filled from `said`.
/// Boxes stay as the template has them, and unticked, unless `said` ticks them.
pub fn filled(template: &str, said: &str) -> String {
    let (frame, said) = (sections(template), sections(said));
    let mut used = vec![false; said.len()];
    // A text without headings is about the first one.
    let headless = said.len() == 1 && said[0].heading.is_none();
    let mut out = String::new();
    for (place, section) in frame.iter().enumerate() {
        let first_headed = frame.iter().position(|section| section.heading.is_some()).unwrap_or(0);
        let found = if headless {
            (place == first_headed).then_some(0)
        } else {
            said.iter().position(|other| other.key() == section.key())
        };
        let content = match found {
            Some(at) if !std::mem::replace(&mut used[at], true) => {
                with_boxes(section.content, said[at].content)
            }
            _ => unticked(section.content),
        };
        if let Some(heading) = section.heading {
            out.push_str(heading.trim_end());
            out.push_str("\n\n");
        }
        out.push_str(content.trim());
        out.push_str("\n\n");
    }
    // What fits none of the template's headings is not lost.
    for (section, _) in
        said.iter().zip(used).filter(|(section, used)| !used && !section.content.trim().is_empty())
    {
        if let Some(heading) = section.heading {
            out.push_str(heading.trim_end());
            out.push_str("\n\n");
        }
        out.push_str(section.content.trim());
        out.push_str("\n\n");
    }
    format!("{}\n", out.trim())
}

/// A heading as it is written, and what stands below.
struct Section<'a> {
    heading: Option<&'a str>,
    content: &'a str,
}

impl Section<'_> {
    /// Headings are the same whatever their level, case and marks.
    fn key(&self) -> Option<String> {
        let plain = |c: &char| c.is_alphanumeric() || c.is_whitespace();
        let words: String = self.heading?.to_lowercase().chars().filter(plain).collect();
        Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let headings: Vec<_> = Parser::new_ext(text, options())
        .into_offset_iter()
        .filter(|(event, _)| matches!(event, Event::Start(Tag::Heading { .. })))
        .map(|(_, range)| range)
        .collect();
    let first = headings.first().map_or(text.len(), |range| range.start);
    let mut found = Vec::new();
    if !text[..first].trim().is_empty() || headings.is_empty() {
        found.push(Section { heading: None, content: &text[..first] });
    }
    for (place, range) in headings.iter().enumerate() {
        let end = headings.get(place + 1).map_or(text.len(), |next| next.start);
        found.push(Section { heading: Some(&text[range.clone()]), content: &text[range.end..end] });
    }
    found
}

/// The words of a line `- [ ] words`, and whether it is ticked.
fn box_of(line: &str) -> Option<(bool, &str)> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix(['-', '*', '+'])?.trim_start().strip_prefix('[')?;
    let (mark, words) = rest.split_once(']')?;
    match mark {
        " " | "" => Some((false, words.trim())),
        "x" | "X" => Some((true, words.trim())),
        _ => None,
    }
}

fn unticked(content: &str) -> String {
    let lines = content.lines().map(|line| match box_of(line) {
        Some((true, _)) => line.replacen("[x]", "[ ]", 1).replacen("[X]", "[ ]", 1),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What is said, and below it the template's boxes that it does not speak of.
fn with_boxes(template: &str, said: &str) -> String {
    let spoken: Vec<&str> = said.lines().filter_map(box_of).map(|(_, words)| words).collect();
    let missing: Vec<String> = template
        .lines()
        .filter(|line| box_of(line).is_some_and(|(_, words)| !spoken.contains(&words)))
        .map(unticked)
        .collect();
    let said = said.trim();
    let between = match (said.is_empty() || missing.is_empty(), spoken.is_empty()) {
        (true, _) => "",
        (false, true) => "\n\n",
        (false, false) => "\n",
    };
    format!("{said}{between}{}", missing.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str =
        "Thanks!\n\n## What\n\n<!-- say it -->\n\n## Check list\n\n- [x] tests\n- [ ] docs\n";

    #[test]
    fn headings_stay_in_order_and_boxes_are_ticked_only_by_the_text() {
        let said = "## Check list\n- [x] docs\n\n# what:\nA change.\n## More\nwords\n";
        let wanted = "Thanks!\n\n## What\n\nA change.\n\n## Check list\n\n- [x] docs\n- [ ] tests\n\n## More\n\nwords\n";
        assert_eq!(filled(TEMPLATE, said), wanted);
        let wanted = "Thanks!\n\n## What\n\nOnly words.\n\n## Check list\n\n- [ ] tests\n- [ ] docs\n";
        assert_eq!(filled(TEMPLATE, "Only words.\n"), wanted);
        assert!(filled(TEMPLATE, "").contains("## What\n\n\n"), "{}", filled(TEMPLATE, ""));
    }

    #[test]
    fn only_githubs_places_count_and_the_first_one_first() {
        assert!(rank(".github/PULL_REQUEST_TEMPLATE.md") < rank("pull_request_template.md"));
        assert!(rank("PULL_REQUEST_TEMPLATE.md") < rank("docs/pull_request_template.md"));
        for other in ["src/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE/a.md", "template.md"] {
            assert_eq!(rank(other), None, "{other}");
        }
    }
}
