//! The part of a log that is told: its start, what stands around its first error, and its end.

use std::collections::{BTreeMap, VecDeque};

use super::log_lines::is_error;

/// The longest line of an excerpt, in bytes.
const LONGEST_LINE: usize = 2_000;
/// Error lines that are remembered.
const ERRORS: usize = 40;

/// Collects an excerpt of at most so many bytes: a fifth from the start, three fifths around the first error, a fifth from
/// the end; or everything, where it fits.
#[derive(Debug)]
pub struct Excerpt {
    budget: usize,
    count: u64,
    whole: Option<Part>,
    start: Part,
    before: Part,
    after: Part,
    end: Part,
    /// Whether the first error was met.
    met: bool,
    errors: Vec<String>,
}

/// Numbered lines of at most so many bytes.
#[derive(Debug, Default)]
struct Part {
    lines: VecDeque<(u64, String)>,
    bytes: usize,
    most: usize,
}

impl Part {
    fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Adds a line while there is room. False = there is none.
    fn fill(&mut self, number: u64, line: &str) -> bool {
        if self.bytes + line.len() + 1 > self.most {
            // What does not fit ends it, so that no line within is missing.
            self.most = self.bytes;
            return false;
        }
        self.bytes += line.len() + 1;
        self.lines.push_back((number, line.to_owned()));
        true
    }

    /// Adds a line and lets the oldest ones go.
    fn roll(&mut self, number: u64, line: &str) {
        self.bytes += line.len() + 1;
        self.lines.push_back((number, line.to_owned()));
        while self.bytes > self.most {
            let Some((_, dropped)) = self.lines.pop_front() else { return };
            self.bytes -= dropped.len() + 1;
        }
    }
}

impl Excerpt {
    /// Nothing yet.
    pub fn new(budget: usize) -> Self {
        let fifth = budget / 5;
        Self {
            budget,
            count: 0,
            whole: Some(Part::new(budget)),
            start: Part::new(fifth),
            before: Part::new(fifth + fifth / 2),
            after: Part::new(fifth + fifth / 2),
            end: Part::new(fifth),
            met: false,
            errors: Vec::new(),
        }
    }

    /// Whether it has any line.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lines that say what went wrong, the first ones.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Takes the next line.
    pub fn push(&mut self, line: &str) {
        let line = shortened(line, LONGEST_LINE.min(self.budget / 10));
        self.count += 1;
        let number = self.count;
        if self.whole.as_mut().is_some_and(|whole| !whole.fill(number, &line)) {
            self.whole = None;
        }
        self.start.fill(number, &line);
        let wrong = is_error(&line);
        if wrong && self.errors.len() < ERRORS {
            self.errors.push(line.clone());
        }
        self.met |= wrong;
        match self.met {
            true => drop(self.after.fill(number, &line)),
            false => self.before.roll(number, &line),
        }
        self.end.roll(number, &line);
    }

    /// The text; lines that are left out are counted.
    pub fn text(&self) -> String {
        let parts: Vec<&Part> = match &self.whole {
            Some(whole) => vec![whole],
            None => vec![&self.start, &self.before, &self.after, &self.end],
        };
        let lines: BTreeMap<u64, &str> = parts
            .iter()
            .flat_map(|part| &part.lines)
            .map(|(number, line)| (*number, line.as_str()))
            .collect();
        let mut text = String::new();
        let mut last = 0;
        let gap = |text: &mut String, from: u64, to: u64| match to - from {
            0 | 1 => {}
            gap => text.push_str(&format!("[… {} lines left out …]\n", gap - 1)),
        };
        for (number, line) in lines {
            gap(&mut text, last, number);
            text.push_str(line);
            text.push('\n');
            last = number;
        }
        gap(&mut text, last, self.count + 1);
        text
    }
}

fn shortened(line: &str, most: usize) -> String {
    if line.len() <= most {
        return line.to_owned();
    }
    let end = (0..=most).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    format!("{} […]", &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(lines: u64, error_at: Option<u64>) -> String {
        let mut excerpt = Excerpt::new(1000);
        for number in 1..=lines {
            let word = if Some(number) == error_at { "error: here" } else { "line" };
            excerpt.push(&format!("{word} {number}"));
        }
        excerpt.text()
    }

    #[test]
    fn a_short_log_is_told_whole_and_a_long_one_in_three_parts() {
        assert_eq!(excerpt(3, None), "line 1\nline 2\nline 3\n");
        let text = excerpt(5000, Some(2500));
        assert!(text.len() <= 1100, "{}", text.len());
        assert!(text.starts_with("line 1\nline 2\n") && text.ends_with("line 4999\nline 5000\n"), "{text}");
        assert!(text.contains("line 2499\nerror: here 2500\nline 2501\n"), "{text}");
        let left_out: u64 = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("[… ")?.strip_suffix(" lines left out …]")?.parse::<u64>().ok()
            })
            .sum();
        let told = text.lines().filter(|line| !line.starts_with('[')).count() as u64;
        assert_eq!(left_out + told, 5000);
    }

    #[test]
    fn without_an_error_the_end_gets_its_room() {
        let text = excerpt(5000, None);
        assert!(text.matches("left out").count() == 1 && text.len() > 600, "{text}");
    }
}
