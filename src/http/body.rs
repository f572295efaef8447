//! Bodies of requests. A body is refused when it announces too much, is too long, or does not come.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;

use super::reply::failure;

/// How long a body may take from its first byte to its last.
const WITHIN: Duration = Duration::from_secs(30);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is longer than this many bytes.
    TooLarge(usize),
    /// It did not come in time.
    TooSlow,
    /// It ended in the middle, or cannot be read.
    Broken,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = match self {
            Self::TooLarge(most) => {
                let words = format!("the body is longer than {most} bytes");
                failure(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", &words)
            }
            Self::TooSlow => {
                let words = format!("the body did not come within {} s", WITHIN.as_secs());
                failure(StatusCode::REQUEST_TIMEOUT, "request_timeout", &words)
            }
            Self::Broken => failure(StatusCode::BAD_REQUEST, "bad_request", "the body cannot be read"),
        };
        // What else comes of it is not waited for.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// Passes on a body piece by piece. A body that announces too much is not read at all.
pub(super) async fn each(mut body: Body, most: usize, mut take: impl FnMut(&[u8])) -> Result<(), Refused> {
    if body.size_hint().lower() > most as u64 {
        return Err(Refused::TooLarge(most));
    }
    let reading = async {
        let mut length = 0usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refused::Broken)?;
            let Some(data) = frame.data_ref() else { continue };
            length = length.saturating_add(data.len());
            if length > most {
                return Err(Refused::TooLarge(most));
            }
            take(data);
        }
        Ok(())
    };
    tokio::time::timeout(WITHIN, reading).await.unwrap_or(Err(Refused::TooSlow))
}

/// The whole of a body.
pub(super) async fn read(body: Body, most: usize) -> Result<Bytes, Refused> {
    let mut whole = Vec::new();
    each(body, most, |piece| whole.extend_from_slice(piece)).await?;
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_in_its_time_and_up_to_its_length() {
        assert_eq!(read(Body::from("hello"), 5).await.unwrap(), "hello");
        assert_eq!(read(Body::from("hello"), 4).await, Err(Refused::TooLarge(4)));
        let pieces = |count| futures::stream::iter((0..count).map(|_| Ok::<_, std::io::Error>("piece")));
        assert_eq!(read(Body::from_stream(pieces(3)), 14).await, Err(Refused::TooLarge(14)));
        let never = futures::stream::pending::<Result<&str, std::io::Error>>();
        assert_eq!(read(Body::from_stream(never), 5).await, Err(Refused::TooSlow));
        let broken = futures::stream::iter([Ok("a"), Err(std::io::Error::other("gone"))]);
        assert_eq!(read(Body::from_stream(broken), 5).await, Err(Refused::Broken));
    }
}
