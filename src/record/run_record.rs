//! The run record `run.json`: every prompt, request, decision and output of a run in order, folded from its events (002).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::briefing::BriefingRecord;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::ledger_entry::AccountingKind;
use crate::domain::policy::{DenyMode, ProposalKind};
use crate::domain::run_output::RunOutput;
use crate::domain::run_record::{
    RUN_RECORD_SCHEMA, RecordedQuestion, RepoState, RunRecord, RunRecordMetadata, RunRecordStatus,
    SessionManifest, ToldRemark,
};
use crate::domain::stop::StopDetail;
use crate::domain::trace::RecordText;

/// Folds the record. It is a function of the journal, so it can be made again at any time.
pub fn fold(
    facts: &RunFacts,
    output: &RunOutput,
    events_digest: &str,
    question: RecordText,
    response: RecordText,
) -> RunRecord {
    let context = context(facts);
    let mut record = RunRecord {
        run_id: output.run_id,
        started_at: output.started_at.clone(),
        completed_at: output.completed_at.clone(),
        status: if output.success { RunRecordStatus::Completed } else { RunRecordStatus::Failed },
        agent_name: facts.started.as_ref().map(|started| started.agent.clone()).unwrap_or_default(),
        provider_name: None,
        model: None,
        question,
        response,
        context_redacted: context.as_ref().is_none_or(|context| context.to_string().contains("[redacted:")),
        context_snapshot: context,
        items: Vec::new(),
        input_item_count: 0,
        prompt_snapshots: Vec::new(),
        request_fingerprints: Vec::new(),
        policy_decisions: Vec::new(),
        guardrail_decisions: Vec::new(),
        suspended_proposals: Vec::new(),
        error_name: output.error.as_ref().map(|error| error.class.clone()),
        error_message: output.error.as_ref().map(|error| error.message.clone()),
        metadata: RunRecordMetadata::new(output.metadata.clone(), output.stop_detail),
        schema_version: RUN_RECORD_SCHEMA.to_owned(),
        mapping: output.mapping.clone(),
        steps: Vec::new(),
        briefing: None,
        remarks: Vec::new(),
        threads: Vec::new(),
        questions: questions(facts, output),
        repo_state: RepoState {
            base_commit: output.artifacts.base_commit.clone(),
            head_commit: output.artifacts.head_commit.clone(),
            head_tree: output.artifacts.head_tree.clone(),
            dirty: false,
        },
        sandbox: facts.sandbox.clone(),
        events_digest: events_digest.to_owned(),
        previous_run_id: facts.lease.as_ref().and_then(|lease| lease.previous_run).map(|run| run.0),
    };
    for entry in facts.ledger.iter().rev() {
        if let AccountingKind::Llm { provider, model, .. } = &entry.what {
            record.provider_name = Some(provider.clone());
            record.model = Some(model.clone());
            break;
        }
    }
    let mut manifests = BTreeMap::new();
    for (_, event) in &facts.other {
        take(&mut record, &mut manifests, event);
    }
    record.steps = manifests.into_values().collect();
    record
}

fn take(record: &mut RunRecord, manifests: &mut BTreeMap<(u32, uuid::Uuid), SessionManifest>, event: &Event) {
    match event {
        Event::SessionOpened(opened) => {
            if manifests.is_empty() {
                record.input_item_count = opened.input_item_count;
            }
            manifests.insert(
                (opened.visit, opened.session),
                SessionManifest {
                    visit: opened.visit,
                    step_id: opened.step_id.clone(),
                    session: opened.session,
                    inputs: opened.inputs.clone(),
                    exclusions: Vec::new(),
                },
            );
        }
        Event::SessionClosed(closed) => {
            if let Some(manifest) = manifests.get_mut(&(closed.visit, closed.session)) {
                manifest.exclusions.clone_from(&closed.exclusions);
            }
            if let Some(failure) = &closed.failure {
                record.error_name = Some(failure.error_name.clone());
                record.error_message = Some(failure.error_message.clone());
            }
        }
        Event::BriefingFrozen(frozen) => {
            record.briefing = Some(BriefingRecord {
                sha256: frozen.file.sha256.clone(),
                asked: frozen.asked.clone(),
                texts: frozen.texts.clone(),
            });
        }
        Event::RemarkTold { id, visit, turn, .. } => {
            record.remarks.push(ToldRemark { id: *id, visit: *visit, turn: *turn });
        }
        Event::ThreadOutcome(outcome) => {
            record.threads.retain(|known| known.thread != outcome.thread);
            record.threads.push(outcome.as_ref().clone());
        }
        Event::Parked { url, .. } => {
            if let Some(own) = record.questions.last_mut().filter(|question| question.asked.is_some()) {
                own.url.clone_from(url);
            }
        }
        Event::ItemRecorded { item, .. } => record.items.push(item.as_ref().clone()),
        Event::PromptSnapshotTaken(snapshot) => record.prompt_snapshots.push(snapshot.as_ref().clone()),
        Event::RequestFingerprinted(fingerprint) => {
            record.request_fingerprints.push(fingerprint.as_ref().clone());
        }
        Event::PolicyDecided(decision) => {
            // A handoff is judged between sessions, so its hard denial is not the failure of a session (P-022, P-044).
            let ended = [StopDetail::PolicyDenied, StopDetail::ApprovalPending]
                .contains(&record.metadata.stop_detail);
            let hard = decision.deny_mode == Some(DenyMode::Throw);
            if ended && hard && decision.resource.kind == ProposalKind::Handoff {
                record.error_name = Some("HandoffPolicyDenied".to_owned());
                record.error_message =
                    Some(format!("Handoff \"{}\" denied: {}", decision.resource.name, decision.reason));
            }
            record.policy_decisions.push(decision.as_ref().clone());
        }
        Event::GuardrailDecided(decision) => record.guardrail_decisions.push(decision.as_ref().clone()),
        Event::ProposalSuspended(proposal) => record.suspended_proposals.push(proposal.as_ref().clone()),
        _ => {}
    }
}

/// What the run was given and may be kept. All of it was redacted before (P-031, P-032).
fn context(facts: &RunFacts) -> Option<Value> {
    let lease = facts.lease.as_ref().filter(|lease| !lease.context_withheld)?;
    let started = facts.started.as_ref();
    Some(json!({
        "source": lease.source,
        "principal": lease.principal,
        "origin": lease.origin,
        "labels": lease.issue.labels,
        "issueText": lease.text,
        "budgets": started.map(|started| &started.budgets),
        "asked": started.map(|started| &started.asked),
        "definitionSha256": started.map(|started| &started.definition_sha256),
        "configSha256": started.map(|started| &started.config_sha256),
        "policyVersions": started.map(|started| &started.policy_versions),
    }))
}

/// What somebody answered to the run before, and what this one asked.
fn questions(facts: &RunFacts, output: &RunOutput) -> Vec<RecordedQuestion> {
    let answered = facts.answered.iter().map(|answered| RecordedQuestion {
        run_id: answered.run_id.0,
        asked: None,
        url: None,
        answered: Some(answered.clone()),
    });
    let asked = facts.question.iter().map(|asked| RecordedQuestion {
        run_id: output.run_id,
        asked: Some(asked.clone()),
        url: None,
        answered: None,
    });
    answered.chain(asked).collect()
}

/// The objective.
pub fn question(output: &RunOutput) -> String {
    format!("{}\n\n{}", output.objective.title, output.objective.body).trim_end().to_owned()
}

/// The final report's text.
pub fn response(output: &RunOutput) -> String {
    match (&output.final_report.content, &output.final_report.content_json) {
        (Some(content), _) => content.clone(),
        (None, Some(json)) => Value::Object(json.clone()).to_string(),
        (None, None) => String::new(),
    }
}
