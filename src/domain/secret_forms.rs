//! The forms of a secret that was copied, escaped or encoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

/// The forms a secret is found in: as it is, line by line, escaped in JSON, URL-encoded, in hexadecimal, in base64 at each
/// of the three alignments. `shortest` = characters that a form has at least.
pub fn of(secret: &str, shortest: usize) -> Vec<String> {
    let mut plain = vec![secret.to_owned()];
    if secret.contains('\n') {
        plain.extend(secret.lines().map(str::trim).filter(|line| line.len() >= 16).map(str::to_owned));
    }
    let mut all = Vec::new();
    for text in plain {
        let escaped = Value::from(text.as_str()).to_string();
        all.push(escaped[1..escaped.len() - 1].to_owned());
        for upper in [true, false] {
            let usual = percent_encoded(&text, upper, |byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
            });
            // In the body of a form a blank is a plus.
            all.push(usual.replace("%20", "+"));
            all.push(usual);
            // Encoders that encode more than they need: all but letters and digits, or everything.
            all.push(percent_encoded(&text, upper, |byte| byte.is_ascii_alphanumeric()));
            all.push(percent_encoded(&text, upper, |_| false));
        }
        all.push(hex::encode(&text));
        all.push(hex::encode_upper(&text));
        for offset in 0..3 {
            let core = base64_core(text.as_bytes(), offset);
            all.push(core.replace('+', "-").replace('/', "_"));
            all.push(core);
        }
        all.push(text);
    }
    all.retain(|form| form.chars().count() >= shortest);
    all
}

/// The base64 characters that depend on the secret alone when `offset` other bytes stand before it.
fn base64_core(secret: &[u8], offset: usize) -> String {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(secret);
    let encoded = STANDARD_NO_PAD.encode(&bytes);
    let first = (offset * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    encoded[first..last].to_owned()
}

fn percent_encoded(text: &str, upper: bool, stays: impl Fn(u8) -> bool) -> String {
    text.bytes()
        .map(|byte| match (stays(byte), upper) {
            (true, _) => char::from(byte).to_string(),
            (false, true) => format!("%{byte:02X}"),
            (false, false) => format!("%{byte:02x}"),
        })
        .collect()
}
