//! The formats of what nodes of a cluster share, a JSON Schema each: cells, messages, and what a node says of itself.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::assignment_format::{AssignmentEnd, AssignmentRequest};
use crate::conversation::inbox::inbox_format::{self, Inbox};
use crate::conversation::parked::parked_format::{self, ParkedIssue};
use crate::daemon::state_format::{self, DaemonState};
use crate::daemon::status_format::{self, Status};
use crate::domain::approval::{
    APPROVAL_SCHEMA, Approval, DENIAL_SCHEMA, Denial, SEVERAL_APPROVALS_SCHEMA, SeveralApprovals,
};
use crate::domain::cluster::assignment::{ASSIGNMENT_SCHEMA, AssignmentCell};
use crate::domain::cluster::cells::{
    self, ISSUE_SCHEMA, IssueCell, META_SCHEMA, MetaCell, NODE_SCHEMA, NodeCell, REPO_SCHEMA, RepoCell,
    SLOTS_SCHEMA, SlotsCell,
};
use crate::domain::cluster::control::{CONTROL_SCHEMA, ControlMessage};
use crate::domain::cluster::person_request::{REQUEST_SCHEMA, RequestMessage};
use crate::domain::cluster::quota::{QUOTA_SCHEMA, QuotaCell};
use crate::domain::schemas::schema_of;
use crate::domain::seal::{SEAL_KEYS_SCHEMA, SealKeys};
use crate::engine::shared_cap_format::{DAY_SPENDING_SCHEMA, ISSUE_SPENDING_SCHEMA, Spending};
use crate::repository::mapping_format::{MAPPING_SCHEMA, MappingRecord};

/// One of them.
pub struct SharedFormat {
    /// Its name; the schema is `schemas/<name>.v1.json`.
    pub name: &'static str,
    /// What its documents say as `schema_version`; nothing where it stands in another document.
    pub version: Option<&'static str>,
    schema: fn(&str, Option<String>) -> Value,
    again: fn(&str, &'static str) -> Result<Value, String>,
}

impl SharedFormat {
    /// Its JSON Schema (2020-12).
    pub fn schema(&self) -> Value {
        (self.schema)(self.name, self.version.map(str::to_owned))
    }

    /// A document, read as a node reads it and written again.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn again(&self, text: &str) -> Result<Value, String> {
        (self.again)(text, self.version.unwrap_or_default())
    }
}

const fn format<T: JsonSchema + Serialize + DeserializeOwned>(
    name: &'static str,
    version: Option<&'static str>,
) -> SharedFormat {
    SharedFormat { name, version, schema: schema_of::<T>, again: again::<T> }
}

fn again<T: Serialize + DeserializeOwned>(text: &str, version: &'static str) -> Result<Value, String> {
    let read: T = match version {
        "" => serde_json::from_str(text).map_err(|error| error.to_string())?,
        version => cells::read(text, version).map_err(|error| error.to_string())?,
    };
    serde_json::to_value(read).map_err(|error| error.to_string())
}

/// All of them, but for a run's row, which is one of our records, and for journals and blobs, which are as on files.
pub const SHARED_FORMATS: [SharedFormat; 22] = [
    format::<MetaCell>("cell-meta", Some(META_SCHEMA)),
    format::<NodeCell>("cell-node", Some(NODE_SCHEMA)),
    format::<IssueCell>("cell-issue", Some(ISSUE_SCHEMA)),
    format::<MappingRecord>("cell-issue-record", Some(MAPPING_SCHEMA)),
    format::<RepoCell>("cell-repo", Some(REPO_SCHEMA)),
    format::<SlotsCell>("cell-slots", Some(SLOTS_SCHEMA)),
    format::<AssignmentCell>("cell-assignment", Some(ASSIGNMENT_SCHEMA)),
    format::<AssignmentRequest>("cell-assignment-request", None),
    format::<AssignmentEnd>("cell-assignment-end", None),
    format::<QuotaCell>("cell-quota", Some(QUOTA_SCHEMA)),
    format::<Approval>("cell-grant", Some(APPROVAL_SCHEMA)),
    format::<SeveralApprovals>("cell-grants", Some(SEVERAL_APPROVALS_SCHEMA)),
    format::<Denial>("cell-denial", Some(DENIAL_SCHEMA)),
    format::<Spending>("cell-spend", Some(DAY_SPENDING_SCHEMA)),
    format::<Spending>("cell-issue-spend", Some(ISSUE_SPENDING_SCHEMA)),
    format::<Inbox>("cell-inbox", Some(inbox_format::SCHEMA)),
    format::<ParkedIssue>("cell-parked", Some(parked_format::SCHEMA)),
    format::<DaemonState>("cell-daemon", Some(state_format::SCHEMA)),
    format::<SealKeys>("cell-seal-keys", Some(SEAL_KEYS_SCHEMA)),
    format::<ControlMessage>("control", Some(CONTROL_SCHEMA)),
    format::<RequestMessage>("request", Some(REQUEST_SCHEMA)),
    format::<Status>("status", Some(status_format::SCHEMA)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents as this version writes them: every member, every kind.
    fn golden(name: &str) -> Vec<Value> {
        let path = format!("{}/tests/data/cluster/{name}.v1.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn k_022_what_this_version_wrote_goes_on_being_readable_and_fits_its_schema() {
        let mut wrong = Vec::new();
        for format in &SHARED_FORMATS {
            let schema = format.schema();
            let validator = jsonschema::validator_for(&schema).unwrap();
            for document in golden(format.name) {
                let again = format.again(&document.to_string());
                if again.as_ref() != Ok(&document) {
                    wrong.push(format!("{}: {document} is read and written as {again:?}", format.name));
                }
                let errors =
                    validator.iter_errors(&document).map(|error| format!("{}: {error}", format.name));
                wrong.extend(errors);
                let Some(version) = format.version else { continue };
                let later = document.to_string().replace(version, &version.replace(".v1", ".v2"));
                let refused = format.again(&later).err().unwrap_or_default();
                if !refused.contains(".v2") || !refused.contains(version) {
                    wrong.push(format!(
                        "{}: a later version is not refused by its name: {refused}",
                        format.name
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}
