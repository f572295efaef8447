//! Issue fields: the value of a text or single select field, from the issue's JSON or by a request.

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::issues::field_value;
use super::listing_format::{FieldValue, IssueSnapshot};
use super::rest_wire::FieldValueWire;

impl Client {
    /// The value of an issue field; `None` = unset, blank, or this GitHub has no issue fields. It comes from the
    /// snapshot if the issue's own JSON had the values, else from a request. The field is found by name or slug, in any
    /// case.
    pub async fn issue_field(&self, of: &IssueSnapshot, name: &str) -> Result<Option<String>, Error> {
        let (repo, key) = (&of.issue.repo, &of.issue.key);
        let doing = format!("reading the issue field \"{name}\" of issue {key} of {repo}");
        pick(&self.issue_fields(of).await?, name, &doing)
    }

    /// The values of all fields of an issue, from the snapshot if it has them, else from a request.
    pub async fn issue_fields(&self, of: &IssueSnapshot) -> Result<Vec<FieldValue>, Error> {
        if let Some(values) = &of.fields {
            return Ok(values.clone());
        }
        let (repo, key) = (&of.issue.repo, &of.issue.key);
        let doing = format!("reading the fields of issue {key} of {repo}");
        let path = format!("/repos/{repo}/issues/{key}/issue-field-values?per_page=100");
        let wires: Vec<FieldValueWire> = match self.pages(&path, &doing, "issues: read").await {
            Ok(wires) => wires,
            // The issue itself was read, so the feature is what is absent.
            Err(error) if error.is_absent() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(wires.into_iter().filter_map(field_value).collect())
    }
}

/// The text of a field that is known by name or slug, in any case and of any type; `None` = unset or blank.
pub fn field_named<'a>(values: &'a [FieldValue], name: &str) -> Option<&'a str> {
    let found = values.iter().find(|value| slug(&value.name) == slug(name))?;
    Some(found.value.trim()).filter(|text| !text.is_empty())
}

fn pick(values: &[FieldValue], name: &str, doing: &str) -> Result<Option<String>, Error> {
    let exact = values.iter().find(|value| value.name.trim().eq_ignore_ascii_case(name.trim()));
    let Some(found) = exact.or_else(|| values.iter().find(|value| slug(&value.name) == slug(name))) else {
        return Ok(None);
    };
    let text = found.value.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !matches!(found.kind.as_str(), "text" | "single_select" | "") {
        let kind = ErrorKind::FieldType { field: found.name.clone(), found: found.kind.clone() };
        return Err(Error::new(kind, doing, ""));
    }
    Ok(Some(text.to_owned()))
}

/// Lower-case letters and digits, all else as single hyphens: `base_branch` and "Base branch" are the same field.
fn slug(name: &str) -> String {
    let plain: String =
        name.trim().chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, kind: &str, value: &str) -> FieldValue {
        FieldValue { name: name.into(), kind: kind.into(), value: value.into() }
    }

    #[test]
    fn g02_a_field_is_known_by_name_or_slug_in_any_case() {
        for name in ["base_branch", "Base Branch", "BASE-BRANCH"] {
            let values = [value("Priority", "single_select", "High"), value(name, "text", " develop ")];
            assert_eq!(pick(&values, "base_branch", "").unwrap().as_deref(), Some("develop"), "{name}");
        }
        assert_eq!(pick(&[value("Target", "text", "x")], "base_branch", "").unwrap(), None);
    }

    #[test]
    fn g05_a_blank_field_is_unset_and_a_number_is_no_branch() {
        assert_eq!(pick(&[value("base_branch", "text", "  ")], "base_branch", "").unwrap(), None);
        let error = pick(&[value("base_branch", "number", "7")], "base_branch", "reading").unwrap_err();
        assert!(error.to_string().contains("number"), "{error}");
    }
}
