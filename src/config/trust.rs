//! What a repository may decide by its own file when agentd manages the clone: nobody vouches for that file (D85).

use std::sync::Arc;

use toml::Value;

use super::env::Env;
use super::error::ConfigError;
use super::layer::Layer;
use super::settings::Config;
use super::tree::leaves_of;
use crate::domain::name::RepoName;

impl Config {
    /// This configuration with what the file of a managed clone may add: the agent of its repository, lower budgets,
    /// and the verify commands. Gives the keys of the file that were left out, too.
    ///
    /// # Errors
    /// When the file breaks a rule of any layer, or the result does.
    pub fn with_managed_clone(
        &self,
        layer: &Layer,
        repo: &RepoName,
        env: &Env,
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let mut tree = self.tree.clone();
        let mut left_out = Vec::new();
        for (key, value) in leaves_of(&layer.table) {
            // A placeholder would hand the operator's variables to the repository.
            let plain = !value.to_string().contains("${");
            if plain && self.may_decide(&key, value) {
                tree.set(&key, value.clone(), layer.source(&key));
            } else if !(plain && is_agent(&key)) && key != "version" {
                left_out.push(key);
            }
        }
        let agent = layer.table.get("repositories").and_then(Value::as_array).and_then(|entries| {
            let entry = entries.iter().find(|entry| {
                entry.get("name").and_then(Value::as_str).is_none_or(|name| name == repo.to_string())
            })?;
            entry.get("agent")?.as_str().filter(|agent| !agent.contains("${")).map(str::to_owned)
        });
        if let Some(agent) = agent {
            set_agent(&mut tree.values, repo, &agent);
        }
        // The other repositories are none of this one's: fifty configurations of fifty would take megabytes.
        let own = self.repositories.iter().position(|entry| entry.name.as_ref() == Some(repo));
        if let Some(own) = own {
            let whole = tree.clone();
            tree.settle_entry("repositories", None, &whole, own);
        }
        let config = Self::from_tree(tree, Arc::clone(&self.layers), self.base.clone(), env)?;
        Ok((config, left_out))
    }

    fn may_decide(&self, key: &str, value: &Value) -> bool {
        match key {
            "verify.commands" => true,
            "budgets.max_steps" | "budgets.max_cost" | "budgets.max_wall_time" => self.is_lower(key, value),
            _ => false,
        }
    }

    fn is_lower(&self, key: &str, value: &Value) -> bool {
        let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        match key {
            "budgets.max_steps" => number(value).is_some_and(|n| n < f64::from(self.budgets.max_steps)),
            "budgets.max_cost" => number(value).is_some_and(|n| n < self.budgets.max_cost.dollars()),
            _ => value
                .as_str()
                .and_then(|text| text.parse::<super::duration::Span>().ok())
                .is_some_and(|span| span.0 < self.budgets.max_wall_time),
        }
    }
}

fn is_agent(key: &str) -> bool {
    key.starts_with("repositories[") && key.ends_with("].agent")
}

fn set_agent(values: &mut toml::Table, repo: &RepoName, agent: &str) {
    let Some(entries) = values.get_mut("repositories").and_then(Value::as_array_mut) else { return };
    let name = repo.to_string();
    let own = |entry: &&mut Value| entry.get("name").and_then(Value::as_str) == Some(name.as_str());
    if let Some(entry) = entries.iter_mut().find(own).and_then(Value::as_table_mut) {
        // An agent that the operator chose stays.
        entry.entry("agent").or_insert_with(|| Value::String(agent.to_owned()));
    }
}
