//! Project fields: the value of a text or single select field in the Projects v2 that an issue is in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use crate::domain::name::{BranchName, RepoName};

/// Issues asked for in one query: at 20 cards each far below GitHub's node limit.
const BATCH: usize = 50;
/// Cards of an issue read at once; those with more are read on.
const CARDS: usize = 20;
/// The permission, as GitHub names it for each kind of credential.
const NEEDS: &str = "projects: read (scope read:project)";

const CARD: &str = "pageInfo { hasNextPage endCursor } nodes { isArchived project { title number } fieldValueByName(name: $field) { __typename ... on ProjectV2ItemFieldTextValue { text } ... on ProjectV2ItemFieldSingleSelectValue { name } } }";

impl Client {
    /// The value of a project field for one issue; `None` = unset, blank, or in no project that has it. Several projects
    /// that disagree are [`ErrorKind::FieldConflict`].
    pub async fn project_field(
        &self,
        repo: &RepoName,
        number: u64,
        field: &str,
    ) -> Result<Option<String>, Error> {
        self.project_fields(repo, &[number], field).await?.remove(&number).unwrap_or(Ok(None))
    }

    /// The same for many issues with one query for each fifty. The failure of one issue is in its place; a failure of
    /// the whole query is the error of the call. Without issues there is no request.
    pub async fn project_fields(
        &self,
        repo: &RepoName,
        numbers: &[u64],
        field: &str,
    ) -> Result<BTreeMap<u64, Result<Option<String>, Error>>, Error> {
        let mut found = BTreeMap::new();
        for batch in numbers.chunks(BATCH) {
            let doing = format!("reading the project field \"{field}\" in {repo}");
            let aliases: Vec<String> = batch
                .iter()
                .map(|number| format!("i{number}: issue(number: {number}) {{ projectItems(first: {CARDS}, includeArchived: false) {{ {CARD} }} }}"))
                .collect();
            let text = format!(
                "query($owner: String!, $name: String!, $field: String!) {{ repository(owner: $owner, name: $name) {{ {} }} }}",
                aliases.join(" ")
            );
            let variables = json!({"owner": repo.owner(), "name": repo.name(), "field": field});
            let answer = self.graphql(Query::new(text, variables, doing, NEEDS)).await?;
            let repository = &answer.data["repository"];
            for number in batch {
                let alias = format!("i{number}");
                // An error concerns this issue if its path leads there, or everything if it names no issue.
                let own = answer.errors.iter().find(|error| {
                    let second = error.path.as_ref().and_then(|path| path.get(1)).and_then(Value::as_str);
                    second.is_none_or(|second| second == alias)
                });
                let value = match own {
                    Some(error) => Err(answer.error(error)),
                    None => {
                        self.field_of(repo, *number, field, &repository[alias.as_str()]["projectItems"]).await
                    }
                };
                found.insert(*number, value);
            }
        }
        Ok(found)
    }

    async fn field_of(
        &self,
        repo: &RepoName,
        number: u64,
        field: &str,
        items: &Value,
    ) -> Result<Option<String>, Error> {
        let doing = format!("reading the project field \"{field}\" of issue {number} of {repo}");
        let mut values = Vec::new();
        let mut page = items.clone();
        loop {
            let nodes =
                page["nodes"].as_array().ok_or_else(|| Error::malformed(&doing, "no projectItems"))?;
            for card in nodes {
                values.extend(value_of(card, field, &doing)?);
            }
            if page["pageInfo"]["hasNextPage"].as_bool() != Some(true) {
                return agree(values, field, &doing);
            }
            let text = format!(
                "query($owner: String!, $name: String!, $number: Int!, $field: String!, $after: String!) {{ repository(owner: $owner, name: $name) {{ issue(number: $number) {{ projectItems(first: {CARDS}, after: $after, includeArchived: false) {{ {CARD} }} }} }} }}"
            );
            let after = page["pageInfo"]["endCursor"].clone();
            let variables = json!({"owner": repo.owner(), "name": repo.name(), "number": number, "field": field, "after": after});
            let mut data = self.graphql(Query::new(text, variables, &doing, NEEDS)).await?.whole()?;
            page = data["repository"]["issue"]["projectItems"].take();
            if page["pageInfo"]["endCursor"] == after {
                return Err(Error::malformed(&doing, "a page names itself as the next"));
            }
        }
    }
}

/// A card's value with its project's title; `None` = unset.
fn value_of(card: &Value, field: &str, doing: &str) -> Result<Option<(String, String)>, Error> {
    if card["isArchived"].as_bool() == Some(true) {
        return Ok(None);
    }
    let value = &card["fieldValueByName"];
    let text = match value["__typename"].as_str() {
        None => return Ok(None),
        Some("ProjectV2ItemFieldTextValue") => &value["text"],
        Some("ProjectV2ItemFieldSingleSelectValue") => &value["name"],
        Some(other) => {
            let kind = ErrorKind::FieldType { field: field.to_owned(), found: other.to_owned() };
            return Err(Error::new(kind, doing, ""));
        }
    };
    let project = match card["project"]["title"].as_str().filter(|title| !title.trim().is_empty()) {
        Some(title) => title.to_owned(),
        None => format!("#{}", card["project"]["number"]),
    };
    let text = text.as_str().unwrap_or_default().trim();
    Ok((!text.is_empty()).then(|| (project, text.to_owned())))
}

fn agree(values: Vec<(String, String)>, field: &str, doing: &str) -> Result<Option<String>, Error> {
    let Some((_, first)) = values.first() else { return Ok(None) };
    // The field names a branch, which has more than one spelling.
    let branch = |value: &str| BranchName::parse(value).ok();
    let agrees = |value: &str| value == first || (branch(value).is_some() && branch(value) == branch(first));
    if values.iter().all(|(_, value)| agrees(value)) {
        return Ok(Some(first.clone()));
    }
    Err(Error::new(ErrorKind::FieldConflict { values, field: field.to_owned() }, doing, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_that_name_one_branch_in_two_spellings_agree() {
        let of = |values: [&str; 2]| {
            let values = values.map(|value| ("a project".to_owned(), value.to_owned())).to_vec();
            agree(values, "Target Branch", "reading").ok().flatten()
        };
        assert_eq!(of(["develop", "refs/heads/develop"]).as_deref(), Some("develop"));
        assert_eq!(of(["develop", "release"]), None);
    }
}
