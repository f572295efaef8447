//! Links to the second origin: signed, and soon out of date.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::world::World;

/// How long a link to an image can be used.
pub const IMAGE_LINK: Duration = Duration::from_secs(300);

/// What signs a path until then, in seconds since 1970.
pub fn signature(world: &World, path: &str, until: i64) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{} {path} {until}", world.base));
    hex::encode(&hash.finalize()[..16])
}

/// A link to a path there, which works until then.
pub fn link(world: &World, path: &str, until: DateTime<Utc>) -> String {
    let until = until.timestamp();
    format!("{}{path}?se={until}&sig={}", world.second, signature(world, path, until))
}
