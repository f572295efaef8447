//! What every handler of the simulator sees: the world behind its lock, and where its repositories lie.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::world::World;

/// What every handler sees.
#[derive(Debug)]
pub struct Shared {
    world: Mutex<World>,
    /// Where bare repositories and git's home lie.
    pub work_dir: PathBuf,
    /// `PATH` that git is looked up in.
    pub path: OsString,
    /// `git http-backend`, once it was looked for.
    pub backend: OnceCell<PathBuf>,
    abilities: Mutex<HashMap<PathBuf, Abilities>>,
}

/// What git says that it can do with a repository: headers and body.
type Abilities = (HeaderMap, Bytes);

impl Shared {
    /// Puts a world behind its lock.
    pub fn new(world: World, work_dir: PathBuf, path: OsString) -> Self {
        Self {
            world: Mutex::new(world),
            work_dir,
            path,
            backend: OnceCell::new(),
            abilities: Mutex::default(),
        }
    }

    /// What git said that it can do, by repository.
    pub fn abilities(&self) -> MutexGuard<'_, HashMap<PathBuf, Abilities>> {
        self.abilities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world. A handler that panicked leaves it as it is: tests want to look at it then, too.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response with one body.
pub fn plain_response(status: u16, content_type: &str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    if !content_type.is_empty() {
        response = response.header("content-type", content_type);
    }
    response.body(Body::from(body)).unwrap_or_default()
}
