//! When a run is done: pure predicates over a snapshot taken at the end of a visit (C-12).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::dot_path::at;

/// A completion condition under its one internal name. The names of every generation are read into it.
#[derive(Debug, Clone, PartialEq)]
pub enum Completion {
    /// `iterationBudget`, `count:iteration`: after N visits.
    IterationBudget {
        /// N, at least 1.
        iterations: u32,
    },
    /// `checkBudget`, `count:check`: after N completion checks.
    CheckBudget {
        /// N, at least 1.
        checks: u32,
    },
    /// `keywordSignal`, `detect:keyword`: the model says the word.
    KeywordSignal {
        /// The word.
        keyword: String,
    },
    /// `structuredSignal`, `detect:structured`: the output carries a signal.
    StructuredSignal {
        /// Value of `signal` or `type`.
        signal: String,
        /// Fields that must be there.
        required: RequiredFields,
    },
    /// `stepMachine`, `detect:graph`: the flow reached its end.
    StepMachine,
    /// `externalState`, `poll:state`: closing the issue is planned (D81).
    ExternalState,
    /// `custom`, `meta:custom`: a program of the agent decides.
    Custom {
        /// Path relative to the agent's folder.
        program: String,
    },
    /// `composite`, `meta:composite`.
    Composite {
        /// How the parts combine.
        mode: CompositeMode,
        /// The parts, in order; never empty.
        conditions: Vec<Self>,
    },
}

/// Fields that a structured signal must bring.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequiredFields {
    /// Dot paths that must exist.
    pub present: Vec<String>,
    /// Dot paths that must have a value.
    pub equal: Vec<(String, Value)>,
}

/// How a composite's parts combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompositeMode {
    /// Any part, evaluated in order until one holds (`any`, `or`).
    Any,
    /// All parts, evaluated in order until one does not hold (`all`, `and`).
    All,
    /// As `any`; the first part that holds is named as the reason (`first`).
    First,
}

/// What a run looks like at the end of a visit.
#[derive(Debug, Clone, Copy)]
pub struct VisitEnd<'a> {
    /// Finished visits, the one just ended included.
    pub visits: u32,
    /// Completion checks asked, this one included.
    pub checks: u32,
    /// The flow reached its end in this visit (`Next::Complete`).
    pub closing: bool,
    /// Validated output of the visit, where its step has a schema.
    pub last_output: Option<&'a Map<String, Value>>,
    /// The model's own last text. What was shown to the model is not in it.
    pub last_text: &'a str,
    /// The prompt of the visit: lines repeated from it are quotes, not signals (E16).
    pub prompt: &'a str,
    /// A closure effect that closes the issue is planned (D81).
    pub closure_planned: bool,
    /// Answers of the programs that [`Completion::programs`] names.
    pub programs: &'a [(String, CompletionResult)],
}

/// Whether a run is done, and why (or why not). `complete` implies a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionResult {
    /// Done.
    pub complete: bool,
    /// For people and the record; never empty.
    pub reason: String,
}

impl CompletionResult {
    fn done(reason: impl Into<String>) -> Self {
        Self { complete: true, reason: reason.into() }
    }

    fn open(reason: impl Into<String>) -> Self {
        Self { complete: false, reason: reason.into() }
    }
}

/// Names of one completion type: the oldest one, which is used inside agentd, the newest one, and those between.
struct TypeName {
    seed: &'static str,
    newest: &'static str,
    older: &'static [&'static str],
    validation: &'static str,
}

const TYPES: [TypeName; 8] = [
    TypeName {
        seed: "iterationBudget",
        newest: "count:iteration",
        older: &["iterate"],
        validation: "closure.iteration",
    },
    TypeName { seed: "checkBudget", newest: "count:check", older: &[], validation: "closure.check" },
    TypeName {
        seed: "keywordSignal",
        newest: "detect:keyword",
        older: &["manual"],
        validation: "closure.keyword",
    },
    TypeName {
        seed: "structuredSignal",
        newest: "detect:structured",
        older: &[],
        validation: "closure.structured",
    },
    TypeName {
        seed: "stepMachine",
        newest: "detect:graph",
        older: &["stepFlow"],
        validation: "closure.graph",
    },
    TypeName {
        seed: "externalState",
        newest: "poll:state",
        older: &["issue", "project"],
        validation: "closure.polling",
    },
    TypeName { seed: "custom", newest: "meta:custom", older: &[], validation: "closure.custom" },
    TypeName { seed: "composite", newest: "meta:composite", older: &[], validation: "closure.composite" },
];

/// The oldest name and the newest name of a completion type, from any of its names.
pub fn type_names(word: &str) -> Option<(&'static str, &'static str)> {
    TYPES
        .iter()
        .find(|names| names.seed == word || names.newest == word || names.older.contains(&word))
        .map(|names| (names.seed, names.newest))
}

/// Id of the validation step of a completion type, from any of its names.
pub fn validation_of(word: &str) -> Option<&'static str> {
    let known = |names: &&TypeName| names.seed == word || names.newest == word || names.older.contains(&word);
    TYPES.iter().find(known).map(|names| names.validation)
}

/// Every name of every type, newest first: for messages.
pub fn known_type_names() -> Vec<&'static str> {
    TYPES.iter().map(|names| names.newest).chain(TYPES.iter().map(|names| names.seed)).collect()
}

impl Completion {
    fn names(&self) -> &'static TypeName {
        &TYPES[match self {
            Self::IterationBudget { .. } => 0,
            Self::CheckBudget { .. } => 1,
            Self::KeywordSignal { .. } => 2,
            Self::StructuredSignal { .. } => 3,
            Self::StepMachine => 4,
            Self::ExternalState => 5,
            Self::Custom { .. } => 6,
            Self::Composite { .. } => 7,
        }]
    }

    /// Every name under which an `entryStepMapping` may list it, newest first.
    pub fn all_names(&self) -> Vec<&'static str> {
        let names = self.names();
        [names.newest, names.seed].into_iter().chain(names.older.iter().copied()).collect()
    }

    /// Id of the validation step that belongs to the type.
    pub fn validation_step(&self) -> &'static str {
        self.names().validation
    }

    /// Programs that must be asked before [`Self::check`].
    pub fn programs(&self) -> Vec<&str> {
        match self {
            Self::Custom { program } => vec![program],
            Self::Composite { conditions, .. } => conditions.iter().flat_map(Self::programs).collect(),
            _ => Vec::new(),
        }
    }

    /// Says whether the run is done. A flow that reached its end is done under every type.
    ///
    /// `met` has the parts of an `and` that have held in some visit so far. A part that held once stays. The parts of
    /// this visit are added.
    pub fn check(&self, run: &VisitEnd<'_>, met: &mut BTreeSet<String>) -> CompletionResult {
        if run.closing {
            return CompletionResult::done("the flow reached its end");
        }
        self.holds(run, "", met)
    }

    /// What the criteria look like to a model: the value of `uv-verdict_criteria` and `uv-completion_criteria`.
    pub fn criteria(&self) -> String {
        match self {
            Self::IterationBudget { iterations: 1 } => "one iteration".into(),
            Self::IterationBudget { iterations } => format!("{iterations} iterations"),
            Self::CheckBudget { checks } => format!("{checks} completion checks"),
            Self::KeywordSignal { keyword } => format!("the reply says {keyword}"),
            Self::StructuredSignal { signal, .. } => format!("the output carries the signal \"{signal}\""),
            Self::StepMachine => "the step flow reaches its end".into(),
            Self::ExternalState => "the issue is resolved".into(),
            Self::Custom { program } => format!("{program} answers that the work is complete"),
            Self::Composite { mode, conditions } => {
                let word = if *mode == CompositeMode::All { " and " } else { " or " };
                conditions.iter().map(Self::criteria).collect::<Vec<_>>().join(word)
            }
        }
    }

    fn holds(&self, run: &VisitEnd<'_>, place: &str, met: &mut BTreeSet<String>) -> CompletionResult {
        match self {
            Self::IterationBudget { iterations } => counted(run.visits, *iterations, "iterations"),
            Self::CheckBudget { checks } => counted(run.checks, *checks, "completion checks"),
            Self::KeywordSignal { keyword } => {
                if says(run, keyword) {
                    CompletionResult::done(format!("the reply says {keyword}"))
                } else {
                    CompletionResult::open(format!("the reply does not say {keyword}"))
                }
            }
            Self::StructuredSignal { signal, required } => structured(run, signal, required),
            Self::StepMachine => CompletionResult::open("the flow has not reached its end"),
            // A person who closes it ends the run before the next visit (D103).
            Self::ExternalState if run.closure_planned => {
                CompletionResult::done("closing the issue is planned")
            }
            Self::ExternalState => CompletionResult::open("the issue is open"),
            Self::Custom { program } => run
                .programs
                .iter()
                .find(|(name, _)| name == program)
                .map(|(_, answer)| answer.clone())
                .unwrap_or_else(|| CompletionResult::open(format!("{program} has not answered"))),
            Self::Composite { mode, conditions } => composite(run, *mode, conditions, place, met),
        }
    }
}

fn counted(used: u32, wanted: u32, what: &str) -> CompletionResult {
    let reason = format!("{used} of {wanted} {what}");
    if used >= wanted { CompletionResult::done(reason) } else { CompletionResult::open(reason) }
}

fn composite(
    run: &VisitEnd<'_>,
    mode: CompositeMode,
    conditions: &[Completion],
    place: &str,
    met: &mut BTreeSet<String>,
) -> CompletionResult {
    let (mut reasons, mut missing) = (Vec::new(), None);
    for (index, condition) in conditions.iter().enumerate() {
        let place = format!("{place}/{index}");
        let result = condition.holds(run, &place, met);
        match (mode, result.complete) {
            (CompositeMode::Any, true) => return result,
            (CompositeMode::First, true) => {
                return CompletionResult::done(format!("condition {}: {}", index + 1, result.reason));
            }
            (CompositeMode::All, true) => {
                met.insert(place);
                reasons.push(result.reason);
            }
            (CompositeMode::All, false) if met.contains(&place) => {
                reasons.push(format!("{} (held before)", condition.criteria()));
            }
            (CompositeMode::All, false) => missing = missing.or(Some(result)),
            _ => reasons.push(result.reason),
        }
    }
    missing.unwrap_or_else(|| CompletionResult {
        complete: mode == CompositeMode::All && !conditions.is_empty(),
        reason: reasons.join("; "),
    })
}

/// Fields in which a structured output may say a keyword.
const SPOKEN: [&str; 7] =
    ["completion_signal", "signal", "status", "result", "summary", "message", "next_action.reason"];

fn says(run: &VisitEnd<'_>, keyword: &str) -> bool {
    match run.last_output {
        Some(output) => SPOKEN
            .iter()
            .filter_map(|path| at(output, path)?.as_str())
            .any(|text| text_says(text, keyword, run.prompt)),
        None => text_says(run.last_text, keyword, run.prompt),
    }
}

/// Whether a text uses the keyword and does not only mention it: it stands as a whole word, outside of quotes, in a
/// line that the prompt does not have.
fn text_says(text: &str, keyword: &str, prompt: &str) -> bool {
    let mut fenced = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if line == keyword {
            return true;
        }
        let quoted = fenced || line.starts_with('>') || prompt.lines().any(|shown| shown.trim() == line);
        if !quoted && uses_word(line, keyword) {
            return true;
        }
    }
    false
}

fn uses_word(line: &str, keyword: &str) -> bool {
    let wordy = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let quote = |c: char| matches!(c, '"' | '\'' | '`' | '“' | '”' | '‘' | '’' | '「' | '」');
    !keyword.is_empty()
        && line.match_indices(keyword).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + keyword.len()..].chars().next();
            let free = |c: Option<char>| c.is_none_or(|c| !wordy(c));
            let mention = before.is_some_and(quote) && after.is_some_and(quote);
            free(before) && free(after) && !mention
        })
}

fn structured(run: &VisitEnd<'_>, signal: &str, required: &RequiredFields) -> CompletionResult {
    let parsed;
    let output = match run.last_output {
        Some(output) => output,
        None => match signal_block(run.last_text, signal) {
            Some(block) => {
                parsed = block;
                &parsed
            }
            None => return CompletionResult::open(format!("no output carries the signal \"{signal}\"")),
        },
    };
    let named = ["signal", "type"].iter().any(|key| output.get(*key).and_then(Value::as_str) == Some(signal));
    if !named {
        return CompletionResult::open(format!("the output does not carry the signal \"{signal}\""));
    }
    for path in &required.present {
        if at(output, path).is_none_or(Value::is_null) {
            return CompletionResult::open(format!("the signal \"{signal}\" lacks the field {path}"));
        }
    }
    for (path, value) in &required.equal {
        if at(output, path) != Some(value) {
            return CompletionResult::open(format!("in the signal \"{signal}\" {path} is not {value}"));
        }
    }
    CompletionResult::done(format!("the output carries the signal \"{signal}\""))
}

/// The signal in a reply without schema: a fenced block tagged with the signal's name, or a JSON block that names it.
fn signal_block(text: &str, signal: &str) -> Option<Map<String, Value>> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(tag) = line.trim().strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| !line.trim().starts_with("```")).collect();
        let Ok(Value::Object(mut block)) = serde_json::from_str(&body.join("\n")) else { continue };
        if tag.trim() == signal {
            block.entry("signal").or_insert_with(|| signal.into());
        }
        if ["signal", "type"].iter().any(|key| block.get(*key).and_then(Value::as_str) == Some(signal)) {
            return Some(block);
        }
    }
    match serde_json::from_str(text.trim()) {
        Ok(Value::Object(whole)) => Some(whole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(visits: u32, text: &str) -> VisitEnd<'_> {
        VisitEnd {
            visits,
            checks: visits,
            closing: false,
            last_output: None,
            last_text: text,
            prompt: "Do it.\nWhen done, say TASK_COMPLETE.",
            closure_planned: false,
            programs: &[],
        }
    }

    fn keyword() -> Completion {
        Completion::KeywordSignal { keyword: "TASK_COMPLETE".into() }
    }

    #[test]
    fn e17_an_iteration_budget_is_complete_after_n_visits_gated_or_not() {
        let three = Completion::IterationBudget { iterations: 3 };
        assert!(!three.check(&snapshot(2, ""), &mut BTreeSet::new()).complete);
        assert!(three.check(&snapshot(3, ""), &mut BTreeSet::new()).complete);
    }

    #[test]
    fn e16_a_keyword_counts_when_it_is_said_and_not_when_it_is_quoted() {
        for said in
            ["TASK_COMPLETE", "All green. TASK_COMPLETE", "done: TASK_COMPLETE!", "```\nTASK_COMPLETE\n```"]
        {
            assert!(keyword().check(&snapshot(1, said), &mut BTreeSet::new()).complete, "{said}");
        }
        for quoted in [
            "I will say `TASK_COMPLETE` later",
            "> say TASK_COMPLETE",
            "When done, say TASK_COMPLETE.",
            "NOT_TASK_COMPLETE_YET",
            "the word \"TASK_COMPLETE\" comes later",
        ] {
            assert!(!keyword().check(&snapshot(1, quoted), &mut BTreeSet::new()).complete, "{quoted}");
        }
        let output = json!({"summary": "All done TASK_COMPLETE", "notes": ""});
        let mut run = snapshot(1, "");
        run.last_output = output.as_object();
        assert!(keyword().check(&run, &mut BTreeSet::new()).complete);
        let output = json!({"summary": "working", "prompt_echo": "TASK_COMPLETE"});
        run.last_output = output.as_object();
        assert!(!keyword().check(&run, &mut BTreeSet::new()).complete);
    }

    #[test]
    fn e15_composites_combine_in_order_and_stop_early() {
        let parts = vec![Completion::IterationBudget { iterations: 3 }, keyword()];
        let composite = |mode| Completion::Composite { mode, conditions: parts.clone() };
        let run = snapshot(1, "TASK_COMPLETE");
        assert!(composite(CompositeMode::Any).check(&run, &mut BTreeSet::new()).complete);
        let first = composite(CompositeMode::First).check(&run, &mut BTreeSet::new());
        assert!(first.complete && first.reason.starts_with("condition 2"), "{first:?}");
        assert_eq!(
            composite(CompositeMode::All).check(&run, &mut BTreeSet::new()).reason,
            "1 of 3 iterations"
        );
        assert!(
            composite(CompositeMode::All).check(&snapshot(3, "TASK_COMPLETE"), &mut BTreeSet::new()).complete
        );
        assert!(!composite(CompositeMode::Any).check(&snapshot(1, ""), &mut BTreeSet::new()).complete);
    }

    #[test]
    fn a_structured_signal_needs_its_name_and_its_fields() {
        let wants = Completion::StructuredSignal {
            signal: "review-done".into(),
            required: RequiredFields {
                present: vec!["verdict".into()],
                equal: vec![("ok".into(), json!(true))],
            },
        };
        let tagged = "Here:\n```review-done\n{\"verdict\": \"fine\", \"ok\": true}\n```";
        assert!(wants.check(&snapshot(1, tagged), &mut BTreeSet::new()).complete);
        let lacking = "```json\n{\"type\": \"review-done\", \"ok\": true}\n```";
        assert!(wants.check(&snapshot(1, lacking), &mut BTreeSet::new()).reason.contains("verdict"));
        assert!(
            !wants
                .check(&snapshot(1, "```json\n{\"status\": \"completed\"}\n```"), &mut BTreeSet::new())
                .complete
        );
    }

    #[test]
    fn what_an_and_asks_for_may_hold_one_after_the_other() {
        let conditions = vec![keyword(), Completion::IterationBudget { iterations: 3 }];
        let both = Completion::Composite { mode: CompositeMode::All, conditions };
        let mut met = BTreeSet::new();
        assert!(!both.check(&snapshot(1, "TASK_COMPLETE"), &mut met).complete);
        assert!(!both.check(&snapshot(2, ""), &mut met).complete);
        assert!(both.check(&snapshot(3, ""), &mut met).complete);
        assert!(!both.check(&snapshot(3, ""), &mut BTreeSet::new()).complete);
    }

    #[test]
    fn d81_a_planned_closure_satisfies_the_external_state() {
        let mut run = snapshot(1, "");
        assert!(!Completion::ExternalState.check(&run, &mut BTreeSet::new()).complete);
        run.closure_planned = true;
        assert!(Completion::ExternalState.check(&run, &mut BTreeSet::new()).complete);
    }

    #[test]
    fn every_generations_type_name_leads_to_the_same_type() {
        for (old, seed) in [
            ("iterate", "iterationBudget"),
            ("manual", "keywordSignal"),
            ("issue", "externalState"),
            ("stepFlow", "stepMachine"),
            ("meta:composite", "composite"),
            ("count:check", "checkBudget"),
        ] {
            assert_eq!(type_names(old).map(|names| names.0), Some(seed), "{old}");
        }
        assert_eq!(type_names("sometimes"), None);
    }
}
