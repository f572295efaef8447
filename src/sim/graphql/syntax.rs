//! GraphQL's grammar, as far as operations and type definitions need it: from text to a tree.

use std::collections::BTreeMap;

/// Where something stands in the text, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// A text that is not GraphQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub message: String,
    /// Where.
    pub place: Place,
}

/// Operations and fragments.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// Operations in order.
    pub operations: Vec<Operation>,
    /// Fragments by name.
    pub fragments: BTreeMap<String, Fragment>,
}

/// A query or a mutation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `query` or `mutation`.
    pub kind: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Declared variables.
    pub variables: Vec<Variable>,
    /// What is asked for.
    pub selections: Vec<Selection>,
}

/// A declared variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Name without `$`.
    pub name: String,
    /// Its type.
    pub kind: TypeRef,
    /// Its default.
    pub default: Option<Literal>,
    /// Where.
    pub place: Place,
}

/// A named fragment.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// The type it applies to.
    pub on: String,
    /// What it asks for.
    pub selections: Vec<Selection>,
}

/// One entry of a selection set.
#[derive(Debug, Clone)]
pub enum Selection {
    /// A field.
    Field(Field),
    /// `... on T { }` or `... { }`.
    Inline {
        /// The type, if named.
        on: Option<String>,
        /// What it asks for.
        selections: Vec<Self>,
        /// Conditions.
        directives: Vec<Directive>,
        /// Where.
        place: Place,
    },
    /// `...name`.
    Spread {
        /// The fragment's name.
        name: String,
        /// Conditions.
        directives: Vec<Directive>,
        /// Where.
        place: Place,
    },
}

/// A field that is asked for.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name in the answer: the alias, else the field's own.
    pub key: String,
    /// The field's name.
    pub name: String,
    /// Arguments.
    pub arguments: Vec<(String, Literal)>,
    /// Conditions.
    pub directives: Vec<Directive>,
    /// What is asked of its value.
    pub selections: Vec<Selection>,
    /// Where.
    pub place: Place,
}

/// `@name(arguments)`.
#[derive(Debug, Clone)]
pub struct Directive {
    /// Name without `@`.
    pub name: String,
    /// Arguments.
    pub arguments: Vec<(String, Literal)>,
}

/// A value in the text.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `$name`.
    Variable(String),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// A string.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// `null`.
    Null,
    /// A bare word.
    Enum(String),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

/// A type as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeRef {
    /// A name.
    Named(String),
    /// `[T]`.
    List(Box<Self>),
    /// `T!`.
    Required(Box<Self>),
}

impl TypeRef {
    /// The name at the core.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::List(inner) | Self::Required(inner) => inner.name(),
        }
    }

    /// Whether null is refused.
    pub fn is_required(&self) -> bool {
        matches!(self, Self::Required(_))
    }

    /// The type without its outer `!`.
    pub fn optional(&self) -> &Self {
        match self {
            Self::Required(inner) => inner,
            other => other,
        }
    }
}

impl std::fmt::Display for TypeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::List(inner) => write!(f, "[{inner}]"),
            Self::Required(inner) => write!(f, "{inner}!"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Text(String),
    Sign(char),
    Spread,
    End,
}

/// Reads tokens one after the other.
pub struct Reader {
    tokens: Vec<(Token, Place)>,
    at: usize,
}

impl Reader {
    /// Cuts a text into tokens.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        Ok(Self { tokens: tokens(text)?, at: 0 })
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, _)| token)
    }

    /// Where the next token stands.
    pub fn place(&self) -> Place {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(Place { line: 1, column: 1 }, |(_, place)| *place)
    }

    fn fail<T>(&self, wanted: &str) -> Result<T, SyntaxError> {
        let found = match self.peek() {
            Token::Name(name) => format!("\"{name}\""),
            Token::Sign(sign) => format!("\"{sign}\""),
            Token::Spread => "\"...\"".to_owned(),
            Token::End => "end of document".to_owned(),
            Token::Int(number) => number.to_string(),
            Token::Float(number) => number.to_string(),
            Token::Text(text) => format!("{text:?}"),
        };
        Err(SyntaxError { message: format!("Expected {wanted}, actual: {found}"), place: self.place() })
    }

    /// Whether everything was read.
    pub fn done(&self) -> bool {
        *self.peek() == Token::End
    }

    /// Takes the sign if it comes next.
    pub fn take(&mut self, sign: char) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes the sign that must come next.
    pub fn expect(&mut self, sign: char) -> Result<(), SyntaxError> {
        if self.take(sign) { Ok(()) } else { self.fail(&format!("\"{sign}\"")) }
    }

    /// Takes the word if it comes next.
    pub fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Name(name) if name == word);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes the name that must come next.
    pub fn name(&mut self) -> Result<String, SyntaxError> {
        match self.peek().clone() {
            Token::Name(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.fail("NAME"),
        }
    }

    /// Takes a type.
    pub fn type_ref(&mut self) -> Result<TypeRef, SyntaxError> {
        let inner = if self.take('[') {
            let inner = self.type_ref()?;
            self.expect(']')?;
            TypeRef::List(Box::new(inner))
        } else {
            TypeRef::Named(self.name()?)
        };
        Ok(if self.take('!') { TypeRef::Required(Box::new(inner)) } else { inner })
    }

    /// Takes a value.
    pub fn literal(&mut self) -> Result<Literal, SyntaxError> {
        let value = match self.peek().clone() {
            Token::Int(number) => Literal::Int(number),
            Token::Float(number) => Literal::Float(number),
            Token::Text(text) => Literal::Text(text),
            Token::Name(name) => match name.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                _ => Literal::Enum(name),
            },
            Token::Sign('$') => {
                self.at += 1;
                return Ok(Literal::Variable(self.name()?));
            }
            Token::Sign('[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.take(']') {
                    items.push(self.literal()?);
                }
                return Ok(Literal::List(items));
            }
            Token::Sign('{') => {
                self.at += 1;
                let mut fields = Vec::new();
                while !self.take('}') {
                    let name = self.name()?;
                    self.expect(':')?;
                    fields.push((name, self.literal()?));
                }
                return Ok(Literal::Object(fields));
            }
            _ => return self.fail("a value"),
        };
        self.at += 1;
        Ok(value)
    }

    fn arguments(&mut self) -> Result<Vec<(String, Literal)>, SyntaxError> {
        let mut arguments = Vec::new();
        if self.take('(') {
            while !self.take(')') {
                let name = self.name()?;
                self.expect(':')?;
                arguments.push((name, self.literal()?));
            }
        }
        Ok(arguments)
    }

    fn directives(&mut self) -> Result<Vec<Directive>, SyntaxError> {
        let mut directives = Vec::new();
        while self.take('@') {
            directives.push(Directive { name: self.name()?, arguments: self.arguments()? });
        }
        Ok(directives)
    }

    fn selections(&mut self) -> Result<Vec<Selection>, SyntaxError> {
        self.expect('{')?;
        let mut selections = Vec::new();
        while !self.take('}') {
            selections.push(self.selection()?);
        }
        if selections.is_empty() { self.fail("a selection") } else { Ok(selections) }
    }

    fn selection(&mut self) -> Result<Selection, SyntaxError> {
        let place = self.place();
        if *self.peek() == Token::Spread {
            self.at += 1;
            let on = if self.word("on") {
                Some(self.name()?)
            } else if let Token::Name(name) = self.peek().clone() {
                self.at += 1;
                return Ok(Selection::Spread { name, directives: self.directives()?, place });
            } else {
                None
            };
            let directives = self.directives()?;
            return Ok(Selection::Inline { on, directives, selections: self.selections()?, place });
        }
        let first = self.name()?;
        let (key, name) = if self.take(':') { (first, self.name()?) } else { (first.clone(), first) };
        let (arguments, directives) = (self.arguments()?, self.directives()?);
        let selections = if *self.peek() == Token::Sign('{') { self.selections()? } else { Vec::new() };
        Ok(Selection::Field(Field { key, name, arguments, directives, selections, place }))
    }

    fn operation(&mut self) -> Result<Operation, SyntaxError> {
        if *self.peek() == Token::Sign('{') {
            let selections = self.selections()?;
            return Ok(Operation { kind: "query".to_owned(), name: None, variables: Vec::new(), selections });
        }
        let kind = self.name()?;
        if kind != "query" && kind != "mutation" {
            self.at -= 1;
            return self.fail("query, mutation or fragment");
        }
        let name = if let Token::Name(name) = self.peek().clone() {
            self.at += 1;
            Some(name)
        } else {
            None
        };
        let mut variables = Vec::new();
        if self.take('(') {
            while !self.take(')') {
                let place = self.place();
                self.expect('$')?;
                let name = self.name()?;
                self.expect(':')?;
                let kind = self.type_ref()?;
                let default = if self.take('=') { Some(self.literal()?) } else { None };
                variables.push(Variable { name, kind, default, place });
            }
        }
        self.directives()?;
        Ok(Operation { kind, name, variables, selections: self.selections()? })
    }
}

/// Reads a request's document.
pub fn parse(text: &str) -> Result<Document, SyntaxError> {
    let mut reader = Reader::new(text)?;
    let mut document = Document::default();
    if reader.done() {
        return reader.fail("a query");
    }
    while !reader.done() {
        if reader.word("fragment") {
            let name = reader.name()?;
            if !reader.word("on") {
                return reader.fail("\"on\"");
            }
            let on = reader.name()?;
            reader.directives()?;
            document.fragments.insert(name, Fragment { on, selections: reader.selections()? });
        } else {
            document.operations.push(reader.operation()?);
        }
    }
    Ok(document)
}

fn tokens(text: &str) -> Result<Vec<(Token, Place)>, SyntaxError> {
    let letters: Vec<char> = text.chars().collect();
    let (mut at, mut line, mut start_of_line) = (0, 1, 0);
    let mut tokens = Vec::new();
    while let Some(&letter) = letters.get(at) {
        let place = Place { line, column: at - start_of_line + 1 };
        let fail = |message: String| SyntaxError { message, place };
        match letter {
            '\n' => {
                line += 1;
                start_of_line = at + 1;
                at += 1;
            }
            '#' => {
                while letters.get(at).is_some_and(|letter| *letter != '\n') {
                    at += 1;
                }
            }
            ' ' | '\t' | '\r' | ',' | '\u{feff}' => at += 1,
            '.' => {
                if letters.get(at..at + 3) != Some(&['.', '.', '.']) {
                    return Err(fail("Parse error on \".\"".to_owned()));
                }
                tokens.push((Token::Spread, place));
                at += 3;
            }
            '"' => {
                let (text, end) = string(&letters, at)
                    .ok_or_else(|| fail("Parse error: unterminated string".to_owned()))?;
                line += letters[at..end].iter().filter(|letter| **letter == '\n').count();
                at = end;
                tokens.push((Token::Text(text), place));
            }
            '-' | '0'..='9' => {
                let end = letters[at + 1..]
                    .iter()
                    .position(|letter| {
                        !(letter.is_ascii_digit() || matches!(letter, '.' | 'e' | 'E' | '+' | '-'))
                    })
                    .map_or(letters.len(), |length| at + 1 + length);
                let written: String = letters[at..end].iter().collect();
                let token = written.parse().map(Token::Int).or_else(|_| written.parse().map(Token::Float));
                tokens.push((token.map_err(|_| fail(format!("Parse error on \"{written}\"")))?, place));
                at = end;
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => {
                let end = letters[at..]
                    .iter()
                    .position(|letter| !(letter.is_ascii_alphanumeric() || *letter == '_'))
                    .map_or(letters.len(), |length| at + length);
                tokens.push((Token::Name(letters[at..end].iter().collect()), place));
                at = end;
            }
            '!' | '$' | '&' | '(' | ')' | ':' | '=' | '@' | '[' | ']' | '{' | '|' | '}' => {
                tokens.push((Token::Sign(letter), place));
                at += 1;
            }
            other => return Err(fail(format!("Parse error on {other:?}"))),
        }
    }
    Ok(tokens)
}

/// A string beginning at `at`, and where it ends.
fn string(letters: &[char], at: usize) -> Option<(String, usize)> {
    let block = letters.get(at..at + 3) == Some(&['"', '"', '"']);
    let mut text = String::new();
    if block {
        let length = letters[at + 3..].windows(3).position(|three| three == ['"', '"', '"'])?;
        text.extend(&letters[at + 3..at + 3 + length]);
        return Some((text.trim().to_owned(), at + length + 6));
    }
    let mut next = at + 1;
    loop {
        match *letters.get(next)? {
            '"' => return Some((text, next + 1)),
            '\n' => return None,
            '\\' => {
                next += 1;
                match *letters.get(next)? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'u' => {
                        let hex: String = letters.get(next + 1..next + 5)?.iter().collect();
                        text.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
                        next += 4;
                    }
                    other => text.push(other),
                }
            }
            other => text.push(other),
        }
        next += 1;
    }
}
