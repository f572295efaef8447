//! What is told of an error whose first words alone say too little, such as "client error".

use std::error::Error;

/// An error with what it came from: the first one, and each cause whose words are not told yet.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Self>>);

    #[test]
    fn each_cause_is_told_once() {
        let last = Said("refused", None);
        let same = Said("no connection", Some(Box::new(last)));
        let first = Said("no connection", Some(Box::new(same)));
        assert_eq!(with_causes(&first), "no connection: refused");
    }
}
