//! The comment that says why no run began on an issue; once one begins, it says that this is over.

use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::github::{Client, Error};
use crate::record::rendering;

const NOW: &str = "**agentd did not start on this issue.**";
const BEFORE: &str = "**agentd did not start at first; a run began later.**";

fn marker(number: u64) -> String {
    rendering::request_marker(&IssueKey::Number(number), "refusal")
}

/// Says why no run began, and what lets one begin.
pub async fn ensure(
    client: &Client,
    (repo, number): (&RepoName, u64),
    why: &str,
    again: &str,
) -> Result<(), Error> {
    let text = format!("{NOW}\n\n{why}\n\n{again}");
    client.ensure_comment(repo, number, &marker(number), &text).await.map(drop)
}

/// A run begins: what was said is over. Costs no request where nothing was said, as far as the issue's comments were read.
pub async fn is_over(client: &Client, (repo, number): (&RepoName, u64)) -> Result<(), Error> {
    let marker = marker(number);
    if !client.has_seen_comment(repo, number, &marker).await {
        return Ok(());
    }
    let Some(found) = client.find_comment(repo, number, &marker).await? else { return Ok(()) };
    match over(&found.body, &marker) {
        Some(text) => client.ensure_comment(repo, number, &marker, &text).await.map(drop),
        None => Ok(()),
    }
}

/// The text of a comment once a run began; `None` = it does not say that none did. Its last paragraph is what would have let one begin.
fn over(body: &str, marker: &str) -> Option<String> {
    let body = body.replace("\r\n", "\n");
    let told = body.trim().strip_prefix(marker)?.trim_start().strip_prefix(NOW)?.trim();
    let why = told.rsplit_once("\n\n").map_or("", |(why, _)| why);
    Some(format!("{BEFORE}\n\n{why}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_stays_readable_and_is_over_once() {
        let marker = marker(7);
        let body = format!(
            "{marker}\r\n{NOW}\r\n\r\nmallory may not.\r\n\r\nNor may eve.\r\n\r\nPut the label on again.\r\n"
        );
        let text = over(&body, &marker).unwrap();
        assert_eq!(text, format!("{BEFORE}\n\nmallory may not.\n\nNor may eve."));
        assert_eq!(over(&format!("{marker}\n{text}"), &marker), None);
        assert_eq!(over("somebody's words", &marker), None);
    }
}
