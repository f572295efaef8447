//! A question of an agent to people, and what they answer.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::policy::ActorPermission;

/// A question that ended a run. Its texts are a model's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Question {
    /// The visit that asked.
    pub visit: u32,
    /// Its step: a successor goes on there.
    pub step_id: String,
    /// What is asked; redacted.
    pub question: String,
    /// Answers to choose from, in this order; empty = any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// What the agent takes if nobody answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What somebody answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Answered {
    /// The run that asked.
    #[schemars(with = "uuid::Uuid")]
    pub run_id: super::run::RunId,
    /// The answer, as it was written when it came to hold.
    pub text: String,
    /// Who: a login, `local:UID`, or `agentd` where nobody answered in time.
    pub by: String,
    /// What they may do in the repository; absent = it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
    /// When they wrote it.
    pub at: DateTime<Utc>,
}

impl Question {
    /// The answer that somebody's words give: an option alone, where they say no more than that; else all of their words, behind the
    /// option that they begin with.
    pub fn answer_in(&self, said: &str) -> String {
        let said = said.trim();
        let Some(option) = self.chosen(said) else { return said.to_owned() };
        let bare = said.trim_end_matches(|c: char| !c.is_alphanumeric());
        // A number alone says nothing to a model.
        let says_no_more =
            bare.eq_ignore_ascii_case(option.trim()) || bare.bytes().all(|byte| byte.is_ascii_digit());
        if says_no_more { option.to_owned() } else { format!("{option}\n\n({said})") }
    }

    /// The option that a text names by its number or by its words, at its beginning.
    pub fn chosen(&self, text: &str) -> Option<&str> {
        let first = text.trim().lines().next()?.trim();
        let number: String = first.chars().take_while(char::is_ascii_digit).collect();
        let rest = &first[number.len()..];
        if !number.is_empty() && !rest.starts_with(|c: char| c.is_alphanumeric()) {
            let place = number.parse::<usize>().ok()?.checked_sub(1)?;
            return self.options.get(place).map(String::as_str);
        }
        let said = first.to_lowercase();
        let begins = |option: &&String| {
            let option = option.trim().to_lowercase();
            let rest = said.strip_prefix(&option);
            !option.is_empty() && rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        self.options.iter().filter(begins).max_by_key(|option| option.len()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_more_than_an_option_is_kept_whole() {
        let options = ["cents", "euros"].map(str::to_owned).to_vec();
        let asked = Question { visit: 1, step_id: "s".into(), question: "?".into(), options, default: None };
        for (text, answer) in [
            ("2", "euros"),
            (" 2. ", "euros"),
            ("Cents!", "cents"),
            ("cents are wrong, take euros", "cents\n\n(cents are wrong, take euros)"),
            ("2 decimals, in cents", "euros\n\n(2 decimals, in cents)"),
            ("1 is wrong: use yen", "cents\n\n(1 is wrong: use yen)"),
            ("use yen ", "use yen"),
        ] {
            assert_eq!(asked.answer_in(text), answer, "{text}");
        }
    }

    #[test]
    fn an_option_is_chosen_by_its_number_or_its_word_at_the_beginning() {
        let options = ["cents", "dollars", "dollars and cents"].map(str::to_owned).to_vec();
        let asked = Question { visit: 1, step_id: "s".into(), question: "?".into(), options, default: None };
        for (text, chosen) in [
            ("2", Some("dollars")),
            (" 1. please", Some("cents")),
            ("Cents!", Some("cents")),
            ("dollars and cents, as before", Some("dollars and cents")),
            ("3)\nbecause", Some("dollars and cents")),
            ("4", None),
            ("0", None),
            ("2nd thoughts", None),
            ("centscents", None),
            ("I take 2", None),
            ("", None),
        ] {
            assert_eq!(asked.chosen(text), chosen, "{text}");
        }
    }
}
