//! Steps as the first versions of the step flow wrote them: intents, gates, schemas and conditions.

use serde_json::{Value, json};

use super::generations::{Newest, members, put, take};
use super::position::child;
use crate::domain::completion::validation_of;

/// The word of the first step flows for "this is done": to the closing step, or out of it.
const COMPLETE: &str = "complete";

impl Newest {
    /// `complete`: out of a closing step it closes, out of another one it hands over to the closing step. And a step whose
    /// prompt lies at `complete` closes.
    pub(super) fn step_intents(&mut self, at: &str) {
        let text = |key: &str| self.value.pointer(&format!("{at}/{key}")).and_then(Value::as_str);
        let closes = text("stepKind")
            .map_or_else(|| matches!(text("c2"), Some(COMPLETE | "closure")), |kind| kind == "closure");
        if text("stepKind").is_none() && text("c2") == Some(COMPLETE) {
            put(&mut self.value, &format!("{at}/stepKind"), "closure".into());
            self.follows(
                at,
                "the step says no stepKind; it closes, because its c2 is \"complete\"".into(),
                "write \"stepKind\": \"closure\"".into(),
            );
        }
        let word = if closes { "closing" } else { "handoff" };
        let allowed = format!("{at}/structuredGate/allowedIntents");
        if let Some(Value::Array(words)) = self.value.pointer_mut(&allowed)
            && let Some(index) = words.iter().position(|word| word == COMPLETE)
        {
            if words.iter().any(|known| known == word) {
                words.remove(index);
            } else {
                words[index] = word.into();
            }
            self.follows(
                &format!("{allowed}/{index}"),
                "\"complete\" is the older name of an intent".into(),
                format!("write \"{word}\""),
            );
        }
        self.move_key(&format!("{at}/transitions/{COMPLETE}"), &format!("{at}/transitions/{word}"));
    }

    /// `intentSchemaRef` from the root of the schema's file: what the step's own schema is called there is left out.
    pub(super) fn schema_pointer(&mut self, at: &str) {
        let pointer = format!("{at}/structuredGate/intentSchemaRef");
        let text = |pointer: &str| self.value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let (Some(written), Some(schema)) = (text(&pointer), text(&format!("{at}/outputSchemaRef/schema")))
        else {
            return;
        };
        let places = match schema.strip_prefix('#') {
            Some(place) => vec![place.to_owned()],
            None => {
                ["/definitions/", "/$defs/", "/"].iter().map(|group| format!("{group}{schema}")).collect()
            }
        };
        let within = places.iter().find_map(|place| {
            written.strip_prefix('#')?.strip_prefix(place.as_str()).filter(|rest| rest.starts_with('/'))
        });
        if let Some(within) = within.map(|rest| format!("#{rest}")) {
            put(&mut self.value, &pointer, within.as_str().into());
            self.follows(
                &pointer,
                format!("\"{written}\" begins at the root of the schema's file"),
                format!("write \"{within}\", which begins at the step's schema"),
            );
        }
    }

    /// A check's question below another `c1` than the steps' is named by its path.
    pub(super) fn question_path(&mut self, at: &str) {
        let prompt = format!("{at}/check/prompt");
        let Some(Value::Object(address)) = self.value.pointer(&prompt).cloned() else { return };
        let text = |key: &str| address.get(key).and_then(Value::as_str);
        let (Some(c1), Some(c2), Some(c3)) = (text("c1"), text("c2"), text("c3")) else { return };
        let adaptation = text("adaptation").map(|word| format!("_{word}")).unwrap_or_default();
        let path =
            format!("prompts/{c1}/{c2}/{c3}/f_{}{adaptation}.md", text("edition").unwrap_or("default"));
        put(&mut self.value, &prompt, json!({ "path": path }));
        self.follows(
            &prompt,
            "the question says a c1 of its own".into(),
            format!("write \"path\": \"{path}\""),
        );
    }

    /// Conditions that stand at a step: what must hold behind its work, or before it.
    pub(super) fn own_conditions(&mut self, name: &str) {
        let at = child("/steps", name);
        let keys = [
            ("completionConditions", "postLLMConditions"),
            ("validationConditions", "postLLMConditions"),
            ("preflightConditions", "preflightConditions"),
            ("postLLMConditions", "postLLMConditions"),
        ];
        let has = |key: &str| self.value.pointer(&format!("{at}/{key}")).is_some();
        if !keys.iter().any(|(key, _)| has(key)) {
            return;
        }
        let text =
            |key: &str| self.value.pointer(&format!("{at}/{key}")).and_then(Value::as_str).map(str::to_owned);
        // Such an entry is no step: it says where the words for another try are.
        let only_retries =
            text("c2").as_deref() == Some("retry") && !has("structuredGate") && !has("transitions");
        let validation = if only_retries {
            name.split_once('.').and_then(|(_, word)| validation_of(word)).unwrap_or(name)
        } else {
            name
        };
        let to = child("/validationSteps", validation);
        if only_retries {
            for key in ["name", "description", "c2", "c3"] {
                self.move_key(&format!("{at}/{key}"), &format!("{to}/{key}"));
            }
        } else if let Some(c3) = text("c3").filter(|_| self.value.pointer(&format!("{to}/c3")).is_none()) {
            put(&mut self.value, &format!("{to}/c3"), c3.into());
        }
        for (key, newest) in keys {
            self.move_key(&format!("{at}/{key}"), &format!("{to}/{newest}"));
        }
        self.move_key(&format!("{at}/onFailure"), &format!("{to}/onFailure"));
        if only_retries {
            take(&mut self.value, &at);
        }
    }

    /// Conditions that are named by their validators alone.
    pub(super) fn named_conditions(&mut self, pointer: &str) {
        let Some(Value::Array(list)) = self.value.pointer_mut(pointer) else { return };
        for condition in list.iter_mut().filter(|condition| condition.is_string()) {
            *condition = json!({ "validator": condition.take() });
        }
    }

    /// What gates of the first step flows leave out, because they had no schemas: the closing step's gate, the schema of an
    /// output, and where its intent is.
    pub(super) fn whole_gates(&mut self) {
        let steps = members(&self.value, "/steps");
        if !steps.iter().any(|(_, step)| step.get("structuredGate").is_some()) {
            return;
        }
        for (name, step) in steps {
            let at = child("/steps", &name);
            if step.get("structuredGate").is_none()
                && step.get("stepKind") == Some(&"closure".into())
                && step.get("runner").is_none()
            {
                let gate =
                    json!({"allowedIntents": ["closing", "repeat"], "intentField": "next_action.action"});
                put(&mut self.value, &format!("{at}/structuredGate"), gate);
                put(
                    &mut self.value,
                    &format!("{at}/transitions"),
                    json!({"closing": {"target": null}, "repeat": {"target": name}}),
                );
                self.follows(&at, "the closing step has no gate; one that lets closing and repeat through follows from its kind".into(), "write its structuredGate and transitions".into());
            }
            let gate = format!("{at}/structuredGate");
            let Some(field) =
                self.value.pointer(&format!("{gate}/intentField")).and_then(Value::as_str).map(str::to_owned)
            else {
                continue;
            };
            if self.value.pointer(&format!("{gate}/intentSchemaRef")).is_none() {
                let pointer = format!("#/properties/{}", field.replace('.', "/properties/"));
                put(&mut self.value, &format!("{gate}/intentSchemaRef"), pointer.as_str().into());
                self.follows(
                    &gate,
                    format!("the gate has no intentSchemaRef; \"{pointer}\" follows from its intentField"),
                    format!("write \"intentSchemaRef\": \"{pointer}\""),
                );
            }
            if ["outputSchema", "outputSchemaRef"].iter().all(|key| step.get(*key).is_none()) {
                let words =
                    self.value.pointer(&format!("{gate}/allowedIntents")).cloned().unwrap_or_default();
                let schema = field.rsplit('.').fold(
                    json!({ "enum": words }),
                    |inner, key| json!({"type": "object", "required": [key], "properties": {key: inner}}),
                );
                put(&mut self.value, &format!("{at}/outputSchema"), schema);
                self.follows(
                    &at,
                    "the step has no schema; one that asks for the intent follows from its gate".into(),
                    "write a schema, and name it in outputSchemaRef".into(),
                );
            }
        }
    }
}
