//! Where a value stands in a JSON text: JSON pointer → line and column.

use std::collections::BTreeMap;

/// 1-based place in a text; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// Places of every value of a JSON text; of a member, the place of its key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Positions {
    places: BTreeMap<String, Position>,
    /// Keys written twice in one object: their pointers.
    pub duplicates: Vec<String>,
    /// The pointers of whole numbers that are too large to be kept as they are written.
    pub inexact: Vec<String>,
}

impl Positions {
    /// Scans a text that a JSON parser accepted.
    pub fn scan(text: &str) -> Self {
        let mut scanner = Scanner {
            chars: text.chars().peekable(),
            at: Position { line: 1, column: 1 },
            found: Self::default(),
        };
        scanner.space();
        let start = scanner.at;
        scanner.value(String::new(), start);
        scanner.found
    }

    /// The place of the value, else of the nearest value around it.
    pub fn of(&self, pointer: &str) -> Position {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.places.get(pointer) {
                return *place;
            }
            match pointer.rfind('/') {
                Some(cut) => pointer = &pointer[..cut],
                None => return Position { line: 1, column: 1 },
            }
        }
    }
}

/// One more level of a JSON pointer.
pub fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

struct Scanner<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    at: Position,
    found: Positions,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        if c == '\n' {
            self.at = Position { line: self.at.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn space(&mut self) {
        while self.chars.peek().is_some_and(|c| c.is_whitespace() || *c == '\u{feff}') {
            self.next();
        }
    }

    fn value(&mut self, pointer: String, place: Position) {
        if self.found.places.insert(pointer.clone(), place).is_some() {
            self.found.duplicates.push(pointer.clone());
        }
        match self.chars.peek() {
            Some('{') => self.members(&pointer, '}', true),
            Some('[') => self.members(&pointer, ']', false),
            Some('"') => {
                self.string();
            }
            _ => {
                let mut word = String::new();
                while self.chars.peek().is_some_and(|c| !c.is_whitespace() && !matches!(c, ',' | '}' | ']')) {
                    word.extend(self.next());
                }
                let whole = word.trim_start_matches('-').chars().all(|c| c.is_ascii_digit());
                if whole && word.parse::<i64>().is_err() && word.parse::<u64>().is_err() {
                    self.found.inexact.push(pointer);
                }
            }
        }
    }

    fn members(&mut self, pointer: &str, close: char, keyed: bool) {
        self.next();
        let mut index = 0_usize;
        loop {
            self.space();
            match self.chars.peek() {
                None => return,
                Some(c) if *c == close => {
                    self.next();
                    return;
                }
                Some(',') => {
                    self.next();
                    continue;
                }
                _ => {}
            }
            let place = self.at;
            let key = if keyed {
                let key = self.string();
                self.space();
                self.next(); // the colon
                self.space();
                key
            } else {
                index.to_string()
            };
            index += 1;
            let before = self.at;
            self.value(child(pointer, &key), place);
            if self.at == before {
                return; // not JSON after all; the parser said otherwise, so this is only a guard
            }
        }
    }

    fn string(&mut self) -> String {
        let mut raw = String::new();
        if self.chars.peek() == Some(&'"') {
            raw.extend(self.next());
        }
        while let Some(c) = self.next() {
            raw.push(c);
            match c {
                '\\' => raw.extend(self.next()),
                '"' => break,
                _ => {}
            }
        }
        serde_json::from_str(&raw).unwrap_or(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line_and_column() {
        let text = "{\n  \"a/b\": [1, {\"x\": \"é \\\" }\"}],\n  \"c\": null, \"c\": 2\n}";
        let positions = Positions::scan(text);
        let place = |pointer: &str| {
            let place = positions.of(pointer);
            (place.line, place.column)
        };
        assert_eq!(place(""), (1, 1));
        assert_eq!(place("/a~1b"), (2, 3));
        assert_eq!(place("/a~1b/1/x"), (2, 15));
        assert_eq!(place("/c"), (3, 14));
        assert_eq!(place("/a~1b/9/z"), (2, 3), "the nearest value around it");
        assert_eq!(positions.duplicates, ["/c"]);
        assert_eq!(Positions::scan("{\"a\": 18446744073709551616, \"b\": [-1, 2.5]}").inexact, ["/a"]);
    }
}
