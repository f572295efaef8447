//! How the servers are for this node: their clock, the room of their streams, and how long they take.

use super::shared::NatsStore;
use crate::domain::cluster::names::StreamKind;
use crate::store::port::{Servers, StoreError};

/// The longest line of a journal: where a stream has less room than that, a run that begins may not come far.
const LONGEST_LINE: u64 = 1024 * 1024;
/// The streams that a run cannot begin without.
const NEEDED: [StreamKind; 3] = [StreamKind::Log, StreamKind::Cells, StreamKind::Blobs];

impl NatsStore {
    pub(super) fn health(&self) -> Result<Option<Servers>, StoreError> {
        let Some((time, under_way)) = self.servers_time()? else { return Ok(None) };
        let slow = self.shared.flushes.slow();
        let session = self.session();
        let later_form = session.as_ref().and_then(|session| session.later_form());
        let begun_anew = session.and_then(|session| session.begun_anew());
        Ok(Some(Servers { time: Some(time), under_way, full: self.full()?, slow, later_form, begun_anew }))
    }

    fn full(&self) -> Result<Option<String>, StoreError> {
        for kind in NEEDED {
            let Some(stream) = self.stream(kind)? else { continue };
            let Ok(most) = u64::try_from(stream.config.max_bytes) else { continue };
            let left = most.saturating_sub(stream.state.bytes);
            if most > 0 && left < LONGEST_LINE {
                let name = self.names().stream(kind);
                return Ok(Some(format!(
                    "the stream {name} may have {most} bytes and has room for {left} more"
                )));
            }
        }
        Ok(None)
    }
}
