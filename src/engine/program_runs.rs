//! Programs of a definition as the flow runs them: what they leave behind is recorded, and a replay takes it from the record.

use std::time::Duration;

use serde_json::json;

use super::not_done::NotDone;
use super::session_trace::WITHHELD;
use super::visit::{FlowPlan, FlowWorld};
use super::workplace::{Program, Ran, Workplace};
use crate::domain::canonical::sha256_hex;
use crate::domain::check_output::CheckOutput;
use crate::domain::event::Event;
use crate::domain::stop::Stop;
use crate::domain::trace::ProgramRan;

/// The bytes that an output may take in the journal.
const LONGEST: usize = 128 * 1024;

impl FlowWorld {
    /// Runs a program of a visit to its end, or takes from the record how it ended. Where it is not done, the run was stopped meanwhile.
    pub(super) async fn ran(
        &self,
        plan: &FlowPlan,
        visit: u32,
        program: Program<'_>,
    ) -> Result<Ran, NotDone<Stop>> {
        let key = key(&plan.workplace, &program);
        let recorded = match &plan.workplace.recorded {
            Some(recorded) => recorded.ran(visit, &key).await?,
            None => None,
        };
        let Some(kept) = recorded else {
            let ran = plan.workplace.run(program, &self.interrupts()).await?;
            let kept = self.kept((visit, key), &ran);
            self.record(Event::ProgramRan(Box::new(kept)))?;
            return Ok(ran);
        };
        let ran = Ran {
            output: CheckOutput {
                stdout: kept.stdout.clone(),
                stderr: kept.stderr.clone(),
                exit_code: kept.exit_code,
                expected_path: None,
            },
            end: kept.end.clone(),
            could_not_run: kept.could_not_run,
            duration: Duration::from_millis(kept.duration_ms),
        };
        self.record(Event::ProgramRan(Box::new(kept)))?;
        Ok(ran)
    }

    fn kept(&self, (visit, program): (u32, String), ran: &Ran) -> ProgramRan {
        let told = |text: &str| match self.0.redactor.redact(text) {
            Ok(text) => text.into_owned(),
            Err(_) => WITHHELD.to_owned(),
        };
        let mut kept = ProgramRan {
            visit,
            program,
            stdout: told(&ran.output.stdout),
            stderr: told(&ran.output.stderr),
            exit_code: ran.output.exit_code,
            end: ran.end.clone(),
            could_not_run: ran.could_not_run,
            duration_ms: u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
            too_long: false,
        };
        // Control characters take six bytes there.
        let takes = |text: &str| serde_json::to_string(text).map_or(usize::MAX, |json| json.len());
        if takes(&kept.stdout) > LONGEST || takes(&kept.stderr) > LONGEST {
            (kept.stdout, kept.stderr, kept.too_long) = (String::new(), String::new(), true);
        }
        kept
    }
}

/// Which program it is, wherever the worktree and the agent's folder are.
fn key(workplace: &Workplace, program: &Program<'_>) -> String {
    let root = workplace.root.path().display().to_string();
    let folder = workplace.agent_folder.display().to_string();
    let placed = |text: &str| text.replace(&root, "<worktree>").replace(&folder, "<agent>");
    let args: Vec<String> = program.args.iter().map(|arg| placed(arg)).collect();
    let what = json!({
        "program": placed(&program.program.to_string_lossy()),
        "args": args,
        "stdin": sha256_hex(&program.stdin),
        "published": program.git_dir.is_some(),
    });
    sha256_hex(what.to_string().as_bytes())
}
