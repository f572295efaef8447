//! What people are told when something went wrong: one fixed text for each class, without technical words (S-032,
//! S-033).

use std::time::Duration;

use chrono::{DateTime, Timelike as _, Utc};

use crate::domain::stop::StopDetail;
use crate::domain::trace::SessionFailure;
use crate::engine::shortage::{is_of_the_day, is_set_aside};

/// How soon money may come back that is set aside for requests under way.
const IN_A_MOMENT: Duration = Duration::from_secs(5);

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
    /// The money does not cover it.
    Money,
    /// Anything else.
    Unknown,
}

impl ErrorClass {
    /// Every class: the contract's in its order, and before the last one that of money.
    pub const ALL: [Self; 9] = [
        Self::RateLimit,
        Self::Timeout,
        Self::Api,
        Self::NotFound,
        Self::Permission,
        Self::MaxIterations,
        Self::Validation,
        Self::Money,
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
            Self::Money => {
                "There is not enough money left to answer that. Please try again tomorrow, or in a new conversation."
            }
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
            Self::Money => "BudgetExceededError",
            Self::Unknown => "UnknownError",
        }
    }

    /// The class of a session's failure.
    pub fn of(failure: &SessionFailure) -> Self {
        match (failure.stop.detail, failure.error_name.as_str()) {
            (_, "RateLimited") => Self::RateLimit,
            // Others give it back in a moment.
            (StopDetail::MaxCost, _) if is_set_aside(&failure.stop) => Self::RateLimit,
            (StopDetail::MaxCost, _) => Self::Money,
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

    /// After how long it may be answered; `None` = time does not help, or nobody knows.
    pub fn worth_again(failure: &SessionFailure, now: DateTime<Utc>) -> Option<Duration> {
        if is_set_aside(&failure.stop) {
            return Some(IN_A_MOMENT);
        }
        let day = Duration::from_secs(24 * 60 * 60);
        let passed = Duration::from_secs(now.num_seconds_from_midnight().into());
        is_of_the_day(&failure.stop).then(|| day.saturating_sub(passed))
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
        assert_eq!((texts.len(), names.len()), (9, 9));
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
    fn money_that_others_have_set_aside_is_a_matter_of_a_moment_and_that_of_the_day_one_of_tomorrow() {
        let now = "2026-11-30T23:59:00Z".parse().unwrap();
        for (message, class, seconds) in [
            (
                "The budget of $1.00 a day (UTC) does not cover the next request beside what is set aside for other requests.",
                ErrorClass::RateLimit,
                Some(5),
            ),
            ("The budget of $1.00 a day (UTC) does not cover the next request.", ErrorClass::Money, Some(60)),
            ("The budget of $1.00 does not cover the next request.", ErrorClass::Money, None),
        ] {
            let stop = Stop::new(StopDetail::MaxCost, message);
            let failure =
                SessionFailure { stop, error_name: "BudgetExceeded".into(), error_message: message.into() };
            assert_eq!(ErrorClass::of(&failure), class, "{message}");
            let again = ErrorClass::worth_again(&failure, now).map(|time| time.as_secs());
            assert_eq!(again, seconds, "{message}");
        }
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
