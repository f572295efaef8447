//! Whether a provider answers, accepts the key and has a model. One free request finds out before money is spent.

use std::time::Duration;

use serde_json::Value;

use super::providers::Providers;

/// Longest wait for the answer.
const LIMIT: Duration = Duration::from_secs(15);
/// Longest list that is read, in bytes.
const LONGEST: usize = 4 * 1024 * 1024;

/// What asking a provider for its models showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It answers and accepts the key. Has the models that it lists; `None` if it has no such list.
    Answers(Option<Vec<String>>),
    /// It answers, and refuses the key (401 or 403).
    RefusesKey(u16),
    /// It answers with a failure of its own.
    Fails(u16),
    /// Nobody answers; why, without the address.
    Silent(String),
}

impl Providers {
    /// Asks a provider for the models it has. `None` = no such provider among these.
    pub async fn availability(&self, provider: &str) -> Option<Availability> {
        let provider = self.get(provider)?;
        let path = provider.kind.wire().models_path;
        let endpoint = &provider.endpoint;
        let asked = endpoint
            .client
            .get(format!("{}{path}", endpoint.base_url))
            .headers(endpoint.headers.clone())
            .timeout(LIMIT)
            .send();
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(error) if error.is_timeout() => {
                return Some(Availability::Silent(format!("no answer in {} s", LIMIT.as_secs())));
            }
            Err(error) if error.is_connect() => {
                return Some(Availability::Silent("no connection".to_owned()));
            }
            Err(error) => return Some(Availability::Silent(error.without_url().to_string())),
        };
        let status = answer.status().as_u16();
        Some(match status {
            200..=299 => Availability::Answers(match answer.bytes().await {
                Ok(body) if body.len() <= LONGEST => names(&body),
                _ => None,
            }),
            401 | 403 => Availability::RefusesKey(status),
            // A compatible server without this list.
            404 | 405 => Availability::Answers(None),
            _ => Availability::Fails(status),
        })
    }
}

/// The names in a list of models: `data[].id`, or Gemini's `models[].name`.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let of = |list: &Value, key: &str| -> Option<Vec<String>> {
        let names = list.as_array()?.iter().filter_map(|model| model.get(key)?.as_str());
        Some(names.map(|name| name.trim_start_matches("models/").to_owned()).collect())
    };
    of(&list["data"], "id").or_else(|| of(&list["models"], "name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_a_list_are_read() {
        let ids = names(br#"{"data": [{"id": "a"}, {"id": "b"}]}"#);
        assert_eq!(ids, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names(br#"{"models": [{"name": "models/g"}]}"#), Some(vec!["g".to_owned()]));
        assert_eq!(names(b"<html>"), None);
    }
}
