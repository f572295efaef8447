//! A visit that an agent program works on in place of the built-in session (C-24).
//!
//! The launch is one tool call, `exec_agent__<backend>`, through the gate. Its answer is a report whose claims are
//! candidates like all others. Its tokens and money count for the run. agentd cannot see inside; git shows what it did.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::abort::Abort;
use super::agent_output::{AgentOutput, AgentProgress, Words};
use super::agent_task::{AgentBackend, AgentTask, EarlierLaunches};
use super::agent_tools::{self, AgentTools, Launched, Request, TURN, ToolHandler};
use super::model_orders::{ModelOrders, Ordered};
use super::not_done::NotDone;
use super::report::{self, ModelReport, ReportProblem, ReportShape, SessionFacts};
use super::session::PromptIdentity;
use super::session_outcome::SessionOutcome;
use super::session_trace::{SessionTrace, prompt_mark};
use super::shared_caps::Reservations;
use super::single_call::{SingleCall, call_tool};
use super::tool::CallLimits;
use super::tool_list::ToolList;
use super::tool_output::StoredOutputs;
use super::visit::{AgentPrompts, Failed, FlowPlan, FlowWorld, StepResult, StepWork};
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::fingerprint::HashedTools;
use crate::domain::flow::{PermissionMode, StepId};
use crate::domain::message::{Message, Messages, TokenUsage, ToolCall, ToolSpec};
use crate::domain::money::Money;
use crate::domain::policy::EnvelopeStatus;
use crate::domain::report::ReportSource;
use crate::domain::stop::StopDetail;
use crate::domain::trace::{
    Exclusion, ItemRole, ManifestInput, SessionClosed, SessionFailure, SessionOpened,
};
use crate::domain::untrusted::is_blank;
use tokio::time::Instant;

/// The longest answer that the record keeps as the result of the call.
const LONGEST_ANSWER: u64 = 256 * 1024;
/// How much later than every other limit the call's own comes.
const SLACK: Duration = Duration::from_secs(10);
/// The timer of a program without a limit of its own: a hundred years.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Launches of a visit after which nothing that people say starts another one.
const MOST_LAUNCHES: u32 = 10;

/// Class of the failure of a launch whose work the policy refuses.
pub const POLICY_DENIED: &str = "ToolCallPolicyDenied";

/// One agent visit under way.
pub(super) struct AgentVisit<'a> {
    pub(super) world: &'a FlowWorld,
    pub(super) plan: &'a FlowPlan,
    work: StepWork<'a>,
    pub(super) agent: &'a AgentBackend,
    pub(super) record: SessionTrace,
    shape: ReportShape,
    /// Launches so far, and what all of them used.
    pub(super) launches: u32,
    earlier: EarlierLaunches,
    pub(super) usage: TokenUsage,
    pub(super) cost: Money,
    pub(super) cost_unknown: bool,
    pub(super) turns: u32,
    said: Vec<Message>,
    /// What the launch under way asks for.
    requests: Option<mpsc::Receiver<Request>>,
    ordered: Option<Ordered>,
    /// Long outputs of calls of the program.
    outputs: Arc<StoredOutputs>,
    /// The tools that it is served.
    tools: Arc<ToolList>,
    /// What the program did not see in full.
    exclusions: Vec<Exclusion>,
}

impl FlowWorld {
    /// Gives a visit to the program. The prompt is already resolved and recorded.
    pub(super) async fn run_agent(
        &self,
        plan: &FlowPlan,
        work: StepWork<'_>,
        agent: &AgentBackend,
        shape: ReportShape,
        prompts: AgentPrompts,
        identity: &PromptIdentity,
    ) -> Result<StepResult, NotDone<Failed>> {
        let AgentPrompts { system, prompt, task } = prompts;
        let record = self.record_of(plan, work.step, work.visit);
        let outputs = Arc::new(StoredOutputs::new(record.ids().session, Arc::clone(&self.0.journal)));
        let tools = plan.tools.list(record.ids().session, 0).await?;
        let visit = AgentVisit {
            world: self,
            plan,
            work,
            agent,
            record,
            shape,
            launches: 0,
            earlier: EarlierLaunches::default(),
            usage: TokenUsage::default(),
            cost: Money::ZERO,
            cost_unknown: false,
            turns: 0,
            said: Vec::new(),
            requests: None,
            ordered: None,
            outputs,
            tools,
            exclusions: Vec::new(),
        };
        let outcome = visit.run(&system, &task, identity).await;
        super::visit::read_outcome(plan, work, prompt, outcome, self.0.redaction.as_deref())
            .map_err(NotDone::Ended)
    }
}

impl AgentVisit<'_> {
    async fn run(mut self, system: &str, task: &str, identity: &PromptIdentity) -> SessionOutcome {
        let whole = if system.trim().is_empty() {
            task.to_owned()
        } else {
            format!("{}\n\n{task}", system.trim_end())
        };
        let asked = format!("{whole}\n\n{}", self.closing_words());
        let ended = match self.open(&asked, identity.include_text).await {
            Ok(()) => self.ask(asked.clone()).await,
            Err(abort) => Err(abort),
        };
        self.close(ended, asked, identity.include_text).await
    }

    /// The form of the report, in words that any program understands.
    fn closing_words(&self) -> String {
        let work = if self.read_only() {
            "Read in the current directory only. This step changes no file: a later one does, and the files are read-only here."
        } else {
            "Work in the current directory only. Commit, push or publish nothing: the host does."
        };
        match &self.work.step.output_schema {
            Some(schema) => format!(
                "{work} End with exactly one JSON object that fits this JSON Schema, and nothing else:\n{}",
                schema.json
            ),
            None => format!(
                "{work} End with a report for people, in {}: what you changed, why, and what you could not verify.",
                self.shape.format()
            ),
        }
    }

    async fn open(&mut self, asked: &str, include_text: bool) -> Result<(), Abort> {
        let task = self.task(String::new(), None);
        let tool = (self.agent.launch)(task);
        let ids = self.record.ids();
        let mut offered = vec![tool.spec().clone()];
        if self.agent.serves_tools {
            offered.extend(self.catalog().iter().cloned());
        }
        self.record.note(Event::SessionOpened(Box::new(SessionOpened {
            session: ids.session,
            visit: ids.visit,
            step_id: ids.step_id.clone(),
            agent: ids.agent.clone(),
            input_item_count: 1,
            inputs: vec![ManifestInput {
                reference: "prompt/1".to_owned(),
                sha256: sha256_hex(asked.as_bytes()),
                tokens: super::token_estimate::TokenEstimate::default().text(asked),
                why: "the step's prompt".to_owned(),
            }],
            tools: offered.iter().map(|tool| tool.name.clone()).collect(),
            tools_sha256: HashedTools::of(&offered)
                .map_err(|error| Abort::internal(error.to_string()))?
                .sha256()
                .to_owned(),
            tools_file: self.tools.file.clone(),
        })))?;
        let text = if include_text { asked.to_owned() } else { prompt_mark(&sha256_hex(asked.as_bytes())) };
        self.record.message_item(0, ItemRole::User, &text).await
    }

    fn read_only(&self) -> bool {
        self.plan.definition().permission_mode(self.work.step) == PermissionMode::Plan
    }

    fn catalog(&self) -> Arc<[ToolSpec]> {
        let lines = self.plan.settings.read_page_lines;
        agent_tools::catalog(
            &self.tools,
            &self.outputs,
            lines,
            (&self.shape, self.world.0.tool_catalogs.asks()),
        )
    }

    fn task(&mut self, prompt: String, resume: Option<String>) -> AgentTask {
        let (tools, requests) = AgentTools::new(self.catalog());
        let (orders, ordered) = ModelOrders::new();
        (self.requests, self.ordered) = (Some(requests), Some(ordered));
        AgentTask {
            tools,
            orders: Some(orders),
            prompt,
            resume,
            anew: None,
            schema: self.work.step.output_schema.as_ref().map(|schema| schema.json.clone()),
            read_only: self.read_only(),
            earlier: self.earlier,
            progress: AgentProgress::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// Launches the program until its report fits, at most `max_retries` times.
    async fn ask(&mut self, asked: String) -> Result<ModelReport, Abort> {
        let mut most = if self.agent.asks_again { self.plan.settings.max_retries } else { 1 };
        // A visit that continues the one before has these words already (D4).
        let before = Some(self.work.history).filter(|history| !history.is_empty() && self.agent.resumes);
        let before = before.and_then(|_| self.conversations().get(&self.work.step.id).cloned());
        let mut task = self.task(asked.clone(), before);
        loop {
            self.world.0.meter.check()?;
            if let Some(stop) = self.world.asked_to_stop() {
                return Err(stop.into());
            }
            let said = self.launch(task).await?;
            let problem = match self.read(&said) {
                Ok(report) => {
                    if let Some(conversation) = said.conversation.clone() {
                        self.conversations().insert(self.work.step.id.clone(), conversation);
                    }
                    // What people said meanwhile is its next prompt; at its last launch it waits for another run.
                    let more = self.launches < MOST_LAUNCHES && self.world.asked_to_stop().is_none();
                    let since = self.world.0.new_remarks.as_ref().filter(|_| more);
                    let Some(words) = super::new_remarks::take(since, &self.record, self.launches).await?
                    else {
                        return Ok(report);
                    };
                    most += 1;
                    let again = format!("{words}\n\n{}", self.closing_words());
                    let resume = said.conversation.filter(|_| self.agent.resumes);
                    let anew = format!("{asked}\n\n{again}");
                    task = match resume {
                        Some(resume) => AgentTask { anew: Some(anew), ..self.task(again, Some(resume)) },
                        None => self.task(anew, None),
                    };
                    continue;
                }
                Err(problem) => problem,
            };
            if let Some(stop) = self.world.asked_to_stop() {
                return Err(stop.into());
            }
            if self.launches >= most {
                let message = format!(
                    "What {} reported does not fit the step: {}.",
                    self.agent.name,
                    problem.for_people().trim_end_matches('.')
                );
                let (detail, name) = if problem.schema {
                    (StopDetail::SchemaInvalid, "OutputSchemaInvalid")
                } else {
                    (StopDetail::InvalidModelOutput, "InvalidModelOutput")
                };
                return Err(Abort::new(detail, name, &message, message.clone()));
            }
            let again = format!("Your report cannot be used: {}. {}", problem.message, self.closing_words());
            let resume = said.conversation.filter(|_| self.agent.resumes);
            let anew = format!("{asked}\n\n{again}");
            task = match resume {
                Some(resume) => AgentTask { anew: Some(anew), ..self.task(again, Some(resume)) },
                None => self.task(anew, None),
            };
        }
    }

    fn conversations(&self) -> MutexGuard<'_, BTreeMap<StepId, String>> {
        self.agent.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launch as the gate judges it.
    fn call_of(&self, tool: &str, task: &AgentTask) -> ToolCall {
        let arguments = json!({
            "step": self.work.step.id,
            "goes_on": task.resume.is_some(),
        });
        let id = format!("agent-{}-{}", self.work.visit, self.launches);
        ToolCall { id, name: tool.to_owned(), arguments: arguments.to_string() }
    }

    /// One launch: it passes the gate, the budgets watch it, and the ledger has it.
    async fn launch(&mut self, task: AgentTask) -> Result<AgentOutput, Abort> {
        self.launches += 1;
        let world = &self.world.0;
        world.touched.mark();
        let tool = (self.agent.launch)(task.clone());
        let call = self.call_of(&tool.spec().name, &task);
        let limits = CallLimits {
            // Both limits count, the program's and the run's. Each has its own words.
            timeout: self.agent.time_limit.unwrap_or(NO_LIMIT) + SLACK,
            max_inline_bytes: LONGEST_ANSWER,
        };
        let (started, timestamp) = (Instant::now(), world.clock.now_ms());
        let mut heard = task.progress.changes();
        let tools = [tool];
        let ids = self.record.ids().clone();
        let launched =
            Launched { visit: self.work.visit, call_id: call.id.clone(), progress: task.progress.clone() };
        let behind = agent_tools::while_at_work(&self.tools, &self.agent.stand_ins);
        let mut handler = ToolHandler::open(
            world,
            (&self.plan.settings, &self.shape),
            (self.record.clone(), self.plan.scope.clone()),
            behind,
            Arc::clone(&self.outputs),
            launched,
        )?;
        let (mut over, mut served, mut noted) = (None, None, None);
        let fingerprint = sha256_hex(task.prompt.as_bytes());
        let shared = Arc::new(self.open_share().await?);
        let called = {
            let running = call_tool(ids, self.plan.scope.clone(), call, &tools, limits, world);
            let mut requests =
                self.requests.take().ok_or_else(|| Abort::internal("a launch without its requests"))?;
            let mut ordered =
                self.ordered.take().ok_or_else(|| Abort::internal("a launch without its orders"))?;
            let closing = CancellationToken::new();
            let serving = async {
                let ended = handler.serve(&mut requests, &closing).await;
                if ended.is_err() {
                    task.cancel.cancel();
                    handler.judge_changes(&mut requests, &closing).await;
                }
                ended
            };
            tokio::pin!(running, serving);
            let called = loop {
                tokio::select! {
                    called = &mut running => break called,
                    ended = &mut serving, if served.is_none() => served = Some(ended),
                    () = ordered.changed(), if over.is_none() => {
                        over = self.pay(&mut ordered, &shared, &heard).await?;
                        if over.is_some() {
                            task.cancel.cancel();
                        }
                    }
                    changed = heard.changed(), if over.is_none() => {
                        if changed.is_err() {
                            continue;
                        }
                        let so_far = heard.borrow_and_update().clone();
                        let cost = self.note_so_far(&so_far, &mut noted, (&fingerprint, started, timestamp))?;
                        let spent = (cost, ordered.under_way());
                        if let Some(abort) = world.used_up(&shared, spent, &self.agent.name).await? {
                            over = Some(abort);
                            task.cancel.cancel();
                        }
                    }
                }
            };
            closing.cancel();
            if served.is_none() {
                served = Some(serving.await);
            }
            called
        };
        self.exclusions.append(&mut handler.exclusions);
        let said = task.progress.so_far();
        let failed = failure_of(&called);
        self.earlier.add(started.elapsed(), &said);
        let cost =
            self.account(&said, noted.is_some(), (&fingerprint, started, timestamp), failed.as_deref())?;
        if let Some(held) = Arc::into_inner(shared) {
            let news = world.caps.confirm(held, cost).await?;
            world.heed(news)?;
        }
        if let Some(abort) = over {
            return Err(abort);
        }
        if let Some(Err(abort)) = served {
            return Err(abort);
        }
        let called = called?;
        world.meter.check()?;
        match (self.came_to(&called, &tools[0].spec().name, failed), self.world.asked_to_stop()) {
            (Err(_), Some(stop)) => Err(stop.into()),
            // A report that is there already counts, whoever asked to stop meanwhile: the run ends behind the visit.
            (came_to, _) => came_to.map(|()| said),
        }
    }

    /// The result of a launch that nobody stopped. `failed` has the failure that its answer reports.
    fn came_to(&self, called: &SingleCall, tool: &str, failed: Option<String>) -> Result<(), Abort> {
        match called {
            SingleCall::Denied(answer) | SingleCall::Refused(answer)
                if answer.envelope().status == EnvelopeStatus::Denied =>
            {
                let reason = answer.envelope().public_reason.clone().unwrap_or_default();
                if answer.asks_for_approval() {
                    let message = format!("The start of {} waits for an approval. {reason}", self.agent.name);
                    let technical = format!("\"{tool}\" denied: approval required");
                    return Err(Abort::new(
                        StopDetail::ApprovalPending,
                        "ToolCallPolicyDenied",
                        &message,
                        technical,
                    ));
                }
                let message = format!(
                    "The policy does not let {} start: {reason} A rule of kind \"tool\" for \"{}\" would allow it.",
                    self.agent.name, tool
                );
                Err(Abort::new(StopDetail::PolicyDenied, "ToolCallPolicyDenied", &message, message.clone()))
            }
            _ => match failed {
                None => Ok(()),
                Some(why) if error_type(called) == Some(POLICY_DENIED) => {
                    let why = why.trim_start_matches("(tool failed: ").trim_end_matches(')');
                    let message = self
                        .record
                        .redact(&format!("The policy refuses the work of {}: {why}.", self.agent.name));
                    Err(Abort::new(StopDetail::PolicyDenied, POLICY_DENIED, &message, why))
                }
                Some(why) => {
                    let why = why.trim_start_matches("(tool failed: ").trim_end_matches(')');
                    let message = format!("The agent program {} failed: {why}.", self.agent.name);
                    let message = self.record.redact(&message);
                    Err(Abort::new(StopDetail::AgentCliFailed, "AgentProgramFailed", &message, why))
                }
            },
        }
    }

    /// A place in what is spent of the caps that the run shares with others (D87). Nobody knows beforehand what a launch
    /// will cost. So agentd sets aside what it has cost so far, each time the program reports it, and ends the program
    /// when the money is used up.
    async fn open_share(&self) -> Result<Reservations, Abort> {
        let world = &self.world.0;
        let now = world.clock.now();
        let refused = world.caps.refusal(Money::from_micros(1).into(), now).await?;
        world.heed_caps().await?;
        match refused {
            Some(refused) => Err(refused.into()),
            None => Ok(world.caps.reserve(Money::ZERO, now).await?),
        }
    }

    /// The report: what the program gave through agentd's tool, else its structured output, else its last words.
    fn read(&mut self, said: &AgentOutput) -> Result<ModelReport, ReportProblem> {
        self.said.push(Message::Assistant {
            content: said.text.clone(),
            tool_calls: Vec::new(),
            reasoning: None,
        });
        if let Some(arguments) = &said.report {
            return self.shape.from_call(arguments, false);
        }
        let (answers, last) = said.answers(self.work.step.output_schema.is_some());
        let mut problem = None;
        for (at, words) in answers.iter().enumerate() {
            match self.report_of(words) {
                Ok(report) => return Ok(report),
                // What it is told is what is wrong with what it was last done with.
                Err(found) if at <= last => problem = Some(found),
                Err(_) => {}
            }
        }
        problem.map_or_else(|| self.shape.from_text(&said.text, false), Err)
    }

    /// The report in these words.
    fn report_of(&self, said: &Words) -> Result<ModelReport, ReportProblem> {
        if let Some(object) = &said.structured {
            let call = Map::from_iter([("content_json".to_owned(), Value::Object(object.clone()))]);
            return Ok(ModelReport { source: ReportSource::Text, ..self.shape.from_call(&call, false)? });
        }
        if let Ok(Value::Object(whole)) = serde_json::from_str(said.text.trim())
            && whole.contains_key("report_format")
        {
            return self.shape.from_call(&whole, false);
        }
        let structured = self.work.step.output_schema.is_some();
        if !structured && is_blank(&said.text) && !self.agent.asks_again {
            return self.shape.from_text(&format!("{} ended without a word.", self.agent.name), false);
        }
        self.shape.from_text(&said.text, false)
    }

    async fn close(
        mut self,
        ended: Result<ModelReport, Abort>,
        asked: String,
        include: bool,
    ) -> SessionOutcome {
        let world = &self.world.0;
        let (ts, format) = (world.clock.now_ms(), self.shape.format());
        let extraction = ended.as_ref().ok().and_then(|model| model.extraction);
        let (report, source, failure, said) = match ended {
            Ok(mut model) => {
                let (source, outcome, claims) =
                    (model.source, model.outcome, std::mem::take(&mut model.claims));
                (model.store(format, None, 0, ts), source, None, (outcome, claims))
            }
            Err(abort) => {
                let mut failure = abort.into_failure();
                failure.error_message = self.record.redact(&failure.error_message);
                let report = report::synthetic(format, &failure, &self.facts(&failure), None, ts);
                (report, ReportSource::Synthetic, Some(failure), (None, Vec::new()))
            }
        };
        let (report, leaked) = super::session_trace::cleaned(&self.record, report);
        let report = match source {
            ReportSource::Synthetic => report,
            _ => self.record.report_by_program(report).await,
        };
        let claims = super::session_trace::clean_claims(&self.record, &said.1).await;
        let asked = Message::User { content: asked };
        let messages: Messages = std::iter::once(asked).chain(std::mem::take(&mut self.said)).collect();
        let mut outcome = SessionOutcome {
            report,
            source,
            extraction,
            outcome: said.0,
            claims,
            failure,
            turns: self.turns.max(1),
            attempts: self.launches,
            forced_final: None,
            messages,
            conversation: None,
            usage: self.usage,
            cost: self.cost,
            cost_unknown: self.cost_unknown,
        };
        if let Err(abort) = self.close_record(&mut outcome, leaked, include).await
            && outcome.failure.is_none()
        {
            outcome.failure = Some(abort.into_failure());
        }
        outcome
    }

    async fn close_record(
        &self,
        outcome: &mut SessionOutcome,
        leaked: bool,
        include: bool,
    ) -> Result<(), Abort> {
        let ids = self.record.ids();
        outcome.capture(&self.record, TURN, leaked).await?;
        let mark = |asked: &Message| prompt_mark(&sha256_hex(asked.text().as_bytes()));
        let marks: Vec<String> = outcome.messages.iter().take(usize::from(!include)).map(mark).collect();
        outcome.conversation = Some(self.record.conversation(&outcome.messages, &marks).await?);
        self.record.note(Event::SessionClosed(Box::new(SessionClosed {
            fault: None,
            session: ids.session,
            visit: ids.visit,
            turns: outcome.turns,
            attempts: outcome.attempts,
            forced_final: None,
            failure: outcome.failure.clone(),
            conversation: outcome.conversation.clone(),
            exclusions: self.exclusions.clone(),
        })))
    }

    fn facts(&self, failure: &SessionFailure) -> SessionFacts {
        SessionFacts {
            step_id: self.work.step.id.clone(),
            visit: self.work.visit,
            turns: (self.turns, self.turns),
            attempts: self.launches,
            tools_run: self.launches,
            last_errors: vec![failure.error_name.clone()],
            program: Some(self.agent.name.clone()),
        }
    }
}

/// What went wrong in a launch, if anything did.
fn failure_of(called: &Result<SingleCall, Abort>) -> Option<String> {
    match called {
        Ok(SingleCall::Ran(answer)) if !succeeded(answer.envelope().data.as_ref()) => {
            Some(answer.text().to_owned())
        }
        Ok(SingleCall::Ran(_)) => None,
        Ok(other) => Some(other.answer().text().to_owned()),
        Err(abort) => Some(abort.failure().error_message.clone()),
    }
}

fn error_type(called: &SingleCall) -> Option<&str> {
    called.answer().envelope().data.as_ref()?.get("error_type")?.as_str()
}

fn succeeded(data: Option<&Value>) -> bool {
    data.and_then(|data| data.get("status")).and_then(Value::as_str) == Some("success")
}
