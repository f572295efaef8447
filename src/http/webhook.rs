//! `POST /webhooks/github`: a delivery only makes the daemon look earlier. Its content is not used.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hmac::{Hmac, Mac as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sha2::Sha256;

use super::reply::failure;
use super::shared::Shared;

/// GitHub's own limit for the body of a webhook.
const LARGEST_BODY: usize = 25 * 1024 * 1024;
/// Bytes of a body that are kept to see which repository it names; of a longer one that is not known.
const LARGEST_KEPT: usize = 256 * 1024;
/// Longest id of a delivery; GitHub's have 36 characters.
const LONGEST_ID: usize = 128;
/// Events after which looking is worth it.
const WORTH_A_LOOK: [&str; 14] = [
    "issues",
    "issue_comment",
    "label",
    "issue_dependencies",
    "sub_issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "pull_request_review_thread",
    "workflow_run",
    "check_run",
    "check_suite",
    "status",
    "push",
];

/// Checks the signature over the body as it comes and keeps a limited part of it. Then gives the daemon one hint for
/// each delivery, for the repository that it names.
pub async fn github(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let Some(secret) = &shared.front.webhook_secret else {
        return failure(StatusCode::NOT_FOUND, "not_configured", "set daemon.webhook_secret to use webhooks");
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (mut kept, mut whole) = (Vec::new(), true);
    let seal = Seal::of(secret.expose_secret().as_bytes(), text("x-hub-signature-256"));
    let signed = match seal {
        // What has no signature is not read.
        None => false,
        Some(mut seal) => {
            let take = |piece: &[u8]| {
                seal.mac.update(piece);
                if kept.len() + piece.len() <= LARGEST_KEPT {
                    kept.extend_from_slice(piece);
                } else {
                    whole = false;
                }
            };
            match super::body::each(body, LARGEST_BODY, take).await {
                Ok(()) => seal.holds(),
                Err(refused) => return refused.into_response(),
            }
        }
    };
    if !signed {
        tracing::warn!("a webhook with a missing or wrong signature was refused");
        return failure(StatusCode::UNAUTHORIZED, "bad_signature", "X-Hub-Signature-256 is missing or wrong");
    }
    let (event, delivery) = (text("x-github-event"), text("x-github-delivery"));
    if delivery.is_empty() || delivery.len() > LONGEST_ID {
        return failure(StatusCode::BAD_REQUEST, "bad_request", "X-GitHub-Delivery is missing or too long");
    }
    if !shared.deliveries.is_new(delivery) {
        return Json(json!({ "accepted": false, "duplicate": true })).into_response();
    }
    let heeded = WORTH_A_LOOK.contains(&event);
    if heeded {
        tracing::debug!(event, delivery, "a webhook; looking at once");
        let told: Option<Value> = serde_json::from_slice(&kept).ok().filter(|_| whole);
        let repository = told.as_ref().and_then(|told| told.pointer("/repository/full_name")?.as_str());
        shared.front.hints.look_at(repository);
    }
    (StatusCode::ACCEPTED, Json(json!({ "accepted": heeded, "event": event }))).into_response()
}

/// Whether a webhook's body has the signature of its header; compares in constant time.
pub fn is_signed(secret: &[u8], body: &[u8], header: &str) -> bool {
    Seal::of(secret, header).is_some_and(|mut seal| {
        seal.mac.update(body);
        seal.holds()
    })
}

/// What a body has to come to.
struct Seal {
    mac: Hmac<Sha256>,
    signature: Vec<u8>,
}

impl Seal {
    /// `None` = the header is none of a signature.
    fn of(secret: &[u8], header: &str) -> Option<Self> {
        let signature = hex::decode(header.strip_prefix("sha256=")?).ok()?;
        let mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        (signature.len() == 32).then_some(Self { mac, signature })
    }

    /// Compares in constant time.
    fn holds(self) -> bool {
        self.mac.verify_slice(&self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn githubs_own_example_of_a_signature_holds_and_a_changed_body_does_not() {
        let is_signed = |secret: &[u8], body: &[u8], header: &str| {
            Seal::of(secret, header).is_some_and(|mut seal| {
                body.chunks(5).for_each(|piece| seal.mac.update(piece));
                seal.holds()
            })
        };
        let header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let secret = b"It's a Secret to Everybody";
        assert!(is_signed(secret, b"Hello, World!", header));
        assert!(!is_signed(secret, b"Hello, World", header));
        assert!(!is_signed(secret, b"Hello, World!", "sha256="));
        assert!(!is_signed(secret, b"Hello, World!", &header[7..]));
    }
}
