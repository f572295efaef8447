//! Older generations of definition files, brought into the newest form in memory (and by `agents migrate` on disk).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::position::child;
use crate::domain::completion::type_names;

/// A file in the newest form, and how it got there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Newest {
    /// The file's content in the newest form.
    pub value: Value,
    /// (pointer in the newest form, pointer in the file).
    pub moves: Vec<(String, String)>,
    /// What was old: for warnings.
    pub changes: Vec<OlderForm>,
}

/// One thing that an older generation wrote differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderForm {
    /// Pointer in the file.
    pub old: String,
    /// What was there.
    pub what: String,
    /// What to write instead.
    pub instead: String,
}

/// (old key, new key) of `agent.json`, in the order in which they are moved.
const AGENT_KEYS: [(&str, &str); 30] = [
    ("/behavior/systemPromptPath", "/runner/flow/systemPromptPath"),
    ("/behavior/defaultModel", "/runner/flow/defaultModel"),
    ("/behavior/askUserAutoResponse", "/runner/flow/askUserAutoResponse"),
    ("/behavior/completionType", "/runner/verdict/type"),
    ("/behavior/completionConfig", "/runner/verdict/config"),
    ("/behavior/allowedTools", "/runner/boundaries/allowedTools"),
    ("/behavior/permissionMode", "/runner/boundaries/permissionMode"),
    ("/behavior/sandboxConfig", "/runner/boundaries/sandbox"),
    ("/behavior/preCloseValidation", "/runner/flow/preCloseValidation"),
    ("/runner/completion/type", "/runner/verdict/type"),
    ("/runner/completion/config", "/runner/verdict/config"),
    ("/runner/execution/completion", "/runner/verdict"),
    ("/runner/boundaries/github", "/runner/integrations/github"),
    ("/runner/boundaries/actions", "/runner/actions"),
    ("/runner/boundaries/defaultModel", "/runner/flow/defaultModel"),
    ("/runner/boundaries/askUserAutoResponse", "/runner/flow/askUserAutoResponse"),
    ("/runner/telemetry/logging", "/runner/logging"),
    ("/prompts/registry", "/runner/flow/prompts/registry"),
    ("/prompts/fallbackDir", "/runner/flow/prompts/fallbackDir"),
    ("/github/labels", "/runner/integrations/github/labels"),
    ("/github/enabled", "/runner/integrations/github/enabled"),
    ("/github/defaultClosureAction", "/runner/integrations/github/defaultClosureAction"),
    ("/actions/allowedTypes", "/runner/actions/types"),
    ("/actions/types", "/runner/actions/types"),
    ("/actions/enabled", "/runner/actions/enabled"),
    ("/actions/outputFormat", "/runner/actions/outputFormat"),
    ("/actions/handlers", "/runner/actions/handlers"),
    ("/worktree", "/runner/execution/worktree"),
    ("/finalize", "/runner/execution/finalize"),
    ("/logging", "/runner/logging"),
];

/// (old key, new key) at the top of a registry.
const REGISTRY_KEYS: [(&str, &str); 3] = [
    ("/completionPatterns", "/failurePatterns"),
    ("/completionSteps", "/validationSteps"),
    ("/completionValidators", "/validators"),
];

/// `agent.json` in the newest form.
pub fn newest_agent(value: &Value) -> Newest {
    let mut newest = Newest { value: value.clone(), ..Newest::default() };
    for (old, new) in AGENT_KEYS {
        newest.move_key(old, new);
    }
    if let Some(Value::Bool(disabled)) = take(&mut newest.value, "/behavior/disableSandbox") {
        put(&mut newest.value, "/runner/boundaries/sandbox/enabled", Value::Bool(!disabled));
        newest.note_move("/behavior/disableSandbox", "/runner/boundaries/sandbox/enabled");
    }
    for emptied in ["/behavior", "/prompts", "/github", "/actions", "/runner/completion", "/runner/telemetry"]
    {
        if newest.value.pointer(emptied).is_some_and(|left| left.as_object().is_some_and(Map::is_empty)) {
            take(&mut newest.value, emptied);
        }
    }
    newest.verdict("/runner/verdict");
    newest
}

/// `steps_registry.json` in the newest form.
pub fn newest_registry(value: &Value) -> Newest {
    let mut newest = Newest { value: value.clone(), ..Newest::default() };
    for (old, new) in REGISTRY_KEYS {
        newest.move_key(old, new);
    }
    newest.entry_mapping();
    newest.listed_steps();
    for (name, _) in members(&newest.value, "/steps") {
        newest.step(&child("/steps", &name));
    }
    newest.base_path();
    newest.own_c1();
    newest.drop_key("/editions", "has no effect: each step names its edition");
    newest.drop_key("/userPromptsBase", "has no effect: prompts lie in the agent's folder, by their address");
    newest.drop_key("/schemasBase", "has no effect: schemas lie in the agent's schemas folder");
    for (name, _) in members(&newest.value, "/steps") {
        newest.own_conditions(&name);
    }
    for (name, _) in members(&newest.value, "/validationSteps") {
        let step = child("/validationSteps", &name);
        newest.move_key(&format!("{step}/completionConditions"), &format!("{step}/validationConditions"));
        for key in CONDITION_KEYS {
            newest.named_conditions(&format!("{step}/{key}"));
        }
    }
    newest
}

/// Keys that list what must hold around a step.
const CONDITION_KEYS: [&str; 3] = ["validationConditions", "preflightConditions", "postLLMConditions"];

/// The registry of an agent in the newest form. For the oldest generation, what followed from the completion type and
/// the names of steps is written down.
pub fn newest_registry_of(agent: &Value, registry: &Value) -> Newest {
    let mut newest = newest_registry(registry);
    let oldest = agent.get("behavior").is_some();
    if registry.get("agentId").is_none()
        && (oldest || !newest.changes.is_empty())
        && let Some(name) = agent.get("name").filter(|name| name.is_string())
    {
        put(&mut newest.value, "/agentId", name.clone());
        newest.follows(
            "",
            format!("the registry names no agent; {name} is the one whose registry it is"),
            format!("write \"agentId\": {name}"),
        );
    }
    if oldest {
        newest.whole_gates();
        newest.named_addresses();
        let word = agent.pointer("/behavior/completionType").and_then(Value::as_str).unwrap_or_default();
        newest.named_entry(word);
    }
    newest
}

impl Newest {
    pub(super) fn move_key(&mut self, old: &str, new: &str) {
        if old == new || self.value.pointer(old).is_none() {
            return;
        }
        if self.value.pointer(new).is_some() {
            // Both keys exist. The newest one counts; the old one stays and is reported as unknown.
            return;
        }
        if let Some(value) = take(&mut self.value, old) {
            put(&mut self.value, new, value);
            self.note_move(old, new);
        }
    }

    /// The entry that fits the completion type, else the first step for an issue, else the first `initial` step (D106).
    fn named_entry(&mut self, word: &str) {
        if ["/entryStep", "/entryStepMapping"].iter().any(|key| self.value.pointer(key).is_some()) {
            return;
        }
        let steps = members(&self.value, "/steps");
        let named = [format!("initial.{word}"), "initial.issue".to_owned()];
        let is_step = |id: &String| steps.iter().any(|(name, _)| name == id);
        let first = || steps.iter().map(|(name, _)| name.clone()).find(|name| name.starts_with("initial."));
        let Some(entry) = named.iter().find(|id| is_step(id)).cloned().or_else(first) else { return };
        put(&mut self.value, "/entryStep", entry.as_str().into());
        self.changes.push(OlderForm {
            old: String::new(),
            what: format!(
                "the registry names no entry; \"{entry}\" follows from the older completion type \"{word}\" and the steps' names"
            ),
            instead: format!("write \"entryStep\": \"{entry}\""),
        });
    }

    /// `c2` and `c3` of steps that have no address: the first two parts of their names.
    fn named_addresses(&mut self) {
        for (name, step) in members(&self.value, "/steps") {
            let has = |key: &str| step.get(key).is_some();
            if has("path") || has("runner") || (has("c2") && has("c3")) {
                continue;
            }
            let mut parts = name.split('.');
            let (Some(c2), Some(c3)) = (parts.next(), parts.next()) else { continue };
            let at = child("/steps", &name);
            for (key, word) in [("c2", c2), ("c3", c3)].into_iter().filter(|(key, _)| !has(key)) {
                put(&mut self.value, &format!("{at}/{key}"), word.into());
                self.changes.push(OlderForm {
                    old: self.written(&at),
                    what: format!("the step says no {key}; \"{word}\" follows from its name"),
                    instead: format!("write \"{key}\": \"{word}\""),
                });
            }
        }
    }

    /// Something that the file does not say, and that follows from the rest of it.
    pub(super) fn follows(&mut self, at: &str, what: String, instead: String) {
        self.changes.push(OlderForm { old: self.written(at), what, instead });
    }

    fn note_move(&mut self, old: &str, new: &str) {
        let written = self.written(old);
        self.moves.push((new.to_owned(), written.clone()));
        self.changes.push(OlderForm {
            old: written,
            what: format!("\"{}\" is the older name", dotted(old)),
            instead: format!("write \"{}\"", dotted(new)),
        });
    }

    fn written(&self, pointer: &str) -> String {
        self.moves
            .iter()
            .filter(|(new, _)| {
                pointer == new || pointer.strip_prefix(new.as_str()).is_some_and(|rest| rest.starts_with('/'))
            })
            .max_by_key(|(new, _)| new.len())
            .map_or_else(|| pointer.to_owned(), |(new, old)| format!("{old}{}", &pointer[new.len()..]))
    }

    /// Type names, keyword key and composite mode of a completion condition and of its parts.
    fn verdict(&mut self, at: &str) {
        let kind = format!("{at}/type");
        if let Some(word) = self.value.pointer(&kind).and_then(Value::as_str).map(str::to_owned)
            && let Some((_, newest)) = type_names(&word)
            && newest != word
        {
            self.changes.push(OlderForm {
                old: self.written(&kind),
                what: format!("\"{word}\" is the older name of the completion type"),
                instead: format!("write \"{newest}\""),
            });
            put(&mut self.value, &kind, newest.into());
        }
        let config = format!("{at}/config");
        self.move_key(&format!("{config}/completionKeyword"), &format!("{config}/verdictKeyword"));
        self.move_key(&format!("{config}/mode"), &format!("{config}/operator"));
        let operator = format!("{config}/operator");
        let newer = match self.value.pointer(&operator).and_then(Value::as_str) {
            Some("any") => Some(("any", "or")),
            Some("all") => Some(("all", "and")),
            _ => None,
        };
        if let Some((word, newest)) = newer {
            self.changes.push(OlderForm {
                old: self.written(&operator),
                what: format!("\"{word}\" is the older name of the operator"),
                instead: format!("write \"{newest}\""),
            });
            put(&mut self.value, &operator, newest.into());
        }
        let parts =
            self.value.pointer(&format!("{config}/conditions")).and_then(Value::as_array).map_or(0, Vec::len);
        for index in 0..parts {
            self.verdict(&format!("{config}/conditions/{index}"));
        }
    }

    fn entry_mapping(&mut self) {
        for (name, target) in members(&self.value, "/entryStepMapping") {
            let Some((seed, newest)) = type_names(&name) else { continue };
            // In older registries `issue` and `project` are separate modes. Both mean the same type now.
            if name == newest || (name != seed && matches!(name.as_str(), "issue" | "project")) {
                continue;
            }
            let new = child("/entryStepMapping", newest);
            if self.value.pointer(&new).is_none() {
                let old = child("/entryStepMapping", &name);
                take(&mut self.value, &old);
                put(&mut self.value, &new, target);
                self.note_move(&old, &new);
            }
        }
    }

    /// A list of steps with an `id` each becomes a map.
    fn listed_steps(&mut self) {
        let Some(Value::Array(list)) = self.value.pointer("/steps").cloned() else { return };
        let mut steps = Map::new();
        for (index, mut step) in list.into_iter().enumerate() {
            let id = ["id", "stepId"].iter().find_map(|key| step.get(*key)?.as_str().map(str::to_owned));
            let mut id = id.unwrap_or_else(|| format!("step{}", index + 1));
            // Two of one name: the second one keeps a name that its own stepId contradicts, which is told.
            if steps.contains_key(&id) {
                if let Some(step) = step.as_object_mut() {
                    step.entry("stepId").or_insert_with(|| id.as_str().into());
                }
                id = format!("{id}#{}", index + 1);
            }
            if let Some(step) = step.as_object_mut() {
                step.remove("id");
            }
            self.moves.push((child("/steps", &id), format!("/steps/{index}")));
            steps.insert(id, step);
        }
        put(&mut self.value, "/steps", Value::Object(steps));
        self.changes.push(OlderForm {
            old: "/steps".into(),
            what: "steps as a list are the older form".into(),
            instead: "write a map from step id to step".into(),
        });
    }

    fn step(&mut self, at: &str) {
        self.move_key(&format!("{at}/useStdin"), &format!("{at}/usesStdin"));
        self.move_key(&format!("{at}/id"), &format!("{at}/stepId"));
        for key in ["c1", "c2", "c3", "edition", "adaptation", "path"] {
            self.move_key(&format!("{at}/prompt/{key}"), &format!("{at}/{key}"));
        }
        if self
            .value
            .pointer(&format!("{at}/prompt"))
            .is_some_and(|left| left.as_object().is_some_and(Map::is_empty))
        {
            take(&mut self.value, &format!("{at}/prompt"));
        }
        self.step_intents(at);
        self.schema_pointer(at);
        self.question_path(at);
        let variables = format!("{at}/variables");
        if let Some(value @ (Value::Object(_) | Value::Array(_))) = self.value.pointer(&variables).cloned()
            && self.value.pointer(&format!("{at}/uvVariables")).is_none()
        {
            let names: Vec<Value> = match value {
                Value::Object(map) => map.keys().map(|name| name.as_str().into()).collect(),
                Value::Array(list) => list,
                _ => Vec::new(),
            };
            let names = names.into_iter().map(|name| match name {
                Value::String(name) => name.strip_prefix("uv-").unwrap_or(&name).into(),
                other => other,
            });
            put(&mut self.value, &format!("{at}/uvVariables"), Value::Array(names.collect()));
            take(&mut self.value, &variables);
            self.note_move(&variables, &format!("{at}/uvVariables"));
        }
        let next = format!("{at}/next");
        if let Some(target) = self.value.pointer(&next).cloned()
            && self.value.pointer(&format!("{at}/transitions/next")).is_none()
        {
            let target = match target {
                Value::String(word) if word == "complete" => Value::Null,
                other => other,
            };
            put(&mut self.value, &format!("{at}/transitions/next/target"), target);
            take(&mut self.value, &next);
            self.note_move(&next, &format!("{at}/transitions/next/target"));
        }
        self.prefixed_names(at);
    }

    fn drop_key(&mut self, pointer: &str, why: &str) {
        if take(&mut self.value, pointer).is_some() {
            self.changes.push(OlderForm {
                old: self.written(pointer),
                what: format!("\"{}\" {why}", dotted(pointer)),
                instead: "remove it".into(),
            });
        }
    }

    /// `basePath` comes before the `path` of every step. Prompts with an address are at `prompts/{c1}` in any case.
    fn base_path(&mut self) {
        let Some(base) = self.value.pointer("/basePath").and_then(Value::as_str).map(str::to_owned) else {
            return;
        };
        let base = base.trim_start_matches("./").trim_end_matches('/');
        for (name, step) in members(&self.value, "/steps") {
            if let Some(path) = step.get("path").and_then(Value::as_str).filter(|_| !base.is_empty()) {
                let path = format!("{base}/{path}");
                put(&mut self.value, &format!("{}/path", child("/steps", &name)), path.into());
            }
        }
        self.drop_key("/basePath", "is no key of its own any more: paths are relative to the agent's folder");
    }

    /// A `c1` for a single step. The registry has one for all, so a prompt below another one is named by its path.
    fn own_c1(&mut self) {
        let steps = members(&self.value, "/steps");
        let own: BTreeSet<Option<&str>> = steps
            .iter()
            .filter(|(_, step)| step.get("path").is_none())
            .map(|(_, step)| step.get("c1").and_then(Value::as_str))
            .collect();
        if let (None, [Some(common)]) =
            (self.value.get("c1"), own.iter().copied().collect::<Vec<_>>().as_slice())
        {
            put(&mut self.value, "/c1", (*common).into());
        }
        let common = self.value.get("c1").and_then(Value::as_str).unwrap_or("steps").to_owned();
        for (name, step) in &steps {
            let at = child("/steps", name);
            let text = |key: &str| step.get(key).and_then(Value::as_str);
            let Some(c1) = text("c1") else { continue };
            if c1 != common
                && let (None, Some(c2), Some(c3)) = (text("path"), text("c2"), text("c3"))
            {
                let edition = text("edition").unwrap_or("default");
                let adaptation = text("adaptation").map(|word| format!("_{word}")).unwrap_or_default();
                let path = format!("prompts/{c1}/{c2}/{c3}/f_{edition}{adaptation}.md");
                put(&mut self.value, &format!("{at}/path"), path.into());
            }
            self.drop_key(&format!("{at}/c1"), "stands once, at the top of the registry");
        }
    }

    /// `uv-` in front of declared names.
    fn prefixed_names(&mut self, at: &str) {
        let pointer = format!("{at}/uvVariables");
        let Some(Value::Array(names)) = self.value.pointer_mut(&pointer) else { return };
        let mut prefixed = Vec::new();
        for (index, name) in names.iter_mut().enumerate() {
            if let Some(plain) = name.as_str().and_then(|name| name.strip_prefix("uv-")).map(str::to_owned) {
                prefixed.push((index, plain.clone()));
                *name = plain.into();
            }
        }
        for (index, plain) in prefixed {
            let old = self.written(&format!("{pointer}/{index}"));
            self.changes.push(OlderForm {
                old,
                what: format!("\"uv-{plain}\" carries the prefix that only templates write"),
                instead: format!("write \"{plain}\""),
            });
        }
    }
}

pub(super) fn members(value: &Value, pointer: &str) -> Vec<(String, Value)> {
    let Some(map) = value.pointer(pointer).and_then(Value::as_object) else { return Vec::new() };
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~")
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// Takes a member out of the object around it.
pub(super) fn take(value: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    value.pointer_mut(parent)?.as_object_mut()?.shift_remove(&unescape(key))
}

/// Puts a member in, making the objects around it.
pub(super) fn put(value: &mut Value, pointer: &str, new: Value) {
    let mut place = value;
    let mut keys = pointer.split('/').skip(1).map(unescape).peekable();
    while let Some(key) = keys.next() {
        if let Value::Array(items) = place {
            let Some(item) = key.parse::<usize>().ok().and_then(|index| items.get_mut(index)) else { return };
            place = item;
            continue;
        }
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(object) = place else { return };
        if keys.peek().is_none() {
            object.insert(key, new);
            return;
        }
        place = object.entry(key).or_insert(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p12_a_seed_era_agent_becomes_the_newest_form() {
        let old = json!({
            "name": "x",
            "behavior": {
                "systemPromptPath": "prompts/system.md", "completionType": "manual",
                "completionConfig": {"completionKeyword": "DONE"}, "allowedTools": ["Read"],
                "permissionMode": "plan", "disableSandbox": true
            },
            "prompts": {"registry": "r.json"},
            "github": {"enabled": true},
            "logging": {"directory": "logs"}
        });
        let newest = newest_agent(&old);
        assert_eq!(
            newest.value,
            json!({
                "name": "x",
                "runner": {
                    "flow": {"systemPromptPath": "prompts/system.md", "prompts": {"registry": "r.json"}},
                    "verdict": {"type": "detect:keyword", "config": {"verdictKeyword": "DONE"}},
                    "boundaries": {"allowedTools": ["Read"], "permissionMode": "plan", "sandbox": {"enabled": false}},
                    "integrations": {"github": {"enabled": true}},
                    "logging": {"directory": "logs"}
                }
            })
        );
        let change = newest.changes.iter().find(|change| change.old.ends_with("completionKeyword")).unwrap();
        assert_eq!(change.old, "/behavior/completionConfig/completionKeyword", "as the file spells it");
        let again = newest_agent(&newest.value);
        assert_eq!((again.value, again.changes.len()), (newest.value, 0), "idempotent");
    }

    #[test]
    fn p12_a_composite_of_version_1_12_is_renamed_in_its_parts_too() {
        let old = json!({"runner": {"completion": {"type": "composite", "config": {"mode": "any", "conditions": [
            {"type": "iterationBudget", "config": {"maxIterations": 3}},
            {"type": "keywordSignal", "config": {"completionKeyword": "X"}}]}}}});
        let newest = newest_agent(&old);
        assert_eq!(
            newest.value,
            json!({"runner": {"verdict": {"type": "meta:composite", "config": {"conditions": [
                {"type": "count:iteration", "config": {"maxIterations": 3}},
                {"type": "detect:keyword", "config": {"verdictKeyword": "X"}}], "operator": "or"}}}})
        );
    }

    #[test]
    fn p11_p12_older_registries_become_the_newest_form() {
        let old = json!({
            "entryStepMapping": {"keywordSignal": "initial.a"},
            "completionSteps": {"closure.x": {"completionConditions": []}},
            "steps": {"initial.a": {"c2": "initial", "c3": "a", "variables": {"uv-topic": "text"}, "useStdin": true,
                "next": "complete"}}
        });
        let newest = newest_registry(&old);
        assert_eq!(
            newest.value,
            json!({
                "entryStepMapping": {"detect:keyword": "initial.a"},
                "steps": {"initial.a": {"c2": "initial", "c3": "a", "usesStdin": true,
                    "uvVariables": ["topic"], "transitions": {"next": {"target": null}}}},
                "validationSteps": {"closure.x": {"validationConditions": []}}
            })
        );
        assert_eq!(newest_registry(&newest.value).changes, []);
        let based = newest_registry(&json!({"basePath": "prompts", "editions": ["default"], "steps": {
            "a": {"path": "x/a.md"}, "b": {"prompt": {"c1": "own", "c2": "initial", "c3": "b"}},
            "c": {"c1": "own", "c2": "initial", "c3": "c"}}}));
        assert_eq!(
            based.value,
            json!({"c1": "own", "steps": {"a": {"path": "prompts/x/a.md"},
                "b": {"c2": "initial", "c3": "b"}, "c": {"c2": "initial", "c3": "c"}}})
        );
        assert_eq!(newest_registry(&based.value).changes, []);
        let other = newest_registry(&json!({"c1": "steps", "steps": {
            "a": {"c1": "dev", "c2": "start", "c3": "issue", "adaptation": "x"}}}));
        assert_eq!(other.value["steps"]["a"]["path"], "prompts/dev/start/issue/f_default_x.md");
        let list = newest_registry(&json!({"steps": [{"id": "a", "prompt": {"c2": "initial", "c3": "x"}}]}));
        assert_eq!(list.value, json!({"steps": {"a": {"c2": "initial", "c3": "x"}}}));
    }
}
