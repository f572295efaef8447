//! Blobs as objects named by their hash: the same bytes are kept once, and half an upload is never visible.

use std::io::Cursor;
use std::sync::Arc;

use async_nats::jetstream::object_store::{InfoErrorKind, ObjectStore};
use chrono::{DateTime, TimeDelta, Utc};

use super::shared::Shared;
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::causes::with_causes;
use crate::domain::cluster::names::StreamKind;
use crate::domain::run::RunId;
use crate::store::port::{Blobs, StoreError};

pub(super) struct NatsBlobs {
    shared: Arc<Shared>,
    run: RunId,
}

/// The same bytes of another run are this run's as well as long as they are younger: the stream forgets what is old, and a later run is
/// to have its files for as long as its journal.
const SHARED_FOR: TimeDelta = TimeDelta::days(1);

impl NatsBlobs {
    pub(super) fn new(shared: Arc<Shared>, run: RunId) -> Self {
        Self { shared, run }
    }

    /// The name of bytes that another run kept too long ago.
    fn own_name(&self, sha256: &str) -> String {
        format!("{sha256}.{}", self.run)
    }
}

async fn bucket(shared: &Shared) -> Result<ObjectStore, String> {
    let link = shared.connection.link();
    let bucket = shared.node.names.bucket();
    let api = format!("$JS.API.STREAM.INFO.OBJ_{bucket}");
    let opened = link.permitted(&api, link.context.get_object_store(&bucket)).await?;
    opened.map_err(|error| with_causes(&error))
}

/// Whether an object is there whole: its name is there only then.
async fn has(bucket: &ObjectStore, name: &str) -> Result<bool, String> {
    Ok(kept_at(bucket, name).await?.is_some())
}

/// Since when an object is there whole; `None` = it is not.
async fn kept_at(bucket: &ObjectStore, name: &str) -> Result<Option<DateTime<Utc>>, String> {
    match bucket.info(name).await {
        Ok(info) if info.deleted => Ok(None),
        Ok(info) => {
            let since = info.modified.and_then(|time| DateTime::from_timestamp(time.unix_timestamp(), 0));
            Ok(Some(since.unwrap_or_default()))
        }
        Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
        Err(error) => Err(with_causes(&error)),
    }
}

/// Since when bytes are there, of whatever run.
pub(super) async fn shared_since(shared: &Shared, name: &str) -> Result<Option<DateTime<Utc>>, String> {
    kept_at(&bucket(shared).await?, name).await
}

pub(super) async fn put(shared: &Shared, name: &str, bytes: Vec<u8>) -> Result<(), String> {
    let bucket = bucket(shared).await?;
    if has(&bucket, name).await? {
        return Ok(());
    }
    let link = shared.connection.link();
    let chunks = format!("$O.{}", shared.node.names.bucket());
    match link.permitted(&chunks, bucket.put(name, &mut Cursor::new(bytes))).await? {
        Ok(_) => Ok(()),
        // Another node may have put the same at the same time.
        Err(error) => match has(&bucket, name).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(with_causes(&error)),
        },
    }
}

/// An object's bytes, part by part. A consumer for each object, as a client's reader makes one, stays with the servers for half a minute,
/// and they refuse new ones after some three hundred.
pub(super) async fn get(shared: &Shared, name: &str) -> Result<Vec<u8>, String> {
    let info = bucket(shared).await?.info(name).await.map_err(|error| with_causes(&error))?;
    let (link, names) = (shared.connection.link(), &shared.node.names);
    let (stream, parts) = (names.stream(StreamKind::Blobs), format!("$O.{}.C.{}", names.bucket(), info.nuid));
    let (mut bytes, mut last) = (Vec::new(), 0);
    while bytes.len() < info.size {
        let Some(part) = link.next(&stream, &parts, last + 1).await? else {
            return Err(format!("of its {} bytes the store has {}", info.size, bytes.len()));
        };
        bytes.extend_from_slice(&part.payload);
        last = part.sequence;
    }
    Ok(bytes)
}

impl Blobs for NatsBlobs {
    fn put(&self, path: &str, bytes: &[u8]) -> Result<Artifact, StoreError> {
        let blob = Artifact { path: path.to_owned(), sha256: sha256_hex(bytes), bytes: bytes.len() as u64 };
        let (shared, name, bytes) = (Arc::clone(&self.shared), blob.sha256.clone(), bytes.to_vec());
        let (own, now) = (self.own_name(&name), self.shared.clock.now());
        let done = self.shared.connection.call(async move {
            match shared_since(&shared, &name).await? {
                None => put(&shared, &name, bytes).await,
                Some(since) if now - since < SHARED_FOR => Ok(()),
                Some(_) => put(&shared, &own, bytes).await,
            }
        })?;
        done.map_err(|words| StoreError::Failed { action: "keep", place: path.to_owned(), words })?;
        Ok(blob)
    }

    fn get(&self, blob: &Artifact) -> Result<Vec<u8>, StoreError> {
        let failed = |words: String| StoreError::Failed { action: "read", place: blob.path.clone(), words };
        let (shared, name) = (Arc::clone(&self.shared), blob.sha256.clone());
        let own = self.own_name(&name);
        let bytes = self.shared.connection.call(async move {
            match get(&shared, &name).await {
                Ok(bytes) => Ok(bytes),
                Err(words) => get(&shared, &own).await.map_err(|_| words),
            }
        })?;
        let bytes = bytes.map_err(failed)?;
        match sha256_hex(&bytes) == blob.sha256 {
            true => Ok(bytes),
            false => Err(failed("its content is not what was kept".to_owned())),
        }
    }

    /// What was put was acknowledged.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
