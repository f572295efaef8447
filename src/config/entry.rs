//! One repository among several. The file of its main checkout counts for it; its entry here wins over that file.

use std::path::Path;

use toml::Value;

use super::layer::{self, Layer};
use super::settings::Config;
use super::source_format::Source;
use super::tree::Tree;

/// Key of the list of repositories.
const LIST: &str = "repositories";
/// Tables that belong to the operator of the daemon, whatever the file of a repository says.
const OPERATORS: [&str; 2] = ["github", "daemon"];

/// An entry of `[[repositories]]`, with the configuration that it is written in.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The configuration of the command's own place.
    pub operator: &'a Config,
    /// Which entry.
    pub index: usize,
}

impl Entry<'_> {
    /// Adds the entry to the merged layers of the checkout. Afterwards it is the only entry. Keys that it does not set
    /// come from the checkout's own entry for itself. The GitHub account and the daemon's settings stay the operator's.
    pub(super) fn merge_into(self, tree: &mut Tree, layers: &[Layer], checkout: &Path) {
        let operator = &self.operator.tree;
        let own = self.own(tree, layers, checkout);
        tree.replace_entry(LIST, own, operator, self.index);
        for table in OPERATORS {
            tree.take(table, operator);
        }
        if let Some(Value::Array(entries)) = tree.values.get_mut(LIST)
            && let Some(entry) = entries.first_mut().and_then(Value::as_table_mut)
        {
            // It was relative to the place where the command stands.
            entry.insert("path".to_owned(), Value::String(checkout.display().to_string()));
        }
    }

    /// The entry for the checkout itself, if the list comes from the checkout's own file.
    fn own(self, tree: &Tree, layers: &[Layer], checkout: &Path) -> Option<usize> {
        let file = layer::own(checkout)?;
        layers.iter().find(|layer| layer.path == file)?;
        if !matches!(tree.source(LIST), Source::File { path, .. } if path == file) {
            return None;
        }
        let name = self.operator.repositories.get(self.index)?.name.as_ref()?.to_string();
        let entries = tree.values.get(LIST)?.as_array()?;
        let says = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        entries
            .iter()
            .position(|entry| says(entry, "name").as_ref() == Some(&name))
            .or_else(|| entries.iter().position(|entry| says(entry, "path").as_deref() == Some(".")))
            .or_else(|| {
                entries.iter().position(|entry| entry.get("name").is_none() && entry.get("path").is_none())
            })
    }
}
