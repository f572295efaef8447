//! Canonical JSON (RFC 8785) and the hashes made over it (contracts §3.9).

use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};
use sha2::{Digest as _, Sha256};

/// Up to here a double holds every integer, so its digits are the canonical ones.
const EXACT_INTEGERS: u64 = 1 << 53;

/// A value that has no canonical JSON form (a map whose keys are no texts).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("value has no canonical JSON form: {0}")]
pub struct NotCanonical(String);

/// RFC 8785 text of a value. Numbers that are not finite are `null`, as everywhere in JSON.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    let mut texts = Texts::default();
    texts.write(value)?;
    let canonical = if texts.parts.is_empty() { texts.plain } else { texts.canonical };
    String::from_utf8(canonical).map_err(|error| NotCanonical(error.to_string()))
}

/// Lower-case hexadecimal SHA-256 over the RFC 8785 text of a value.
pub fn canonical_sha256<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    let mut texts = Texts::default();
    texts.write(value)?;
    Ok(sha256_hex(texts.canonical()))
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    finished(Sha256::new_with_prefix(bytes))
}

/// Lower-case hexadecimal SHA-256 of what a hash was given.
pub fn finished(hash: Sha256) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = hash.finalize();
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The JSON text of a value and its RFC 8785 text, of one value after the other in the same memory. A value is looked at
/// once: what its canonical text has otherwise is marked while the plain one is written, and put in order from there.
#[derive(Debug, Default)]
pub struct Texts {
    plain: Vec<u8>,
    canonical: Vec<u8>,
    /// Parts that the canonical text has otherwise, in the order of the plain one, an outer one before its inner ones.
    parts: Vec<Part>,
    /// Members of the objects among the parts.
    members: Vec<Member>,
    /// Canonical texts of the numbers among the parts.
    numbers: Vec<u8>,
    /// Objects that have not ended, the innermost last: its part, and its first place in `unsorted`.
    open: Vec<(usize, usize)>,
    /// Members of all objects that have not ended.
    unsorted: Vec<Member>,
}

/// A part of the plain text that the canonical one has otherwise.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    /// The next part that is not inside this one.
    after: usize,
    what: What,
}

/// What stands there instead, as a range.
#[derive(Debug, Clone, Copy)]
enum What {
    /// An object of these `members`.
    Object(usize, usize),
    /// One of the `numbers`.
    Number(usize, usize),
}

/// Places of a member in the plain text.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    key: usize,
    key_end: usize,
    end: usize,
    /// The name is ASCII without escapes: the order of its bytes is that of its UTF-16 code units.
    plain: bool,
}

impl Member {
    /// The key between its quotes, escaped as it stands.
    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.key + 1..self.key_end - 1]
    }

    /// By names, in the order of their UTF-16 code units.
    fn order(self, other: Self, text: &[u8]) -> Ordering {
        if self.plain && other.plain {
            return self.name(text).cmp(other.name(text));
        }
        let units = |member: Self| -> Vec<u16> {
            let quoted = &text[member.key..member.key_end];
            serde_json::from_slice::<String>(quoted).unwrap_or_default().encode_utf16().collect()
        };
        units(self).cmp(&units(other))
    }
}

impl Texts {
    /// Makes the texts of a value, in place of those of the one before.
    pub fn write<T: Serialize>(&mut self, value: &T) -> Result<(), NotCanonical> {
        for bytes in [&mut self.plain, &mut self.canonical, &mut self.numbers] {
            bytes.clear();
        }
        self.parts.clear();
        self.members.clear();
        self.open.clear();
        self.unsorted.clear();
        value
            .serialize(&mut Serializer::with_formatter(io::sink(), &mut *self))
            .map_err(|error| NotCanonical(error.to_string()))?;
        if !self.parts.is_empty() {
            let mut canonical = std::mem::take(&mut self.canonical);
            self.put(0..self.plain.len(), 0..self.parts.len(), &mut canonical);
            self.canonical = canonical;
        }
        Ok(())
    }

    /// As `serde_json` writes it.
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// RFC 8785.
    pub fn canonical(&self) -> &[u8] {
        if self.parts.is_empty() { &self.plain } else { &self.canonical }
    }

    /// Puts the canonical text of a piece of the plain one, with these parts in it, behind `out`.
    fn put(&self, piece: Range<usize>, parts: Range<usize>, out: &mut Vec<u8>) {
        let (mut at, mut next) = (piece.start, parts.start);
        while let Some(part) = self.parts[next..parts.end].first().filter(|part| part.start < piece.end) {
            out.extend_from_slice(&self.plain[at..part.start]);
            match part.what {
                What::Number(start, end) => out.extend_from_slice(&self.numbers[start..end]),
                What::Object(first, last) => {
                    let inner = &self.parts[next + 1..part.after];
                    out.push(b'{');
                    for (place, member) in self.members[first..last].iter().enumerate() {
                        if place > 0 {
                            out.push(b',');
                        }
                        let before = inner.partition_point(|inner| inner.start < member.key);
                        self.put(member.key..member.end, next + 1 + before..part.after, out);
                    }
                    out.push(b'}');
                }
            }
            (at, next) = (part.end, part.after);
        }
        out.extend_from_slice(&self.plain[at..piece.end]);
    }

    fn integer(&mut self, magnitude: u64, double: f64, start: usize) -> io::Result<()> {
        if magnitude <= EXACT_INTEGERS { Ok(()) } else { self.double(double, start) }
    }

    /// Marks the number that was written from `start` on, where ECMAScript writes it otherwise.
    fn double(&mut self, value: f64, start: usize) -> io::Result<()> {
        let text = &self.plain[start..];
        // Below 1e16 and not very small: the same shortest digits in both.
        if value != 0.0 && text.contains(&b'.') && !text.contains(&b'e') && !text.ends_with(b".0") {
            return Ok(());
        }
        let canonical = serde_json_canonicalizer::to_vec(&value)?;
        if text != canonical {
            let first = self.numbers.len();
            self.numbers.extend_from_slice(&canonical);
            let (end, after) = (self.plain.len(), self.parts.len() + 1);
            self.parts.push(Part { start, end, after, what: What::Number(first, self.numbers.len()) });
        }
        Ok(())
    }
}

impl Formatter for &mut Texts {
    fn write_null<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        CompactFormatter.write_null(&mut self.plain)
    }

    fn write_bool<W: ?Sized + io::Write>(&mut self, _: &mut W, value: bool) -> io::Result<()> {
        CompactFormatter.write_bool(&mut self.plain, value)
    }

    fn write_i8<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i8) -> io::Result<()> {
        self.write_i64(writer, value.into())
    }

    fn write_i16<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i16) -> io::Result<()> {
        self.write_i64(writer, value.into())
    }

    fn write_i32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i32) -> io::Result<()> {
        self.write_i64(writer, value.into())
    }

    fn write_i64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: i64) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_i64(&mut self.plain, value)?;
        self.integer(value.unsigned_abs(), value as f64, start)
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: i128) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_i128(&mut self.plain, value)?;
        self.double(value as f64, start)
    }

    fn write_u8<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u8) -> io::Result<()> {
        self.write_u64(writer, value.into())
    }

    fn write_u16<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u16) -> io::Result<()> {
        self.write_u64(writer, value.into())
    }

    fn write_u32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u32) -> io::Result<()> {
        self.write_u64(writer, value.into())
    }

    fn write_u64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: u64) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_u64(&mut self.plain, value)?;
        self.integer(value, value as f64, start)
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: u128) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_u128(&mut self.plain, value)?;
        self.double(value as f64, start)
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f32) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_f32(&mut self.plain, value)?;
        self.double(value.into(), start)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f64) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_f64(&mut self.plain, value)?;
        self.double(value, start)
    }

    fn write_number_str<W: ?Sized + io::Write>(&mut self, _: &mut W, value: &str) -> io::Result<()> {
        let start = self.plain.len();
        CompactFormatter.write_number_str(&mut self.plain, value)?;
        self.double(value.parse().map_err(io::Error::other)?, start)
    }

    fn begin_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.plain.push(b'"');
        Ok(())
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.plain.push(b'"');
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, text: &str) -> io::Result<()> {
        self.plain.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, _: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(&mut self.plain, escape)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.plain.push(b'[');
        Ok(())
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.plain.push(b']');
        Ok(())
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.plain.push(b',');
        }
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.open.push((self.parts.len(), self.unsorted.len()));
        let start = self.plain.len();
        // Its place among the parts; given back when it ends, where it is none.
        self.parts.push(Part { start, end: start, after: 0, what: What::Object(0, 0) });
        self.plain.push(b'{');
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.plain.push(b',');
        }
        self.unsorted.push(Member { key: self.plain.len(), ..Member::default() });
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let Texts { plain, unsorted, .. } = &mut **self;
        if let Some(member) = unsorted.last_mut() {
            member.key_end = plain.len();
            member.plain = member.name(plain).iter().all(|byte| byte.is_ascii() && *byte != b'\\');
        }
        Ok(())
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.plain.push(b':');
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let Some((part, first)) = self.open.pop() else {
            return Err(io::Error::other("an object ends that did not begin"));
        };
        let Texts { plain, parts, members, unsorted, .. } = &mut **self;
        let mine = &mut unsorted[first..];
        // A member ends where the next one's comma stands.
        let mut following = plain.len() + 1;
        for member in mine.iter_mut().rev() {
            member.end = following - 1;
            following = member.key;
        }
        let in_order = mine.is_sorted_by(|one, other| one.order(*other, plain) == Ordering::Less);
        plain.push(b'}');
        if in_order && parts.len() == part + 1 {
            parts.truncate(part);
        } else {
            mine.sort_by(|one, other| one.order(*other, plain));
            let sorted = members.len();
            members.extend_from_slice(mine);
            let what = What::Object(sorted, members.len());
            parts[part] = Part { start: parts[part].start, end: plain.len(), after: parts.len(), what };
        }
        unsorted.truncate(first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_units_and_numbers_are_shortest() {
        let text =
            canonical_json(&json!({ "\u{20ac}": 1.0, "b": [1e21, 0.1], "\u{1f600}": null, "a": "\u{7}" }))
                .unwrap();
        assert_eq!(text, "{\"a\":\"\\u0007\",\"b\":[1e+21,0.1],\"€\":1,\"😀\":null}");
    }

    #[test]
    fn a_name_that_begins_like_another_stands_after_it_and_big_integers_are_doubles() {
        let value =
            json!({ "ab": u64::MAX, "a!": i64::MIN, "a": {}, "a\"": [], "\u{fb33}": 1, "\u{1f600}": 2 });
        assert_eq!(
            canonical_json(&value).unwrap(),
            "{\"a\":{},\"a!\":-9223372036854776000,\"a\\\"\":[],\"ab\":18446744073709552000,\"😀\":2,\"\u{fb33}\":1}"
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_has_the_texts_that_other_implementations_give_it(value in any_json()) {
            let mut texts = Texts::default();
            // What was written before leaves nothing behind.
            texts.write(&json!({ "b": [1.0, { "d": 1, "c": 2 }], "a": 1 })).unwrap();
            texts.write(&value).unwrap();
            prop_assert_eq!(texts.plain(), serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(texts.canonical(), serde_json_canonicalizer::to_vec(&value).unwrap());
            prop_assert_eq!(canonical_json(&value).unwrap().into_bytes(), texts.canonical());
        }
    }
}
