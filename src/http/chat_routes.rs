//! The paths of the chat endpoint: a message and its answer, and the conversations of a user.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use uuid::Uuid;

use super::body::{self, Refused};
use super::chat::Chat;
use super::reply::failure;
use super::shared::Shared;
use crate::domain::run::Principal;
use crate::domain::stop::StopDetail;
use crate::service::{
    AgentResponse, ConversationError, Conversations, ErrorClass, LONGEST_MESSAGE, Unanswered, converse,
};

/// How much of a body is read: far more than fits, so that a client that sends too much gets an answer.
const LARGEST_BODY: usize = 4 * 1024 * 1024;

type Of = State<Arc<Shared>>;

/// The paths under `/api/{user_id}`.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/{user_id}/chat", post(chat))
        .route("/api/{user_id}/conversations", get(list).post(begin))
        .route("/api/{user_id}/conversations/{conversation}", get(read).delete(remove))
}

/// The chat and the user that the token is, if that is the user of the path.
fn admitted(
    shared: &Shared,
    headers: &HeaderMap,
    path_user: &str,
) -> Result<(Arc<Chat>, Principal), Box<Response>> {
    let Some(chat) = shared.front.chat.borrow().clone() else {
        let words = "set [[chat.users]] with id and token to use the chat endpoint";
        return Err(Box::new(failure(StatusCode::NOT_FOUND, "not_configured", words)));
    };
    let Some(user) = chat.authenticated(headers).cloned() else {
        let words = "send Authorization: Bearer with the token of a user";
        let mut response = failure(StatusCode::UNAUTHORIZED, "unauthorized", words);
        let challenge = header::HeaderValue::from_static("Bearer realm=\"agentd\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return Err(Box::new(response));
    };
    match Uuid::parse_str(path_user) {
        Ok(id) if id == user.id => Ok((chat, user)),
        Ok(_) => Err(Box::new(forbidden())),
        Err(_) => Err(Box::new(invalid("user_id is not a UUID"))),
    }
}

fn forbidden() -> Response {
    told(StatusCode::FORBIDDEN, ErrorClass::Permission)
}

fn told(status: StatusCode, class: ErrorClass) -> Response {
    failure(status, class.error_type(), class.text())
}

fn invalid(what: &str) -> Response {
    failure(StatusCode::BAD_REQUEST, "ValueError", &format!("Invalid request parameters: {what}"))
}

/// `POST /api/{user_id}/chat`: `{"message": "…", "conversation_id": "…"?}`.
async fn chat(State(shared): Of, Path(user_id): Path<String>, headers: HeaderMap, sent: Body) -> Response {
    let (chat, user) = match admitted(&shared, &headers, &user_id) {
        Ok(admitted) => admitted,
        Err(refused) => return *refused,
    };
    // Nothing is read of who has no token.
    let body = match body::read(sent, LARGEST_BODY).await {
        Ok(body) => body,
        Err(Refused::TooLarge(_)) => return too_long(),
        Err(refused) => return refused.into_response(),
    };
    let asked = match Asked::of(&body) {
        Ok(asked) => asked,
        Err(what) => return invalid(&what),
    };
    if asked.user_id.is_some_and(|named| named != user.id) {
        return forbidden();
    }
    if chat.under_way.is_closed() {
        return failure(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is ending; ask again later");
    }
    let service = Arc::clone(&chat.service);
    let answering = chat
        .under_way
        .spawn(async move { converse(&service, &user, asked.conversation, &asked.message).await });
    match answering.await {
        Ok(Ok(reply)) => Json(reply).into_response(),
        Ok(Err(unanswered)) => refused(unanswered),
        Err(panic) => internal(&panic.to_string()),
    }
}

/// What a body asks for.
struct Asked {
    message: String,
    conversation: Option<Uuid>,
    user_id: Option<Uuid>,
}

impl Asked {
    fn of(body: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
        let fields = value.as_object().ok_or("the body is not an object")?;
        let known = ["message", "conversation_id", "user_id"];
        if let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("\"{other}\" is not known here; known are {}", known.join(", ")));
        }
        let id = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_str()
                .and_then(|text| Uuid::parse_str(text).ok())
                .map(Some)
                .ok_or(format!("{name} is not a UUID")),
        };
        let message =
            fields.get("message").and_then(Value::as_str).ok_or("message is missing, or not a string")?;
        Ok(Self {
            message: message.to_owned(),
            conversation: id("conversation_id")?,
            user_id: id("user_id")?,
        })
    }
}

/// `GET /api/{user_id}/conversations`: the user's own, newest first.
async fn list(State(shared): Of, Path(user_id): Path<String>, headers: HeaderMap) -> Response {
    kept(&shared, &headers, &user_id, |conversations| {
        Ok(Json(json!({ "conversations": conversations.list()? })).into_response())
    })
    .await
}

/// `POST /api/{user_id}/conversations`: begins one; from now on it is the newest.
async fn begin(State(shared): Of, Path(user_id): Path<String>, headers: HeaderMap) -> Response {
    kept(&shared, &headers, &user_id, |conversations| {
        let begun = json!({ "conversation_id": conversations.begin()?.id });
        Ok((StatusCode::CREATED, Json(begun)).into_response())
    })
    .await
}

/// `GET /api/{user_id}/conversations/{conversation}`: what was said.
async fn read(
    State(shared): Of,
    Path((user_id, conversation)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    kept_one(&shared, &headers, &user_id, &conversation, |conversations, id| {
        Ok(Json(json!({ "conversation_id": id, "messages": conversations.read(id)? })).into_response())
    })
    .await
}

/// `DELETE /api/{user_id}/conversations/{conversation}`.
async fn remove(
    State(shared): Of,
    Path((user_id, conversation)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    kept_one(&shared, &headers, &user_id, &conversation, |conversations, id| {
        conversations.remove(id)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// Something with the user's kept conversations, off the runtime's threads.
async fn kept(
    shared: &Shared,
    headers: &HeaderMap,
    user_id: &str,
    work: impl FnOnce(Conversations) -> Result<Response, ConversationError> + Send + 'static,
) -> Response {
    let conversations = match admitted(shared, headers, user_id) {
        Ok((chat, user)) => chat.service.conversations(&user),
        Err(refused) => return *refused,
    };
    match tokio::task::spawn_blocking(move || work(conversations)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => withheld(&error),
        Err(panic) => internal(&panic.to_string()),
    }
}

/// The same with one of them, named in the path.
async fn kept_one(
    shared: &Shared,
    headers: &HeaderMap,
    user_id: &str,
    named: &str,
    work: impl FnOnce(Conversations, Uuid) -> Result<Response, ConversationError> + Send + 'static,
) -> Response {
    let id = Uuid::parse_str(named);
    kept(shared, headers, user_id, move |conversations| match id {
        Ok(id) => work(conversations, id),
        Err(_) => Ok(invalid("conversation_id is not a UUID")),
    })
    .await
}

fn refused(unanswered: Unanswered) -> Response {
    match unanswered {
        Unanswered::Invalid(error) => failure(StatusCode::BAD_REQUEST, "ValueError", &error.to_string()),
        Unanswered::TooLong => too_long(),
        Unanswered::Conversation(error) => withheld(&error),
        Unanswered::Defect(technical) => internal(&technical),
        Unanswered::Failed(response) => {
            let meta = &response.meta;
            let error = json!({
                "code": meta.error_type, "message": response.final_response,
                "error_id": meta.error_id, "run_id": meta.run_id,
            });
            let mut response = (status_of(&response), Json(json!({ "error": error }))).into_response();
            if let Some(time) = meta.worth_again {
                response.headers_mut().insert(header::RETRY_AFTER, time.as_secs().max(1).into());
            }
            response
        }
    }
}

/// That of an answer that there is none. For want of money it is no fault of agentd's: in a moment others may have given some back, or
/// there is more on the next day.
fn status_of(response: &AgentResponse) -> StatusCode {
    if response.finish_reason != StopDetail::MaxCost.as_str() {
        StatusCode::INTERNAL_SERVER_ERROR
    } else if response.meta.error_type.as_deref() == Some(ErrorClass::RateLimit.error_type()) {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

fn too_long() -> Response {
    let words = format!("Invalid request parameters: the message is longer than {LONGEST_MESSAGE} bytes");
    failure(StatusCode::PAYLOAD_TOO_LARGE, "ValueError", &words)
}

fn withheld(error: &ConversationError) -> Response {
    match error {
        ConversationError::Missing(_) => told(StatusCode::NOT_FOUND, ErrorClass::NotFound),
        ConversationError::Foreign(_) => forbidden(),
        ConversationError::Busy => {
            failure(StatusCode::CONFLICT, "conversation_busy", &ConversationError::Busy.to_string())
        }
        ConversationError::File(error) => internal(&error.to_string()),
    }
}

/// A defect: the words are in the log, under the id.
fn internal(technical: &str) -> Response {
    let error_id = Uuid::now_v7();
    tracing::error!(%error_id, "the chat endpoint: {technical}");
    let class = ErrorClass::Unknown;
    let error = json!({ "code": class.error_type(), "message": class.text(), "error_id": error_id });
    (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": error }))).into_response()
}
