//! Canonical JSON (RFC 8785) and the hashes made over it (contracts §3.9).

use std::cmp::Ordering;
use std::io;

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
    let mut text = Canonical::default();
    text.write(value)?;
    String::from_utf8(text.out).map_err(|error| NotCanonical(error.to_string()))
}

/// Lower-case hexadecimal SHA-256 over the RFC 8785 text of a value.
pub fn canonical_sha256<T: Serialize>(value: &T) -> Result<String, NotCanonical> {
    Ok(sha256_hex(canonical_json(value)?.as_bytes()))
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Writes RFC 8785 texts, one after the other, into the same memory. Members are written in the order they come and sorted
/// when their object ends.
#[derive(Debug, Default)]
pub struct Canonical {
    out: Vec<u8>,
    /// Objects that have not ended, the innermost last: where each begins, and its first place in `members`.
    open: Vec<(usize, usize)>,
    /// Members of all objects that have not ended.
    members: Vec<Member>,
    /// Kept for the next sorting.
    sorted: Vec<u8>,
}

/// Places of a member in the text.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    key: usize,
    key_end: usize,
    end: usize,
}

impl Member {
    /// The key between its quotes, escaped as it stands.
    fn name(self, out: &[u8]) -> &[u8] {
        &out[self.key + 1..self.key_end - 1]
    }
}

/// Order of member names: by UTF-16 code units, which for ASCII is the order of the bytes.
fn by_name(one: &[u8], other: &[u8]) -> Ordering {
    let plain = |name: &[u8]| name.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
    if plain(one) && plain(other) {
        return one.cmp(other);
    }
    let units = |name: &[u8]| -> Vec<u16> {
        let quoted = [b"\"", name, b"\""].concat();
        serde_json::from_slice::<String>(&quoted).unwrap_or_default().encode_utf16().collect()
    };
    units(one).cmp(&units(other))
}

impl Canonical {
    /// The RFC 8785 text of a value, until the next one is written.
    pub fn write<T: Serialize>(&mut self, value: &T) -> Result<&[u8], NotCanonical> {
        self.out.clear();
        self.open.clear();
        self.members.clear();
        value
            .serialize(&mut Serializer::with_formatter(io::sink(), &mut *self))
            .map_err(|error| NotCanonical(error.to_string()))?;
        Ok(&self.out)
    }

    /// The text written last.
    pub fn as_slice(&self) -> &[u8] {
        &self.out
    }

    fn integer(
        &mut self,
        magnitude: u64,
        exact: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
        double: f64,
    ) -> io::Result<()> {
        if magnitude <= EXACT_INTEGERS { exact(&mut self.out) } else { self.double(double) }
    }

    fn double(&mut self, value: f64) -> io::Result<()> {
        // ECMAScript's digits; rare in what agentd hashes.
        let text = serde_json_canonicalizer::to_vec(&value)?;
        self.out.extend_from_slice(&text);
        Ok(())
    }
}

impl Formatter for &mut Canonical {
    fn write_null<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        CompactFormatter.write_null(&mut self.out)
    }

    fn write_bool<W: ?Sized + io::Write>(&mut self, _: &mut W, value: bool) -> io::Result<()> {
        CompactFormatter.write_bool(&mut self.out, value)
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
        let exact = |out: &mut Vec<u8>| CompactFormatter.write_i64(out, value);
        self.integer(value.unsigned_abs(), exact, value as f64)
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: i128) -> io::Result<()> {
        self.double(value as f64)
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
        self.integer(value, |out| CompactFormatter.write_u64(out, value), value as f64)
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: u128) -> io::Result<()> {
        self.double(value as f64)
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f32) -> io::Result<()> {
        self.double(value.into())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f64) -> io::Result<()> {
        self.double(value)
    }

    fn write_number_str<W: ?Sized + io::Write>(&mut self, _: &mut W, value: &str) -> io::Result<()> {
        self.double(value.parse().map_err(io::Error::other)?)
    }

    fn begin_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b'"');
        Ok(())
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b'"');
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, text: &str) -> io::Result<()> {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, _: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(&mut self.out, escape)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b'[');
        Ok(())
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b']');
        Ok(())
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.out.push(b',');
        }
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b'{');
        let begun = (self.out.len(), self.members.len());
        self.open.push(begun);
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W, first: bool) -> io::Result<()> {
        if !first {
            self.out.push(b',');
        }
        let key = self.out.len();
        self.members.push(Member { key, ..Member::default() });
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let end = self.out.len();
        if let Some(member) = self.members.last_mut() {
            member.key_end = end;
        }
        Ok(())
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.out.push(b':');
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let Some((start, first)) = self.open.pop() else {
            return Err(io::Error::other("an object ends that did not begin"));
        };
        let Canonical { out, members, sorted, .. } = &mut **self;
        // A member ends where the next one's comma stands.
        let end = out.len();
        let mut following = end + 1;
        for member in members[first..].iter_mut().rev() {
            member.end = following - 1;
            following = member.key;
        }
        let order = |one: &Member, other: &Member| by_name(one.name(out), other.name(out));
        let mine = &mut members[first..];
        if !mine.is_sorted_by(|one, other| order(one, other) == Ordering::Less) {
            mine.sort_by(order);
            sorted.clear();
            let mut before: Option<Member> = None;
            for member in mine.iter() {
                if before.is_some_and(|before| order(&before, member) == Ordering::Equal) {
                    continue;
                }
                if before.is_some() {
                    sorted.push(b',');
                }
                sorted.extend_from_slice(&out[member.key..member.end]);
                before = Some(*member);
            }
            out.truncate(start);
            out.extend_from_slice(sorted);
        }
        members.truncate(first);
        self.out.push(b'}');
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
        fn every_value_has_the_text_that_another_implementation_gives_it(value in any_json()) {
            prop_assert_eq!(canonical_json(&value).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
        }
    }
}
