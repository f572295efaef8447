//! What steps hand to later steps: outputs by step, turned into `uv-` variables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::dot_path::at;
use super::input_spec::{Input, InputSpec, OnMissing};

/// The outputs of the finished steps. The newest visit of a step replaces an older one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepContext {
    /// Step id → output.
    pub outputs: BTreeMap<String, Map<String, Value>>,
}

/// A required input that no earlier step has put out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "MissingRequiredInput: step \"{step}\" has put out no \"{key}\"; run it first, or give the input a default or onMissing \"skip\""
)]
pub struct MissingRequiredInput {
    /// The step.
    pub step: String,
    /// The key.
    pub key: String,
}

impl StepContext {
    /// Registers a step's validated output; an earlier visit's is replaced whole.
    pub fn set(&mut self, step: &str, output: Map<String, Value>) {
        self.outputs.insert(step.to_owned(), output);
    }

    /// One value; absent is `None`, never an error.
    pub fn get(&self, step: &str, key: &str) -> Option<&Value> {
        at(self.outputs.get(step)?, key)
    }

    /// The inputs as variables `uv-{stepId}_{key}`, values as text (objects and arrays as JSON).
    pub fn to_uv_variables(
        &self,
        inputs: &InputSpec,
    ) -> Result<BTreeMap<String, String>, MissingRequiredInput> {
        let mut variables = BTreeMap::new();
        for input in &inputs.inputs {
            if let Some(text) = self.text_of(input)? {
                variables.insert(format!("uv-{}", input.variable()), text);
            }
        }
        Ok(variables)
    }

    fn text_of(&self, input: &Input) -> Result<Option<String>, MissingRequiredInput> {
        if let Some(value) = self.get(&input.step, &input.key) {
            return Ok(Some(value_text(value)));
        }
        let missing = || MissingRequiredInput { step: input.step.clone(), key: input.key.clone() };
        let default = input.default.as_ref().map(value_text);
        match (input.on_missing, default) {
            (OnMissing::Skip, _) => Ok(None),
            (OnMissing::Default, Some(text)) => Ok(Some(text)),
            (OnMissing::Error, default) if !input.required => Ok(default),
            _ => Err(missing()),
        }
    }
}

/// A value as a prompt shows it: text as it is, everything else as JSON (T18), whole numbers without a fraction however they are
/// written.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
            whole.map_or_else(|| number.to_string(), |number| (number as i64).to_string())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_is_the_same_text_however_it_is_written() {
        let text = |value: Value| value_text(&value);
        assert_eq!(
            (text(json!(0.0)), text(json!(0)), text(json!(-2.0))),
            ("0".into(), "0".into(), "-2".into())
        );
        assert_eq!((text(json!(1.5)), text(json!(true))), ("1.5".into(), "true".into()));
    }

    fn context() -> StepContext {
        let mut context = StepContext::default();
        let Value::Object(output) =
            json!({"height": 3, "files": ["a", "b"], "note": "x\ny", "deep": {"a": 1}, "no": false})
        else {
            panic!("an object")
        };
        context.set("initial.measure", output);
        context
    }

    fn input(reference: &str) -> Input {
        Input::required(reference).unwrap()
    }

    #[test]
    fn e08_objects_and_arrays_hand_over_as_json_text() {
        let inputs = InputSpec {
            inputs: ["height", "files", "note", "deep", "no"]
                .map(|key| input(&format!("initial.measure.{key}")))
                .to_vec(),
        };
        let variables = context().to_uv_variables(&inputs).unwrap();
        assert_eq!(variables["uv-initial_measure_height"], "3");
        assert_eq!(variables["uv-initial_measure_files"], "[\"a\",\"b\"]");
        assert_eq!(variables["uv-initial_measure_note"], "x\ny");
        assert_eq!(variables["uv-initial_measure_deep"], "{\"a\":1}");
        assert_eq!(variables["uv-initial_measure_no"], "false");
    }

    #[test]
    fn e09_a_missing_input_is_an_error_a_default_or_left_out() {
        let resolve = |input: Input| context().to_uv_variables(&InputSpec { inputs: vec![input] });
        let missing = input("initial.measure.width");
        assert_eq!(
            resolve(missing.clone()).unwrap_err(),
            MissingRequiredInput { step: "initial.measure".into(), key: "width".into() }
        );
        let skipped = Input { on_missing: OnMissing::Skip, ..missing.clone() };
        assert!(resolve(skipped).unwrap().is_empty());
        let defaulted =
            Input { on_missing: OnMissing::Default, default: Some(json!([1])), ..missing.clone() };
        assert_eq!(resolve(defaulted).unwrap()["uv-initial_measure_width"], "[1]");
        let optional = Input { required: false, ..missing.clone() };
        assert!(resolve(optional.clone()).unwrap().is_empty());
        let optional = Input { default: Some(json!(7)), ..optional };
        assert_eq!(resolve(optional).unwrap()["uv-initial_measure_width"], "7");
        let required = Input { default: Some(json!(7)), ..missing };
        assert!(resolve(required).is_err(), "a default counts only with onMissing \"default\"");
    }

    #[test]
    fn a_step_run_again_replaces_its_output_whole() {
        let mut context = context();
        context.set("initial.measure", Map::new());
        assert_eq!(context.get("initial.measure", "height"), None);
        assert_eq!(context.get("nowhere", "height"), None);
    }
}
