//! What people are told when something went wrong: one fixed text for each class, without technical words (S-032,
//! S-033).

use crate::domain::stop::StopDetail;
use crate::domain::trace::SessionFailure;

/// Classes of errors that people can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A provider limits requests.
    RateLimit,
    /// It took too long.
    Timeout,
    /// A provider could not be used.
    Api,
    /// What was asked for is not there.
    NotFound,
    /// What was asked for is not the user's, or not allowed.
    Permission,
    /// All iterations were used.
    MaxIterations,
    /// The request could not be understood.
    Validation,
    /// Anything else.
    Unknown,
}

impl ErrorClass {
    /// Every class, in the contract's order.
    pub const ALL: [Self; 8] = [
        Self::RateLimit,
        Self::Timeout,
        Self::Api,
        Self::NotFound,
        Self::Permission,
        Self::MaxIterations,
        Self::Validation,
        Self::Unknown,
    ];

    /// The words for the user.
    pub fn text(self) -> &'static str {
        match self {
            Self::RateLimit => "I'm currently experiencing high demand. Please try again in a moment.",
            Self::Timeout => "That request took too long. Please try a simpler query.",
            Self::Api => "I'm having trouble connecting to my AI service. Please try again.",
            Self::NotFound => "I couldn't find that task. It may have been deleted.",
            Self::Permission => "You don't have permission to access that task.",
            Self::MaxIterations => {
                "I need more time to process this request. Please try breaking it into smaller steps."
            }
            Self::Validation => "I couldn't understand that request. Please try rephrasing.",
            Self::Unknown => "An unexpected error occurred. Please try again or contact support.",
        }
    }

    /// The class's name for programs (S-009).
    pub fn error_type(self) -> &'static str {
        match self {
            Self::RateLimit => "RateLimitError",
            Self::Timeout => "APITimeoutError",
            Self::Api => "LLMAPIError",
            Self::NotFound => "ResourceNotFound",
            Self::Permission => "UnauthorizedAccess",
            Self::MaxIterations => "MaxIterationsExceededError",
            Self::Validation => "ValidationError",
            Self::Unknown => "UnknownError",
        }
    }

    /// The class of a session's failure.
    pub fn of(failure: &SessionFailure) -> Self {
        match (failure.stop.detail, failure.error_name.as_str()) {
            (_, "RateLimited") => Self::RateLimit,
            (_, "ModelTimeout") | (StopDetail::MaxWallTime, _) => Self::Timeout,
            (
                StopDetail::AuthError
                | StopDetail::QuotaExceeded
                | StopDetail::LlmUnavailable
                | StopDetail::InvalidModelOutput,
                _,
            ) => Self::Api,
            (StopDetail::PolicyDenied | StopDetail::ApprovalPending, _) => Self::Permission,
            (StopDetail::MaxTurnsExhausted, _) => Self::MaxIterations,
            _ => Self::Unknown,
        }
    }

    /// The class of a tool's error, by its `error_type`.
    pub fn of_tool(error_type: &str) -> Self {
        match error_type {
            "PolicyDenied" => Self::Permission,
            "Timeout" => Self::Timeout,
            kind if kind.contains("NotFound") => Self::NotFound,
            kind if kind.contains("Unauthorized") => Self::Permission,
            kind if kind.starts_with("Validation") => Self::Validation,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stop::Stop;

    #[test]
    fn s_032_every_class_has_its_own_text_and_name() {
        let texts: std::collections::BTreeSet<&str> = ErrorClass::ALL.map(ErrorClass::text).into();
        let names: std::collections::BTreeSet<&str> = ErrorClass::ALL.map(ErrorClass::error_type).into();
        assert_eq!((texts.len(), names.len()), (8, 8));
        let failure = |detail, name: &str| SessionFailure {
            stop: Stop::new(detail, "x"),
            error_name: name.to_owned(),
            error_message: "HTTP 500 at https://host/v1, key sk-123".to_owned(),
        };
        let of = |detail, name| ErrorClass::of(&failure(detail, name));
        assert_eq!(of(StopDetail::LlmUnavailable, "RateLimited"), ErrorClass::RateLimit);
        assert_eq!(of(StopDetail::LlmUnavailable, "ModelTimeout"), ErrorClass::Timeout);
        assert_eq!(of(StopDetail::LlmUnavailable, "ModelUnavailable"), ErrorClass::Api);
        assert_eq!(of(StopDetail::MaxTurnsExhausted, "MaxTurnsExceeded"), ErrorClass::MaxIterations);
        assert_eq!(of(StopDetail::PolicyDenied, "ToolCallPolicyDenied"), ErrorClass::Permission);
        for detail in StopDetail::ALL {
            let class = of(*detail, "AnythingElse");
            assert!(ErrorClass::ALL.contains(&class), "every end has a text");
        }
        assert_eq!(of(StopDetail::Internal, "InternalError"), ErrorClass::Unknown);
    }

    #[test]
    fn s_033_no_text_is_technical() {
        for class in ErrorClass::ALL {
            let text = class.text();
            assert!(!text.contains(['/', '{', '\\', '_', ':']), "{text}");
            assert!(!text.chars().any(|c| c.is_ascii_digit()), "{text}");
        }
    }
}
