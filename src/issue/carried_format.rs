//! What a status comment says of the money, in a line that people do not see.

use serde::{Deserialize, Serialize};

use crate::domain::money::Money;

/// The sums that a new state directory begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    /// Spent and set aside.
    pub usd: Money,
    /// Given by people beyond the cap.
    pub given: Money,
}
