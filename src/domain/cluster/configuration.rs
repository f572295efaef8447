//! What a node says of its configuration: enough for others to see whether nodes are configured alike, and in what they are not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::canonical::sha256_hex;

/// Keys, and tables, that each node has for itself: where it is, what it has room for, whom it works for, and by what it proves who it is.
const OWN: [&str; 15] = [
    "version",
    "repositories",
    "cluster.node",
    "cluster.urls",
    "cluster.credentials",
    "cluster.nkey",
    "cluster.tls_ca",
    "cluster.tls_cert",
    "cluster.tls_key",
    "cluster.monitor",
    "daemon.listen",
    "daemon.hosts",
    "daemon.token",
    "daemon.webhook_secret",
    "daemon.max_concurrent_runs",
];
/// Keys that count over all nodes, so that their values are told.
const OVER_ALL: [&str; 4] = [
    "budgets.max_cost_per_day",
    "cluster.max_runs",
    "daemon.max_follow_ups",
    "daemon.max_runs_per_repository",
];
/// As what the rules in the policy files count, beside the tables.
const RULES: &str = "policy rules";
/// Digits of a hash: enough to tell two configurations apart, and few, because a node says them at each sign of life.
const DIGITS: usize = 8;
/// How a key is told that is not set.
const NOT_SET: &str = "not set";

/// It.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConfigurationSaid {
    /// Hash of everything that nodes should have alike.
    pub hash: String,
    /// The same of each table.
    pub tables: BTreeMap<String, String>,
    /// What counts over all nodes, as it is written: key and value.
    pub over_all: BTreeMap<String, String>,
}

/// Nodes that are configured alike, and in what they differ from the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Alike {
    /// Their names.
    nodes: Vec<String>,
    /// What is otherwise there, in words; nothing for the first ones.
    differs: Vec<String>,
}

impl ConfigurationSaid {
    /// Of every effective value with its key, placeholders as placeholders, and of what the policy files say.
    pub fn of(values: impl IntoIterator<Item = (String, String)>, rules: Option<String>) -> Self {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let mut over_all = BTreeMap::new();
        let rules = rules.map(|rules| (RULES.to_owned(), rules));
        for (key, value) in
            values.into_iter().chain(rules).filter(|(key, _)| !OWN.iter().any(|own| is_at(key, own)))
        {
            let table = key.split(['.', '[']).next().unwrap_or_default().to_owned();
            let text = texts.entry(table).or_default();
            text.push_str(&format!("{key} = {value}\n"));
            if OVER_ALL.contains(&key.as_str()) {
                over_all.insert(key, value);
            }
        }
        let whole: String = texts.values().map(String::as_str).collect();
        let tables = texts.into_iter().map(|(table, text)| (table, hash_of(&text))).collect();
        Self { hash: hash_of(&whole), tables, over_all }
    }

    /// In what this one is otherwise than another, in words.
    fn differences(&self, from: &Self) -> Vec<String> {
        let mut told = Vec::new();
        let value =
            |said: &Self, key: &str| said.over_all.get(key).map_or(NOT_SET, String::as_str).to_owned();
        let mut tables: Vec<&String> = self.tables.keys().chain(from.tables.keys()).collect();
        tables.sort();
        tables.dedup();
        for table in tables.into_iter().filter(|table| self.tables.get(*table) != from.tables.get(*table)) {
            let of_table = OVER_ALL.iter().filter(|key| key.split('.').next() == Some(table));
            let values: Vec<String> = of_table
                .map(|key| (key, value(self, key), value(from, key)))
                .filter(|(_, here, there)| here != there)
                .map(|(key, here, there)| format!("{key} is {here}, elsewhere {there}"))
                .collect();
            match values.is_empty() {
                true if table == RULES => {
                    told.push("the rules in the files that [policy] names are other ones".to_owned());
                }
                true => told.push(format!("[{table}] is another one")),
                false => told.extend(values),
            }
        }
        told
    }
}

/// Whether a key is this one, or below it.
fn is_at(key: &str, own: &str) -> bool {
    key.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn hash_of(text: &str) -> String {
    sha256_hex(text.as_bytes()).chars().take(DIGITS).collect()
}

/// Which nodes are configured otherwise than most, and in what, in words: one sentence each.
pub fn others(nodes: &[(&str, &ConfigurationSaid)]) -> Vec<String> {
    let groups = alike(nodes);
    let Some((most, others)) = groups.split_first() else { return Vec::new() };
    let told = others.iter().map(|group| {
        let (names, verb) = (group.nodes.join(", "), if group.nodes.len() == 1 { "is" } else { "are" });
        format!(
            "{names} {verb} configured otherwise than {}: {}",
            most.nodes.join(", "),
            group.differs.join("; ")
        )
    });
    told.collect()
}

/// Nodes by their configurations, those that most have first.
fn alike(nodes: &[(&str, &ConfigurationSaid)]) -> Vec<Alike> {
    let mut groups: Vec<(&ConfigurationSaid, Vec<String>)> = Vec::new();
    for (node, said) in nodes {
        match groups.iter_mut().find(|(known, _)| known.hash == said.hash) {
            Some((_, names)) => names.push((*node).to_owned()),
            None => groups.push((said, vec![(*node).to_owned()])),
        }
    }
    groups.iter_mut().for_each(|(_, names)| names.sort());
    groups.sort_by(|(_, one), (_, other)| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    let first = groups.first().map(|(said, _)| *said);
    let all = groups.into_iter().map(|(said, nodes)| {
        let differs = first.map(|first| said.differences(first)).unwrap_or_default();
        Alike { nodes, differs }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(values: &[(&str, &str)]) -> ConfigurationSaid {
        let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigurationSaid::of(values, None)
    }

    #[test]
    fn nodes_are_alike_whatever_is_their_own_and_what_differs_is_named() {
        let base = [("cluster.max_runs", "3"), ("budgets.max_cost", "2.0"), ("verify.commands", "[]")];
        let one =
            said(&[&base[..], &[("cluster.node", "\"a\""), ("repositories[0].name", "\"o/n\"")]].concat());
        let same =
            said(&[&base[..], &[("cluster.node", "\"b\""), ("daemon.max_concurrent_runs", "9")]].concat());
        let other =
            said(&[("cluster.max_runs", "4"), ("budgets.max_cost", "2.5"), ("verify.commands", "[]")]);
        assert_eq!(one, same);
        let found = alike(&[("c", &other), ("b", &same), ("a", &one)]);
        assert_eq!(found[0], Alike { nodes: vec!["a".into(), "b".into()], differs: Vec::new() });
        assert_eq!(found[1].nodes, ["c"]);
        assert_eq!(found[1].differs, ["[budgets] is another one", "cluster.max_runs is 4, elsewhere 3"]);
        let day = said(&[&base[..], &[("budgets.max_cost_per_day", "10.0")]].concat());
        let found = alike(&[("a", &one), ("b", &day)]);
        assert_eq!(found[1].differs, ["budgets.max_cost_per_day is 10.0, elsewhere not set"]);
    }
}
