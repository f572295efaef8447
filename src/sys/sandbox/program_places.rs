//! What of the machine a program needs beside the system: its own file, the folder around it where that is harmless, and
//! the folders of the `PATH`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::secrets::credentials_below;
use super::walls::{SYSTEM, Walls};
use crate::sys::process::ProcessSpec;

/// Variables that name folders of tools.
const TOOL_FOLDERS: [&str; 2] = ["CARGO_HOME", "RUSTUP_HOME"];
/// Folders that belong to no single program.
const SHARED: [&str; 12] = [
    "/home", "/root", "/tmp", "/var/tmp", "/var/lib", "/srv", "/mnt", "/media", "/run", "/dev/shm", "/proc",
    "/sys",
];
/// What stands in homes, whoever's: a folder that has one, or is one, is no program's own.
const OF_HOMES: [&str; 10] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".config",
    ".netrc",
    ".git-credentials",
    ".password-store",
];
/// Longest first line of a script that is read.
const LONGEST_LINE: u64 = 512;

/// What is shown of the machine for one program.
#[derive(Debug, Default)]
pub(super) struct ProgramPlaces {
    /// Folders and files, readable.
    pub(super) shown: Vec<PathBuf>,
    /// `(target, link)`: links whose folder is not shown.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Credentials in the folders of a program that was named by its path.
    pub(super) hidden: Vec<PathBuf>,
}

impl ProgramPlaces {
    /// For `program`, with the folders of its `PATH`. A program that a model names by a path shows nothing, and one in a
    /// folder that may be written neither: a link there may lead anywhere.
    pub(super) fn of(spec: &ProcessSpec, path: Option<&OsStr>, program: &Path, walls: &Walls) -> Self {
        let mut found = Self::default();
        for name in TOOL_FOLDERS {
            if let Some(folder) = variable(spec, name).map(PathBuf::from)
                && !holds_private(&folder, walls)
            {
                found.show(folder);
            }
        }
        for entry in path.map(std::env::split_paths).into_iter().flatten() {
            found.add_folder(&entry, walls);
        }
        let by_path = spec.program.components().count() > 1;
        let writable = walls.writable.iter().any(|place| program.starts_with(place.as_path()));
        if writable || (by_path && !walls.shows_named) {
            return found;
        }
        let before = found.shown.len();
        found.add_program(program, walls, by_path);
        if walls.shows_named
            && let Some(interpreter) = interpreter(program)
        {
            found.add_program(&interpreter, walls, true);
        }
        if by_path {
            found.hidden = found.shown[before..].iter().flat_map(|place| credentials_below(place)).collect();
        }
        found
    }

    /// The program's file, what a link leads to, and their folders where these are its own.
    fn add_program(&mut self, program: &Path, walls: &Walls, by_path: bool) {
        let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        for place in [program, &real] {
            if let Some(folder) = place.parent()
                && !(by_path && holds_repositories(folder))
            {
                self.add_folder(folder, walls);
            }
            // A node package needs the folder of packages around it.
            let packages =
                place.ancestors().find(|above| above.file_name() == Some(OsStr::new("node_modules")));
            if let Some(packages) = packages {
                self.add_folder(packages, walls);
            }
        }
        if !self.is_shown(&real, walls) {
            self.show(real.clone());
        }
        if real != program && !self.is_shown(program, walls) {
            self.links.push((real, program.to_owned()));
        }
    }

    /// A folder of programs, and its neighbours if it belongs to the tree of a tool (`bin` beside `lib`).
    fn add_folder(&mut self, folder: &Path, walls: &Walls) {
        if folder.file_name() == Some(OsStr::new("bin"))
            && let Some(tree) = folder.parent()
            && tree.join("lib").is_dir()
            && tree.file_name() != Some(OsStr::new(".local"))
            && is_harmless(tree, walls)
        {
            self.show(tree.to_owned());
        }
        if is_harmless(folder, walls) {
            self.show(folder.to_owned());
        }
    }

    fn show(&mut self, place: PathBuf) {
        if place.is_absolute() && !of_the_system(&place) && !self.shown.contains(&place) {
            self.shown.push(place);
        }
    }

    fn is_shown(&self, file: &Path, walls: &Walls) -> bool {
        let named =
            walls.readable.iter().chain(&walls.writable).any(|place| file.starts_with(place.as_path()));
        named || of_the_system(file) || self.shown.iter().any(|place| file.starts_with(place))
    }
}

/// The value of a variable of a program.
pub(super) fn variable(spec: &ProcessSpec, name: &str) -> Option<OsString> {
    spec.env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn of_the_system(place: &Path) -> bool {
    SYSTEM.iter().any(|known| place.starts_with(known))
}

/// Whether a folder that nobody named may be shown, by its name and by what it is.
fn is_harmless(folder: &Path, walls: &Walls) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    [folder, &real].into_iter().all(|folder| {
        let of_homes = || OF_HOMES.iter().any(|name| folder.join(name).exists());
        let is_one =
            folder.file_name().is_some_and(|own| OF_HOMES.iter().any(|name| own == OsStr::new(name)));
        let closed = walls.closed.iter().any(|place| folder.starts_with(place.as_path()));
        !holds_private(folder, walls) && !of_homes() && !is_one && !closed
    })
}

/// Whether it is a private place or lies around one.
fn holds_private(folder: &Path, walls: &Walls) -> bool {
    let private = walls.private.iter().chain(&walls.closed).map(|place| place.as_path());
    private.chain(SHARED.iter().map(Path::new)).any(|place| place.starts_with(folder))
}

/// Whether there are repositories side by side.
fn holds_repositories(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join(".git").exists())
}

/// What a script is started with, by its first line.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    let is_file = program.metadata().is_ok_and(|meta| meta.is_file());
    File::open(program).ok().filter(|_| is_file)?.take(LONGEST_LINE).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    Some(PathBuf::from(word)).filter(|place| place.is_absolute() && place.is_file() && !of_the_system(place))
}
