//! Folding: what is too long for its budget keeps its beginning and its end, and says what is left out between.

/// A text that keeps within `longest` characters: the first five eighths of them, a line that counts what is left out, and
/// the last three. `None` = it fits as it is.
pub fn folded(text: &str, longest: usize) -> Option<Folded> {
    let whole = text.chars().count();
    if whole <= longest {
        return None;
    }
    // The line itself counts; its number has at most as many digits as that of the whole.
    let line = left_out_line(whole).chars().count() + 2;
    let room = longest.saturating_sub(line);
    let (head, tail) = (room - room * 3 / 8, room * 3 / 8);
    let at = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let (head_end, tail_begin) = (at(head), at(whole - tail));
    Some(Folded {
        head: text[..head_end].to_owned(),
        tail: text[tail_begin..].to_owned(),
        left_out: whole - head - tail,
    })
}

/// See [`folded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The beginning.
    pub head: String,
    /// The end.
    pub tail: String,
    /// Characters between them.
    pub left_out: usize,
}

impl Folded {
    /// Both parts with the line between them.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}", self.head, left_out_line(self.left_out), self.tail)
    }
}

fn left_out_line(characters: usize) -> String {
    format!("[… {characters} characters left out …]")
}

/// Which items keep within `budget`: from the oldest until a quarter of it is used, from the newest until the rest is.
/// `sizes` stand in the order of time. Gives the places that are left out, which are one row without a gap.
pub fn left_out(sizes: &[usize], budget: usize) -> std::ops::Range<usize> {
    if sizes.iter().sum::<usize>() <= budget {
        return 0..0;
    }
    let (mut first, mut used) = (0, 0);
    while first < sizes.len() && used + sizes[first] <= budget / 4 {
        used += sizes[first];
        first += 1;
    }
    let (mut last, mut used) = (sizes.len(), 0);
    while last > first && used + sizes[last - 1] <= budget - budget / 4 {
        used += sizes[last - 1];
        last -= 1;
    }
    first..last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_ends_within_its_budget() {
        assert_eq!(folded("short", 5), None);
        let text = "é".repeat(700) + &"z".repeat(300);
        let found = folded(&text, 400).unwrap();
        assert!(found.text().chars().count() <= 400, "{}", found.text().chars().count());
        let (head, tail) = (found.head.chars().count(), found.tail.chars().count());
        assert_eq!(head + tail + found.left_out, 1000);
        assert!(head * 3 >= tail * 5 && head * 3 <= tail * 5 + 8, "{head} {tail}");
        assert!(found.text().contains(&format!("[… {} characters left out …]", found.left_out)));
    }

    #[test]
    fn of_many_items_the_oldest_quarter_and_the_newest_rest_stay() {
        assert_eq!(left_out(&[10, 10], 20), 0..0);
        assert_eq!(left_out(&[10; 10], 40), 1..7);
        assert_eq!(left_out(&[100], 40), 0..1);
        assert_eq!(left_out(&[], 40), 0..0);
    }
}
