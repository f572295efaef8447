//! Canonical JSON (RFC 8785) and the hashes made over it (P-028).

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};
use sha2::{Digest as _, Sha256};

/// A double holds every integer up to here, so the integer's digits are the canonical ones.
const EXACT_INTEGERS: u64 = 1 << 53;

/// A value that has no canonical JSON form (a map whose keys are no texts).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("value has no canonical JSON form: {0}")]
pub struct NotCanonical(String);

/// RFC 8785 text of a value. Numbers that are not finite are `null`, as everywhere in JSON.
pub fn canonical_json<T: Serialize + ?Sized>(value: &T) -> Result<String, NotCanonical> {
    with_text(|text| {
        text.write(value)?;
        String::from_utf8(text.bytes().to_vec()).map_err(|error| NotCanonical(error.to_string()))
    })
}

/// Lower-case hexadecimal SHA-256 over the RFC 8785 text of a value.
pub fn canonical_sha256<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    with_text(|text| {
        text.write(value)?;
        Ok(sha256_hex(text.bytes()))
    })
}

/// Lends the thread's buffer for texts, so that a text allocates nothing. Where the buffer is lent already, it lends a
/// new one. A buffer that a long text made large is given back.
pub fn with_text<R>(work: impl FnOnce(&mut CanonicalText) -> R) -> R {
    const LONG: usize = 64 * 1024;
    thread_local! { static OWN: RefCell<CanonicalText> = RefCell::default(); }
    OWN.with(|own| match own.try_borrow_mut() {
        Ok(mut text) => {
            let result = work(&mut text);
            if text.text.capacity() > LONG {
                *text = CanonicalText::default();
            }
            result
        }
        Err(_) => work(&mut CanonicalText::default()),
    })
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    finished(Sha256::new_with_prefix(bytes))
}

/// Lower-case hexadecimal SHA-256 of what a hash was given.
pub fn finished(hash: Sha256) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = vec![0; 64];
    for (two, byte) in text.chunks_exact_mut(2).zip(hash.finalize()) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    // Digits are ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// Writes RFC 8785 texts, one value after the other in the same memory. It visits a value once and sorts the members of
/// an object when the object ends.
#[derive(Debug, Default)]
pub struct CanonicalText {
    text: Vec<u8>,
    /// The objects that have not ended, the innermost last: where the members begin, and their first index in
    /// `members`.
    open: Vec<(usize, usize)>,
    /// Members of all objects that have not ended.
    members: Vec<Member>,
    /// The members of an object in the order of writing, while they are sorted.
    unsorted: Vec<u8>,
    /// Numbers are written as `serde_json` does.
    exact: bool,
    /// Some number was written otherwise than RFC 8785 has it.
    differs: bool,
}

/// Places of a member in the text.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
    /// The first bytes of a name that is ASCII without escapes. Their order is the order of its UTF-16 code units.
    begins: Option<u64>,
}

impl Member {
    /// See [`Member::begins`].
    fn beginning(name: &[u8]) -> Option<u64> {
        if !name.iter().all(|byte| byte.is_ascii() && *byte != b'\\') {
            return None;
        }
        let mut first = [0; 8];
        let length = name.len().min(first.len());
        first[..length].copy_from_slice(&name[..length]);
        Some(u64::from_be_bytes(first))
    }

    /// The name between its quotes, escaped as it stands.
    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.start + 1..self.name_end - 1]
    }

    /// By names, in the order of their UTF-16 code units.
    fn order(self, other: Self, text: &[u8]) -> Ordering {
        if let (Some(one), Some(two)) = (self.begins, other.begins) {
            return one.cmp(&two).then_with(|| self.name(text).cmp(other.name(text)));
        }
        let units = |member: Self| -> Vec<u16> {
            let quoted = &text[member.start..member.name_end];
            serde_json::from_slice::<String>(quoted).unwrap_or_default().encode_utf16().collect()
        };
        units(self).cmp(&units(other))
    }
}

impl CanonicalText {
    /// Writes the text of a value. It replaces the text of the value before.
    pub fn write<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotCanonical> {
        self.exact = false;
        self.make(value)
    }

    /// The same, for a text from which the value is read back. Numbers keep what a double would lose, such as large
    /// integers and the point of `1.0`. Says whether this is the canonical text too; it nearly always is.
    pub fn write_exact<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<bool, NotCanonical> {
        self.exact = true;
        self.make(value)?;
        Ok(!self.differs)
    }

    fn make<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotCanonical> {
        self.differs = false;
        self.text.clear();
        self.open.clear();
        self.members.clear();
        value
            .serialize(&mut Serializer::with_formatter(io::sink(), self))
            .map_err(|error| NotCanonical(error.to_string()))
    }

    /// The text of the last value.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// A number that RFC 8785 takes for a double; `exactly` writes it as it is.
    fn double(&mut self, value: f64, exactly: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        if !self.exact {
            return Ok(serde_json_canonicalizer::to_writer(&value, &mut self.text)?);
        }
        let start = self.text.len();
        exactly(&mut self.text)?;
        let written = &self.text[start..];
        // Numbers below 1e16 that are not very small have the same shortest digits in both forms.
        let plain = value != 0.0 && written.contains(&b'.') && !written.contains(&b'e');
        if !plain || written.ends_with(b".0") {
            self.differs |= written != serde_json_canonicalizer::to_vec(&value)?;
        }
        Ok(())
    }
}

/// Everything goes to the text; the writer is none.
impl Formatter for &mut CanonicalText {
    fn write_null<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        CompactFormatter.write_null(&mut self.text)
    }

    fn write_bool<W: ?Sized + io::Write>(&mut self, _: &mut W, value: bool) -> io::Result<()> {
        CompactFormatter.write_bool(&mut self.text, value)
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
        match value.unsigned_abs() <= EXACT_INTEGERS {
            true => CompactFormatter.write_i64(&mut self.text, value),
            false => self.double(value as f64, |text| CompactFormatter.write_i64(text, value)),
        }
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: i128) -> io::Result<()> {
        self.double(value as f64, |text| CompactFormatter.write_i128(text, value))
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
        match value <= EXACT_INTEGERS {
            true => CompactFormatter.write_u64(&mut self.text, value),
            false => self.double(value as f64, |text| CompactFormatter.write_u64(text, value)),
        }
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: u128) -> io::Result<()> {
        self.double(value as f64, |text| CompactFormatter.write_u128(text, value))
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        // Reading the digits back gives the same double.
        let mut digits = Vec::new();
        CompactFormatter.write_f32(&mut digits, value)?;
        self.write_number_str(writer, std::str::from_utf8(&digits).map_err(io::Error::other)?)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f64) -> io::Result<()> {
        self.double(value, |text| CompactFormatter.write_f64(text, value))
    }

    fn write_number_str<W: ?Sized + io::Write>(&mut self, _: &mut W, value: &str) -> io::Result<()> {
        let double = value.parse().map_err(io::Error::other)?;
        self.double(double, |text| CompactFormatter.write_number_str(text, value))
    }

    fn begin_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b'"');
        Ok(())
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b'"');
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, text: &str) -> io::Result<()> {
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, _: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(&mut self.text, escape)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b'[');
        Ok(())
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b']');
        Ok(())
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.text.push(b',');
        }
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b'{');
        self.open.push((self.text.len(), self.members.len()));
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.text.push(b',');
        }
        let start = self.text.len();
        self.members.push(Member { start, name_end: start, end: start, begins: None });
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let CanonicalText { text, members, .. } = &mut **self;
        if let Some(member) = members.last_mut() {
            member.name_end = text.len();
            member.begins = Member::beginning(member.name(text));
        }
        Ok(())
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.push(b':');
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let CanonicalText { text, open, members, unsorted, .. } = &mut **self;
        let Some((begin, first)) = open.pop() else {
            return Err(io::Error::other("an object ends that did not begin"));
        };
        let mine = &mut members[first..];
        if !mine.is_sorted_by(|one, other| one.order(*other, text) == Ordering::Less) {
            // A member ends where the next one's comma stands.
            let mut following = text.len() + 1;
            for member in mine.iter_mut().rev() {
                member.end = following - 1;
                following = member.start;
            }
            mine.sort_unstable_by(|one, other| one.order(*other, text));
            unsorted.clear();
            unsorted.extend_from_slice(&text[begin..]);
            text.truncate(begin);
            for member in mine {
                text.extend_from_slice(&unsorted[member.start - begin..member.end - begin]);
                text.push(b',');
            }
            text.pop();
        }
        text.push(b'}');
        members.truncate(first);
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

    #[test]
    fn a_short_float_is_the_number_that_its_digits_are_read_as() {
        let mut text = CanonicalText::default();
        assert!(text.write_exact(&0.1_f32).unwrap());
        assert_eq!((text.bytes(), canonical_json(&0.1_f32).unwrap().as_str()), (&b"0.1"[..], "0.1"));
        assert!(!text.write_exact(&2.0_f32).unwrap());
        assert_eq!((text.bytes(), canonical_json(&2.0_f32).unwrap().as_str()), (&b"2.0"[..], "2"));
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
        fn every_value_has_the_text_that_another_implementation_gives_it(value in any_json()) {
            let mut text = CanonicalText::default();
            // What was written before leaves nothing behind.
            text.write(&json!({ "b": [1.0, { "d": 1, "c": 2 }], "a": 1 })).unwrap();
            text.write(&value).unwrap();
            prop_assert_eq!(text.bytes(), serde_json_canonicalizer::to_vec(&value).unwrap());
            prop_assert_eq!(canonical_json(&value).unwrap().into_bytes(), text.bytes());
            let canonical = text.bytes().to_vec();
            let same = text.write_exact(&value).unwrap();
            prop_assert_eq!(same, text.bytes() == canonical);
            prop_assert_eq!(serde_json::from_slice::<Value>(text.bytes()).unwrap(), value);
        }
    }
}
