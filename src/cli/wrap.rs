//! Text in lines that fit a screen: words stay whole, and what belongs together stands below each other.

/// How many columns a text takes.
pub type Measure = fn(&str) -> usize;

/// Least columns that text gets beside what stands in front of it; with fewer it begins on a line of its own.
const LEAST: usize = 24;
/// Columns that text is set in by where there is no room beside what stands in front of it.
const SET_IN: usize = 4;

/// A text behind a lead, each further line below the first one's text.
pub fn behind(lead: &str, text: &str, width: Option<usize>, measure: Measure) -> String {
    let beside = measure(lead) + 1;
    let Some(width) = width else {
        return format!("{lead} {}", text.replace('\n', &format!("\n{}", " ".repeat(beside))));
    };
    let (first, rest) = if beside + LEAST > width { (beside, SET_IN) } else { (beside, beside) };
    let mut out = format!("{lead} ");
    for (index, line) in lines(text, (width.saturating_sub(first), width - rest), measure).iter().enumerate()
    {
        if index > 0 {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', rest));
        }
        out.push_str(line);
    }
    out
}

/// Each line of a text that is too long, broken; what follows is set in by two columns more than the line itself.
pub fn paragraph(text: &str, width: Option<usize>, measure: Measure) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out: Vec<String> = Vec::new();
    for line in text.split('\n') {
        if measure(line) <= width {
            out.push(line.to_owned());
            continue;
        }
        let words = line.trim_start_matches(' ');
        let own = (line.len() - words.len()).min(width / 3);
        let further = own + 2;
        for (index, part) in lines(words, (width - own, width - further), measure).iter().enumerate() {
            out.push(" ".repeat(if index == 0 { own } else { further }) + part);
        }
    }
    out.join("\n")
}

/// Chunks side by side, two columns apart, as many as fit on a line; one that is longer than a line is broken.
pub fn packed(chunks: &[String], indent: usize, width: usize, measure: Measure) -> String {
    let room = width.saturating_sub(indent);
    let mut out: Vec<String> = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        match out.last_mut() {
            Some(last) if measure(last) + 2 + measure(chunk) <= room => {
                last.push_str("  ");
                last.push_str(chunk);
            }
            _ => out.extend(lines(chunk, (room, room), measure)),
        }
    }
    out.iter().map(|line| format!("{}{line}\n", " ".repeat(indent))).collect()
}

/// The lines of a text, the first one at most so wide and the others so wide. A word that is longer than a line stays whole:
/// a screen breaks it, and whoever copies it has it in one piece.
fn lines(text: &str, (first, rest): (usize, usize), measure: Measure) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for given in text.split('\n') {
        let mut line = String::new();
        for word in given.split(' ') {
            let room = if out.is_empty() { first } else { rest };
            if line.is_empty() {
                line.push_str(word);
            } else if measure(&line) + 1 + measure(word) <= room {
                line.push(' ');
                line.push_str(word);
            } else {
                let full = std::mem::replace(&mut line, word.to_owned());
                out.push(full.trim_end().to_owned());
            }
        }
        out.push(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(text: &str) -> usize {
        text.chars().count()
    }

    #[test]
    fn a_text_behind_a_lead_stands_below_itself() {
        let told = behind("warning  labels", "demo/shop has no label yet\nmake it", Some(42), chars);
        assert_eq!(told, "warning  labels demo/shop has no label yet\n                make it");
        assert_eq!(behind("ok  a", "b c\nd", None, chars), "ok  a b c\n      d");
        // Without room beside it, what follows stands below the lead.
        let told = behind("a-long-lead-of-thirty-columns!", "one two three four", Some(40), chars);
        assert_eq!(told, "a-long-lead-of-thirty-columns! one two\n    three four");
    }

    #[test]
    fn long_lines_are_broken_between_words_and_nowhere_else() {
        assert_eq!(paragraph("one two three", Some(8), chars), "one two\n  three");
        assert_eq!(paragraph("  one two three", Some(9), chars), "  one two\n    three");
        assert_eq!(paragraph("one two three", None, chars), "one two three");
        assert_eq!(paragraph("agentd-runs-resume", Some(8), chars), "agentd-runs-resume");
    }

    #[test]
    fn chunks_stand_side_by_side_while_they_fit() {
        let chunks = ["demo/shop".to_owned(), String::new(), "7".to_owned(), "$0.0030".to_owned()];
        assert_eq!(packed(&chunks, 2, 16, chars), "  demo/shop  7\n  $0.0030\n");
    }
}
