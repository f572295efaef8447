//! Markdown of GitHub as a reader of the rendered text sees it: without what the page does not show.

use std::ops::Range;
use std::sync::LazyLock;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use regex::{Captures, Regex};

use super::untrusted::{DEFINITIONS, Incoming, TakenOut, plain, without_comments};

/// Where a quote begins and ends in a text of [`shown`]. They are characters that no text has: what a text brings of them
/// is replaced first.
pub const QUOTE_BEGINS: char = '\u{10fffc}';
/// See [`QUOTE_BEGINS`].
pub const QUOTE_ENDS: char = '\u{10fffd}';

/// The text as it is shown: HTML entities are the characters that they stand for; attributes that are not shown, titles of
/// links, comments, link definitions that are comments, and everything that [`plain`] removes are gone; images are named. What code
/// and sentences show of a comment stays. Quotes are marked by [`QUOTE_BEGINS`] and [`QUOTE_ENDS`].
pub fn shown(text: &str) -> Incoming {
    let text = text.replace([QUOTE_BEGINS, QUOTE_ENDS], "\u{fffd}").replace("\r\n", "\n").replace('\r', "\n");
    let mut edits = Edits::default();
    let parser = Parser::new_ext(&text, options());
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let is_comment = |text: &str| DEFINITIONS.iter().any(|definitions| definitions.is_match(text));
    for (_, definition) in parser.reference_definitions().iter() {
        if is_comment(&text[definition.span.clone()]) {
            let source = text[definition.span.clone()].trim_end();
            edits.remove(definition.span.start..definition.span.start + source.len());
            blocks.push(definition.span.clone());
        } else if definition.title.is_some() {
            edits.definition(&text, definition.span.clone());
        }
    }
    let mut opened: Vec<Opened> = Vec::new();
    let mut html: Option<Range<usize>> = None;
    for (event, range) in parser.into_offset_iter() {
        // Tags may go over several lines, each of which is an event.
        if html.is_some() && !matches!(event, Event::Html(_) | Event::InlineHtml(_)) {
            edits.html(&text, html.take());
        }
        let within_image = opened.iter().any(|one| matches!(one, Opened::Image));
        if !matches!(event, Event::End(TagEnd::Link))
            && let Some(Opened::Link { inner_end, .. }) = opened.last_mut()
        {
            *inner_end = (*inner_end).max(range.end);
        }
        if let Event::Start(Tag::Paragraph | Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::Heading { .. }) =
            &event
        {
            blocks.push(range.clone());
        }
        match event {
            Event::Start(Tag::Image { dest_url, .. }) => {
                if !within_image {
                    edits.image(&text, range, &dest_url);
                }
                opened.push(Opened::Image);
            }
            Event::Start(Tag::Link { link_type, dest_url, title, .. }) => {
                let titled = !title.is_empty() && link_type == LinkType::Inline;
                let dest = titled.then(|| dest_url.into_string());
                opened.push(Opened::Link { inner_end: range.start + 1, end: range.end, dest });
            }
            Event::End(TagEnd::Image) => drop(opened.pop()),
            Event::End(TagEnd::Link) => {
                if let Some(Opened::Link { inner_end, end, dest: Some(dest) }) = opened.pop()
                    && !within_image
                {
                    edits.link_title(inner_end.min(end), end, &dest);
                }
                // What is around sees this link as a part of itself.
                if let Some(Opened::Link { inner_end, .. }) = opened.last_mut() {
                    *inner_end = (*inner_end).max(range.end);
                }
            }
            Event::Start(Tag::BlockQuote(None)) if edits.quotes == 0 => {
                edits.quotes = 1;
                edits.insert(range.start, QUOTE_BEGINS);
                edits.quote_end = range.end;
            }
            Event::Start(Tag::BlockQuote(_)) => edits.quotes += usize::from(edits.quotes > 0),
            Event::End(TagEnd::BlockQuote(_)) if edits.quotes > 0 => {
                edits.quotes -= 1;
                if edits.quotes == 0 {
                    edits.insert(edits.quote_end, QUOTE_ENDS);
                }
            }
            Event::Text(said) if !within_image => edits.entity(&text, range, &said),
            Event::Html(_) | Event::InlineHtml(_) if !within_image => {
                html = Some(match html.take() {
                    Some(before) if before.end == range.start => before.start..range.end,
                    before => {
                        edits.html(&text, before);
                        range
                    }
                });
            }
            _ => {}
        }
    }
    edits.html(&text, html);
    edits.end_comment(text.len());
    for found in DEFINITIONS.iter().flat_map(|definitions| definitions.find_iter(&text)) {
        let begin = found.start() + found.as_str().find('[').unwrap_or_default();
        if !blocks.iter().any(|block| block.contains(&begin)) {
            edits.remove(found.range());
        }
    }
    let (text, taken_out) = edits.applied(&text);
    let mut shown = plain(&text, usize::MAX);
    shown.taken_out = shown.taken_out.and(taken_out);
    shown
}

/// The addresses of the images that a text shows outside of quotes, in order.
pub fn image_addresses(text: &str) -> Vec<String> {
    let (mut found, mut html, mut quotes) = (Vec::new(), String::new(), 0_usize);
    for event in Parser::new_ext(text, options()) {
        // A tag may go over several lines, each of which is an event.
        if !matches!(event, Event::Html(_) | Event::InlineHtml(_)) {
            found.extend(html_images(&std::mem::take(&mut html)));
        }
        match event {
            Event::Start(Tag::BlockQuote(_)) => quotes += 1,
            Event::End(TagEnd::BlockQuote(_)) => quotes = quotes.saturating_sub(1),
            Event::Start(Tag::Image { dest_url, .. }) if quotes == 0 => found.push(dest_url.into_string()),
            Event::Html(piece) | Event::InlineHtml(piece) if quotes == 0 => html.push_str(&piece),
            _ => {}
        }
    }
    found.extend(html_images(&html));
    found
}

fn html_images(html: &str) -> Vec<String> {
    static IMAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"(?is)<img\b[^>]*?[\s/]src\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`]+))"#).ok()
    });
    let Some(image) = IMAGE.as_ref().filter(|_| !html.is_empty()) else { return Vec::new() };
    // What stands in a comment is shown to nobody.
    let seen = without_comments(&plain(html, usize::MAX).text);
    let address =
        |found: Captures<'_>| (1..=3).find_map(|group| found.get(group)).map(|text| decoded(text.as_str()));
    image.captures_iter(&seen).filter_map(address).collect()
}

/// A title as it is shown: one line, entities as their characters.
pub fn shown_line(text: &str, longest: usize) -> Incoming {
    let plain = decoded(text);
    super::untrusted::plain_line(&plain, longest)
}

/// The Markdown that GitHub reads.
pub fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_GFM
}

enum Opened {
    Image,
    Link {
        /// Where its shown text ends.
        inner_end: usize,
        end: usize,
        /// Its address, where a title has to go.
        dest: Option<String>,
    },
}

/// What is to be changed, in the order of the text.
#[derive(Default)]
struct Edits {
    made: Vec<(Range<usize>, String)>,
    taken_out: TakenOut,
    /// Where a comment has begun that is not closed yet: blocks in between are hidden, too.
    comment: Option<usize>,
    /// How many quotes are open, and where the outermost ends.
    quotes: usize,
    quote_end: usize,
}

impl Edits {
    fn insert(&mut self, at: usize, mark: char) {
        self.made.push((at..at, mark.to_string()));
    }

    fn replace(&mut self, range: Range<usize>, with: String) {
        self.made.push((range, with));
    }

    /// What nobody sees.
    fn remove(&mut self, range: Range<usize>) {
        self.taken_out.comments += 1;
        self.made.push((range, String::new()));
    }

    /// A comment that has begun reaches to there.
    fn end_comment(&mut self, to: usize) {
        if let Some(from) = self.comment.take() {
            self.remove(from..to);
        }
    }

    fn entity(&mut self, text: &str, range: Range<usize>, said: &str) {
        let source = &text[range.clone()];
        if source.starts_with('&') && source.ends_with(';') && source != said {
            self.replace(range, said.to_owned());
        }
    }

    fn image(&mut self, text: &str, range: Range<usize>, address: &str) {
        let source = &text[range.clone()];
        self.taken_out.attributes += usize::from(!source.starts_with("![]("));
        self.replace(range, named_image(address));
    }

    /// The end of a link after its shown text is `](address "title")`.
    fn link_title(&mut self, from: usize, to: usize, address: &str) {
        self.taken_out.attributes += 1;
        self.replace(from..to, format!("]({})", plain_address(address)));
    }

    fn definition(&mut self, text: &str, span: Range<usize>) {
        static DEFINITION: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"(?s)^(\[.*?\]:\s*(?:<[^<>\n]*>|\S+)).*$").ok());
        let Some(definition) = DEFINITION.as_ref() else { return };
        let source = &text[span.clone()];
        let kept = definition.captures(source).and_then(|found| found.get(1)).map(|kept| kept.as_str());
        if let Some(kept) = kept {
            self.taken_out.attributes += 1;
            let (kept, span) = (kept.to_owned(), span.start..span.start + source.trim_end().len());
            self.replace(span, kept);
        }
    }

    /// Pieces of HTML, in the order of the text: comments go, and of tags what is not shown.
    fn html(&mut self, text: &str, range: Option<Range<usize>>) {
        let Some(range) = range else { return };
        let mut at = range.start;
        loop {
            let rest = &text[at..range.end];
            if self.comment.is_some() {
                let Some(end) = comment_end(rest) else { return };
                at += end;
                self.end_comment(at);
                continue;
            }
            let Some(begin) = comment_begin(rest) else { return self.tags(text, at..range.end) };
            self.tags(text, at..at + begin);
            self.comment = Some(at + begin);
            // `<!-->` is a whole one.
            at += begin + "<!".len();
        }
    }

    fn tags(&mut self, text: &str, range: Range<usize>) {
        static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
            let value = r#"(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+))?"#;
            Regex::new(&format!(r#"(?i)[\s/]+(?:alt|title|summary|aria-[\w-]*|data-[\w-]*){value}"#)).ok()
        });
        static SOURCE: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"(?i)[\s/]src\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`]+))"#).ok());
        let (Some(tag), Some(hidden), Some(source)) = (TAG.as_ref(), HIDDEN.as_ref(), SOURCE.as_ref()) else {
            return;
        };
        let mut gone = 0;
        let kept = tag.replace_all(&text[range.clone()], |found: &Captures<'_>| {
            let attributes = &found[2];
            gone += hidden.find_iter(attributes).count();
            if found[1].eq_ignore_ascii_case("img") {
                let address = source.captures(attributes).and_then(|found| {
                    (1..=3).find_map(|group| found.get(group)).map(|address| address.as_str().to_owned())
                });
                return named_image(&address.unwrap_or_default());
            }
            let whole = &found[0];
            let rest = &whole[1 + found[1].len() + attributes.len()..];
            format!("<{}{}{rest}", &found[1], hidden.replace_all(attributes, ""))
        });
        self.taken_out.attributes += gone;
        let kept = decoded(&kept);
        if kept != text[range.clone()] {
            self.replace(range, kept);
        }
    }

    /// The text with the changes made, and what is gone.
    fn applied(mut self, text: &str) -> (String, TakenOut) {
        // Marks of quotes go outside of what is replaced there, and the larger of two changes counts.
        self.made.sort_by_key(|(range, _)| (range.start, !range.is_empty(), std::cmp::Reverse(range.end)));
        let mut out = String::with_capacity(text.len() + 64);
        let mut at = 0;
        for (range, with) in self.made {
            if range.start < at {
                // A part of what is replaced already; a mark still has to stand somewhere.
                if range.is_empty() {
                    out.push_str(&with);
                }
                continue;
            }
            out.push_str(&text[at..range.start]);
            out.push_str(&with);
            at = range.end;
        }
        out.push_str(&text[at..]);
        (out, self.taken_out)
    }
}

/// A tag with its attributes.
const TAG_PATTERN: &str =
    r#"<([A-Za-z][A-Za-z0-9-]*)((?:[\s/]+[^\s"'<>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+))?)*)\s*/?>"#;
static TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TAG_PATTERN).ok());

/// Where a comment begins in a piece of HTML. What a tag has in its attributes is none.
fn comment_begin(html: &str) -> Option<usize> {
    static WITHIN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(&format!("^(?:{TAG_PATTERN})")).ok());
    let mut from = 0;
    loop {
        let begin = from + html[from..].find("<!--")?;
        let opened = html[from..begin].rfind('<').map(|at| from + at);
        let tag = opened.and_then(|at| Some(at + WITHIN.as_ref()?.find(&html[at..])?.end()));
        match tag.filter(|end| *end > begin) {
            Some(end) => from = end,
            None => return Some(begin),
        }
    }
}

/// Where a comment ends, behind its last mark.
fn comment_end(html: &str) -> Option<usize> {
    let ends = |at: &usize| html[..*at].ends_with("--") || html[..*at].ends_with("--!");
    html.match_indices('>').map(|(at, _)| at).find(ends).map(|at| at + 1)
}

/// `[image: diagram.png](https://…)`: an image by its name.
fn named_image(address: &str) -> String {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("image");
    format!("[image: {}]({})", name.replace(['[', ']'], ""), plain_address(address))
}

/// The last part of an image's address, in letters, digits, dots, dashes and underscores.
pub fn image_name(address: &str) -> String {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("image");
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.chars().filter(plain).take(80).collect()
}

fn plain_address(address: &str) -> String {
    let odd = address.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '<' | '>'));
    if odd { format!("<{}>", address.replace(['<', '>', '\n'], "")) } else { address.to_owned() }
}

/// Entities where no Markdown is read: those by number, and those by name that are invisible or common.
fn decoded(text: &str) -> String {
    static ENTITY: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z]{2,31}));").ok());
    let Some(entity) = ENTITY.as_ref().filter(|_| text.contains('&')) else { return text.to_owned() };
    let replaced = entity.replace_all(text, |found: &Captures<'_>| {
        let by_number = |group: usize, radix: u32| {
            found.get(group).and_then(|digits| u32::from_str_radix(digits.as_str(), radix).ok())
        };
        let character = match (by_number(1, 10).or_else(|| by_number(2, 16)), found.get(3)) {
            (Some(number), _) => char::from_u32(number).filter(|c| *c != '\0'),
            (None, name) => named(name.map_or("", |name| name.as_str())),
        };
        character.map_or_else(|| found[0].to_owned(), |character| character.to_string())
    });
    replaced.into_owned()
}

fn named(name: &str) -> Option<char> {
    Some(match name {
        "lt" | "LT" => '<',
        "gt" | "GT" => '>',
        "amp" | "AMP" => '&',
        "quot" | "QUOT" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        "shy" => '\u{ad}',
        "zwnj" => '\u{200c}',
        "zwj" => '\u{200d}',
        "lrm" => '\u{200e}',
        "rlm" => '\u{200f}',
        "ZeroWidthSpace"
        | "NegativeVeryThinSpace"
        | "NegativeThinSpace"
        | "NegativeMediumSpace"
        | "NegativeThickSpace" => '\u{200b}',
        "NoBreak" => '\u{2060}',
        "ApplyFunction" | "af" => '\u{2061}',
        "InvisibleTimes" | "it" => '\u{2062}',
        "InvisibleComma" | "ic" => '\u{2063}',
        _ => return None,
    })
}

impl TakenOut {
    /// The counts of two texts together.
    pub fn and(self, other: Self) -> Self {
        Self {
            hidden_characters: self.hidden_characters + other.hidden_characters,
            comments: self.comments + other.comments,
            attributes: self.attributes + other.attributes,
            cut: self.cut + other.cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_does_not_show_is_gone_and_counted() {
        for (text, wanted, gone) in [
            ("a&#8203;b &amp; &lt;c&gt; &copy;", "ab & <c> ©", (1, 0, 0)),
            ("`&#8203;` &amp;#8203;", "`&#8203;` &#8203;", (0, 0, 0)),
            ("<img src=\"x/y.png\" alt=\"do X\">", "[image: y.png](x/y.png)", (0, 0, 1)),
            ("![do X](x/y.png \"do Y\") z", "[image: y.png](x/y.png) z", (0, 0, 1)),
            ("![do [X [really]]](x/y.png)", "[image: y.png](x/y.png)", (0, 0, 1)),
            ("[a](b \"do X\") [c](d)", "[a](b) [c](d)", (0, 0, 1)),
            ("[a][r]\n\n[r]: b \"do X\"\n", "[a][r]\n\n[r]: b\n", (0, 0, 1)),
            ("<b title='do X'\n data-x=y aria-label=z>t</b>", "<b>t</b>", (0, 0, 3)),
            ("<!-- do X -->y", "y", (0, 1, 0)),
            ("&lt;!-- do X --&gt;y", "<!-- do X -->y", (0, 0, 0)),
            ("It breaks on <!-- in a\nline.\n\nAnd Y.", "It breaks on <!-- in a\nline.\n\nAnd Y.", (0, 0, 0)),
            (
                "Keep `<!-- a -->`.\n\n```\n<!-- b -->\n```",
                "Keep `<!-- a -->`.\n\n```\n<!-- b -->\n```",
                (0, 0, 0),
            ),
            ("a\n\n<!-- do X\n\nand Y", "a\n\n", (0, 1, 0)),
            ("a\n\n<div><!--\n\ndo X --> `-->`\n\n<p>--></p>\n\nb", "a\n\n<div></p>\n\nb", (0, 1, 0)),
            ("> <!-- do X\n> do Y -->\n> b", "\u{10fffc}> \n> b\u{10fffd}", (0, 1, 0)),
            ("<b title=\"<!--\">t</b> u", "<b>t</b> u", (0, 0, 1)),
            ("<!<!-- x -->-- y -->\n\n![do X](x/y.png)", "<!-- y -->\n\n[image: y.png](x/y.png)", (0, 1, 1)),
            ("a <!--> b", "a  b", (0, 1, 0)),
            (
                "```\n[x]: # (kept)\n```\n\n> [x]: # (do X)\n",
                "```\n[x]: # (kept)\n```\n\n\u{10fffc}> \n\u{10fffd}",
                (0, 1, 0),
            ),
            ("<p>&#8203;a</p>", "<p>a</p>", (1, 0, 0)),
            ("```html\n<b title=\"kept\">\n```", "```html\n<b title=\"kept\">\n```", (0, 0, 0)),
            ("- ```\n  x\n  ```\n<i title=\"do X\">", "- ```\n  x\n  ```\n<i>", (0, 0, 1)),
            (
                "<details><summary>s</summary>\n\nx\n</details>",
                "<details><summary>s</summary>\n\nx\n</details>",
                (0, 0, 0),
            ),
        ] {
            let found = shown(text);
            let taken = found.taken_out;
            assert_eq!(found.text, wanted, "{text}");
            assert_eq!((taken.hidden_characters, taken.comments, taken.attributes), gone, "{text}");
        }
    }

    #[test]
    fn images_are_found_where_they_are_shown_and_in_nobody_elses_words() {
        let text = "a ![x](u/1.png \"t\") <img\n alt='q' src=\"u/2.png?a=1&amp;b=2\">\n\n> ![quoted](u/3.png)\n> <img src=u/4.png>\n\n\
                    `![code](u/5.png)` <!-- <img src=u/6.png> -->\n\n```\n![code](u/7.png)\n```\n[a link](u/8.png)\n\n<p><img src=u/9.png></p>\n";
        assert_eq!(image_addresses(text), ["u/1.png", "u/2.png?a=1&b=2", "u/9.png"]);
        assert_eq!(image_name("https://h/a/b c\u{202e}.png?x#y"), "bc.png");
    }

    #[test]
    fn quotes_are_marked_and_nobody_else_can_mark_one() {
        let text = format!(
            "a\n\n> b\n> > c\nlazy\n\nd {QUOTE_BEGINS}e{QUOTE_ENDS}\n\n```\n> code\n```\n> [!NOTE]\n> own\n"
        );
        let found = shown(&text).text;
        let quoted = format!("{QUOTE_BEGINS}> b\n> > c\nlazy\n");
        assert!(found.contains(&quoted), "{found}");
        assert_eq!(found.matches(QUOTE_BEGINS).count(), 1, "{found}");
        assert_eq!(found.matches(QUOTE_ENDS).count(), 1, "{found}");
        assert!(found.contains("d \u{fffd}e\u{fffd}"), "{found}");
    }
}
