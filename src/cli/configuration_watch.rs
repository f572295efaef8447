//! Where a daemon listens for changes of its configuration, its definitions and its policies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::context::Context;
use crate::repository::context::RepositoryContext;
use crate::sys::file_watch::{self, FileWatch, Place};

/// Folders that are listened to, and files in them that matter whatever their names are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Places {
    folders: BTreeSet<Place>,
    files: BTreeSet<PathBuf>,
}

/// Listens for as long as it lives. What it listens to follows the configuration, and folders that are replaced.
pub struct ConfigurationWatch {
    context: Context,
    changed: Arc<Notify>,
    listens: Mutex<(Places, Option<FileWatch>)>,
}

impl ConfigurationWatch {
    /// Nothing is listened to yet. `changed` is notified of each change.
    pub fn new(context: &Context, changed: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), changed, listens: Mutex::default() })
    }

    /// Listens to the same places again: a folder that was removed and is there again is another one for the system. Called before
    /// what stands there is read, so that no change falls in between.
    pub fn renew(&self) {
        let places = self.listens.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        self.listen(places);
    }

    /// Listens to where the configuration of these repositories stands. Where that is elsewhere than before, it is to be read once
    /// more: nobody listened there while it was read.
    pub fn follow(&self, sites: &[RepositoryContext]) {
        let places = self.places(sites);
        let before = self.listens.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        if places == before {
            return;
        }
        self.listen(places);
        if before != Places::default() {
            self.changed.notify_one();
        }
    }

    fn places(&self, sites: &[RepositoryContext]) -> Places {
        let mut places = Places::default();
        for site in sites.iter().filter(|site| !site.managed) {
            let root = site.checkout.root().as_path().to_owned();
            places.files.extend(site.config.policy.files.iter().map(|file| root.join(file)));
            places.files.extend(site.config.layers().map(Path::to_owned));
            places.folders.insert(Place { dir: root.join(".agent"), deep: true });
            places.folders.insert(Place { dir: root, deep: false });
        }
        let named = self.context.global.config.iter();
        places.files.extend(named.map(|file| self.context.env.working_dir().join(file)));
        let around = places.files.iter().filter_map(|file| file.parent());
        places.folders.extend(around.map(|dir| Place { dir: dir.to_owned(), deep: false }));
        places
    }

    /// If it fails, the daemon goes on and says so.
    fn listen(&self, places: Places) {
        let files = places.files.clone();
        let concerns = move |path: &Path| {
            let named = path.file_name().is_some_and(|name| name == "agentd.toml" || name == ".agentd.env");
            named || files.contains(path) || path.components().any(|part| part.as_os_str() == ".agent")
        };
        let watch = match file_watch::watch(places.folders.clone(), concerns, Arc::clone(&self.changed)) {
            Ok(watch) => Some(watch),
            Err(error) => {
                self.context
                    .output
                    .note(format!("changes of the configuration will need a restart: {error}"));
                None
            }
        };
        *self.listens.lock().unwrap_or_else(PoisonError::into_inner) = (places, watch);
    }
}
