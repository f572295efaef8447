//! Money as integer micro-dollars, so that totals never round.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// US dollars in millionths; reads and writes JSON and TOML as dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money(u64);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From millionths of a dollar.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From dollars, to the nearest millionth; `None` if negative, not finite or out of range.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let micros = (dollars * 1e6).round();
        // u64::MAX is not exact as a float; 1e18 micro-dollars are a trillion dollars, which is enough.
        (micros.is_finite() && (0.0..=1e18).contains(&micros)).then_some(Self(micros as u64))
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Millionths of a dollar.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Dollars, for JSON.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The rest after `other`, never below zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    /// `$1.23`, and as many more digits as a small sum needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents_are_enough = self.0.is_multiple_of(10_000) || self.0 >= 10_000_000;
        if cents_are_enough {
            write!(f, "${:.2}", self.dollars())
        } else {
            write!(f, "${:.4}", self.dollars())
        }
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_dollars(dollars)
            .ok_or_else(|| serde::de::Error::custom("an amount in US dollars, zero or more"))
    }
}

impl schemars::JsonSchema for Money {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Money".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number", "minimum": 0, "description": "US dollars" })
    }
}
