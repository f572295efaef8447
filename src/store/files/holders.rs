//! Leases as files that the kernel holds locked for as long as their process lives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::FileStore;
use crate::domain::name::RepoName;
use crate::store::port::{HeldLease, Holders, LeaseKey, LeaseNotTaken, StoreError};
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::holder_format::{Holder, LeaseRecord, Liveness};
use crate::sys::lock::{self, Lock, LockError};

#[derive(Debug)]
struct Locked {
    lock: Lock,
    clock: Clock,
}

impl FileStore {
    fn lease_file(&self, lease: &LeaseKey) -> PathBuf {
        match lease {
            LeaseKey::Issue { file, .. } => file.clone(),
            LeaseKey::Daemon => self.root.join("daemon/lock"),
            LeaseKey::Poller(repo) => self.repo(repo).join("poller"),
        }
    }
}

fn expiry(clock: &Clock, lasts: Duration) -> DateTime<Utc> {
    clock.now() + TimeDelta::from_std(lasts).unwrap_or(TimeDelta::days(365))
}

impl Holders for FileStore {
    fn take(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let path = self.lease_file(lease);
        if let (LeaseKey::Daemon | LeaseKey::Poller(_), Some(folder)) = (lease, path.parent()) {
            files::create_private_dir(folder).map_err(StoreError::from)?;
        }
        let holder = Holder::here(&self.host, instance, self.clock.now(), expiry(&self.clock, lasts));
        match Lock::try_acquire(&path, holder, &self.host, self.clock.now()) {
            Ok(lock) => Ok(Box::new(Locked { lock, clock: self.clock.clone() })),
            Err(LockError::Busy(holder)) => Err(LeaseNotTaken::Busy(holder)),
            Err(LockError::File(error)) => Err(LeaseNotTaken::Store(error.into())),
        }
    }

    fn look(&self, lease: &LeaseKey) -> Option<LeaseRecord> {
        lock::look(&self.lease_file(lease), &self.host, self.clock.now())
    }

    fn leases(&self, repo: &RepoName, folder: &Path) -> Vec<LeaseKey> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path());
        let leases = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        leases.map(|file| LeaseKey::Issue { repo: repo.clone(), file }).collect()
    }

    fn lives(&self, holder: &Holder) -> bool {
        holder.liveness(&self.host, self.clock.now()) != Liveness::Dead
    }
}

impl HeldLease for Locked {
    fn holder(&self) -> Option<&Holder> {
        self.lock.holder()
    }

    fn record(&self) -> Option<&Value> {
        self.lock.record()
    }

    fn set_record(&mut self, record: Value) -> Result<(), StoreError> {
        Ok(self.lock.set_record(record)?)
    }

    fn renew(&mut self, lasts: Duration) -> Result<(), StoreError> {
        Ok(self.lock.renew(expiry(&self.clock, lasts))?)
    }

    fn release(self: Box<Self>) -> Result<(), StoreError> {
        Ok(self.lock.release()?)
    }
}
