//! What a node tells the others of its configuration.

use super::settings::Config;
use crate::domain::cluster::configuration::ConfigurationSaid;

impl Config {
    /// Hashes of what nodes should have alike, and what counts over all of them. Placeholders stay placeholders, so no secret is in it.
    /// `rules`: the policy files of its repositories, as a hash.
    pub fn said(&self, rules: Option<String>) -> ConfigurationSaid {
        ConfigurationSaid::of(self.explain().into_iter().map(|row| (row.key, row.value.to_string())), rules)
    }
}
