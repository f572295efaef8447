//! `agentd config explain`: every effective value with the layer it came from, placeholders as placeholders.

use serde::Serialize;

use super::settings::Config;
use super::source_format::Source;
use crate::domain::exclude::BUILT_IN;
use crate::domain::model_wire::ProviderKind;

/// One effective value.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// Full path of the key.
    pub key: String,
    /// As written, placeholders unresolved.
    pub value: toml::Value,
    /// The layer.
    pub source: Source,
}

impl Config {
    /// Every effective value in the order of the file, the defaults that derive from others included.
    pub fn explain(&self) -> Vec<Explained> {
        let mut rows: Vec<Explained> = self
            .tree
            .leaves()
            .into_iter()
            .map(|(key, value)| Explained { source: self.tree.source(&key), key, value: value.clone() })
            .collect();
        let mut derive = |after: &str, key: String, value: String| {
            let at = rows.iter().rposition(|row| row.key.starts_with(after)).map_or(rows.len(), |at| at + 1);
            rows.insert(at, Explained { key, value: toml::Value::String(value), source: Source::Default });
        };
        if self.file.github.graphql_url.is_none() {
            derive("github.api_url", "github.graphql_url".to_owned(), self.github.graphql_url.clone());
        }
        for (name, table) in &self.file.providers {
            let key = format!("providers.{name}.");
            let kind: Option<ProviderKind> = table.kind.or_else(|| ProviderKind::parse(name));
            if let (None, Some(kind)) = (&table.base_url, kind) {
                derive(&key, format!("{key}base_url"), kind.wire().base_url.to_owned());
            }
        }
        let built_in = BUILT_IN.iter().map(|(about, patterns)| {
            let patterns = patterns.iter().map(|pattern| toml::Value::from(*pattern)).collect();
            let key = format!("commit.exclude[{about}]");
            Explained { key, value: toml::Value::Array(patterns), source: Source::Default }
        });
        let at = rows.iter().position(|row| row.key == "commit.exclude").unwrap_or(rows.len());
        rows.splice(at..at, built_in);
        rows
    }
}
