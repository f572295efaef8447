//! Watches files for changes with the means of the operating system, without polling.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct FileWatch {
    _watcher: RecommendedWatcher,
}

/// A directory to watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Where.
    pub dir: PathBuf,
    /// With everything below it.
    pub deep: bool,
}

/// Notifies `changed` when something that `concerns` says matters is made, changed or removed in the places. A place that is
/// not there is left out.
pub fn watch(
    places: impl IntoIterator<Item = Place>,
    concerns: impl Fn(&Path) -> bool + Send + 'static,
    changed: Arc<Notify>,
) -> Result<FileWatch, notify::Error> {
    let heard = move |event: notify::Result<notify::Event>| {
        let matters = match event {
            Ok(event) => {
                !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(|path| concerns(path))
            }
            // Something was missed: looking once too often is harmless.
            Err(_) => true,
        };
        if matters {
            changed.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(heard)?;
    for place in places.into_iter().filter(|place| place.dir.is_dir()) {
        let mode = if place.deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        watcher.watch(&place.dir, mode)?;
    }
    Ok(FileWatch { _watcher: watcher })
}
