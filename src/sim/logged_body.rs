//! The body of a request in the log: kept as it arrived, and read when somebody looks at it.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Value, json};

/// A body: JSON where it is JSON, else text, else null. A simulator that runs for days keeps many, and as values they need
/// several times their bytes.
#[derive(Clone, Default)]
pub struct LoggedBody {
    bytes: Bytes,
    value: OnceLock<Value>,
}

impl LoggedBody {
    /// A body by its bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, value: OnceLock::new() }
    }

    /// What it says, read for this once.
    pub fn read(&self) -> Value {
        if self.bytes.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&self.bytes)))
    }
}

impl fmt::Debug for LoggedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Deref for LoggedBody {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| self.read())
    }
}
