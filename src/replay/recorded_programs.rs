//! The record as the place where the programs of a definition run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::recorded_run::{RecordedRun, ReplayMode};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::ProgramRan;
use crate::engine::recorded_programs;

/// By visit and program, in their order.
type Ended = BTreeMap<(u32, String), VecDeque<ProgramRan>>;

/// How the programs of a run ended.
#[derive(Debug, Default)]
pub(super) struct RecordedPrograms {
    /// `None` = the run is of a version that did not record them; they run again then.
    ended: Option<Mutex<Ended>>,
    run: AtomicU64,
}

impl RecordedPrograms {
    pub(super) fn new(recorded: impl Iterator<Item = ProgramRan>) -> Self {
        let mut ended = Ended::new();
        for ran in recorded {
            ended.entry((ran.visit, ran.program.clone())).or_default().push_back(ran);
        }
        Self { ended: (!ended.is_empty()).then(|| Mutex::new(ended)), run: AtomicU64::new(0) }
    }

    pub(super) fn run(&self) -> u64 {
        self.run.load(Ordering::Relaxed)
    }

    fn next(&self, visit: u32, program: &str) -> Option<ProgramRan> {
        let mut ended = self.ended.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_mut(&(visit, program.to_owned()))?.pop_front()
    }
}

/// See [`RecordedRun::programs`].
pub(super) struct RecordedPlace(pub(super) Arc<RecordedRun>);

impl std::fmt::Debug for RecordedPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordedPlace")
    }
}

impl recorded_programs::RecordedPrograms for RecordedPlace {
    fn ran<'a>(&'a self, visit: u32, program: &'a str) -> BoxFuture<'a, Result<Option<ProgramRan>, Stop>> {
        async move {
            let (recorded_run, mode) = (&self.0, self.0.mode());
            let programs = recorded_run.recorded_programs();
            let known = (mode != ReplayMode::Live).then(|| programs.next(visit, program)).flatten();
            let lacks = match known {
                Some(known) if !known.too_long => return Ok(Some(known)),
                Some(_) => "what a program put out in visit {visit}: it was too long to be recorded",
                None => "a further run of the program {program} in visit {visit}",
            };
            if mode == ReplayMode::Strict && programs.ended.is_some() {
                recorded_run.end_as_recorded().await;
                let what = lacks.replace("{visit}", &visit.to_string()).replace("{program}", program);
                let what = recorded_run.lacks(format!("the record lacks {what}"));
                return Err(Stop::new(StopDetail::Internal, what));
            }
            programs.run.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
        .boxed()
    }
}
