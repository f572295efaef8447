//! A small file of agentd's own that is changed often, each time with one wait for the disk or with none.
//!
//! To replace a file so that it outlives a loss of power takes two waits: one for the new content, one for its name. Here each
//! content goes into one of three places of a second file (`.slots`), which are there already, so that nothing but the bytes has to
//! reach the disk. Only then is the file itself written over, without waiting: for people, and for programs that know it alone.
//!
//! The slots are the truth as long as the file is the very one that they were made beside, by its inode and time of birth. Who replaces
//! the file, or edits it as a person does, makes it the truth again: then it is younger than the slots, says something else than the
//! newest of them, and is whole JSON, which half a write of agentd's own is not. That is asked in the boot that wrote the slots only:
//! after a loss of power a file may be young and say what it said long before. A content counts if its hash is right, and of those that count the one with the
//! highest number. What is known to be on the disk, and what readers read now, is never written over; so after a loss of power at any
//! moment the last content that was waited for is there, or a later one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::de::IgnoredAny;

use super::files::{self, FileError};
use super::host::this_boot;
use crate::domain::canonical::sha256_hex_of;

/// Bytes of a slot: whole blocks, so that none has parts of two.
const SLOT: usize = 8192;
/// As few as leave one free beside the one that is read and the one that is known to be on the disk.
const SLOTS: usize = 3;
/// The longest content.
pub const MOST: usize = SLOT - 256;
/// The first word of a slot.
const FORM: &str = "agentd.slot.v1";

/// A file and its slots, open for whoever changes it; the caller sees to it that this is one at a time.
#[derive(Debug)]
pub struct InPlace {
    path: PathBuf,
    slots: File,
    identity: Identity,
    found: [Option<Slot>; SLOTS],
}

/// Which file it is, also after it was renamed and another one got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    born: u128,
}

/// A content that is known to be on the disk, because somebody waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDisk {
    identity: Identity,
    number: u64,
}

/// What a slot says.
#[derive(Debug)]
struct Slot {
    number: u64,
    /// Whether this boot of the machine wrote it.
    of_this_boot: bool,
    content: String,
}

/// The content of a file that may be changed in place, read without keeping anybody from changing it; `None`: there is no such file.
///
/// # Errors
/// It is there and cannot be read.
pub fn read(path: &Path) -> Result<Option<String>, FileError> {
    let identity = || std::fs::metadata(path).ok().as_ref().and_then(Identity::of);
    loop {
        let before = identity();
        if let Some(content) = read_slots(path)? {
            return Ok(Some(content));
        }
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FileError::new("read", path, error)),
        };
        // Who makes slots meanwhile writes the file over next: then the text has parts of two contents, and the slots say one. Where
        // somebody replaces it after that, the new file's slots say nothing of the text.
        if let Some(content) = read_slots(path)? {
            return Ok(Some(content));
        }
        if identity() == before {
            return Ok(text);
        }
    }
}

/// The content by the slots, or by who edited the file since; `None`: it has no slots that count.
fn read_slots(path: &Path) -> Result<Option<String>, FileError> {
    let failed = |error| FileError::new("read", path, error);
    let Some(identity) = std::fs::metadata(path).ok().as_ref().and_then(Identity::of) else {
        return Ok(None);
    };
    let Some(mut slots) = there(File::open(beside(path))).map_err(failed)? else { return Ok(None) };
    let found = found(&mut slots, identity).map_err(failed)?;
    Ok(newest(&found).map(|newest| edited(path, &slots, newest).unwrap_or_else(|| newest.content.clone())))
}

impl InPlace {
    /// Opens a file with its slots; `None`: it has none that count.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, FileError> {
        let failed = |error| FileError::new("read", path, error);
        let Some(identity) = std::fs::metadata(path).ok().as_ref().and_then(Identity::of) else {
            return Ok(None);
        };
        let slots = OpenOptions::new().read(true).write(true).open(beside(path));
        let Some(mut slots) = there(slots).map_err(failed)? else { return Ok(None) };
        let found = found(&mut slots, identity).map_err(failed)?;
        let opened = Self { path: path.to_owned(), slots, identity, found };
        let counts =
            newest(&opened.found).is_some_and(|newest| edited(path, &opened.slots, newest).is_none());
        Ok(counts.then_some(opened))
    }

    /// Gives a file that is on the disk slots, with a new content of at most [`MOST`] bytes, and waits for them. `None`: this
    /// file system does not tell files apart well enough, and nothing was done.
    ///
    /// # Errors
    /// They cannot be written. What the file says is then as before, or the new content.
    pub fn make(path: &Path, content: &str) -> Result<Option<OnDisk>, FileError> {
        let failed = |error| FileError::new("read", path, error);
        let Some(identity) = Identity::of(&std::fs::metadata(path).map_err(failed)?) else { return Ok(None) };
        let mut slots = text_of(1, identity, content);
        // All of it is there, as zeros that are written: later on no room has to be found for anything.
        slots.resize(SLOT * SLOTS, 0);
        files::write_private(&beside(path), &slots)?;
        write_over(path, content)?;
        Ok(Some(OnDisk { identity, number: 1 }))
    }

    /// Makes the file say something else, of at most [`MOST`] bytes. `on_disk`: what the caller knows to be on the disk. `wait`: for
    /// the new content as well. Gives what is on the disk then.
    ///
    /// # Errors
    /// It cannot be written. What the file says is then as before, or the new content.
    pub fn write(&mut self, content: &str, on_disk: Option<OnDisk>, wait: bool) -> Result<OnDisk, FileError> {
        let read = newest(&self.found).map_or(0, |newest| newest.number);
        let is_there = |on_disk: &OnDisk| {
            let slots = self.found.iter().flatten();
            on_disk.identity == self.identity && slots.into_iter().any(|slot| slot.number == on_disk.number)
        };
        let kept = match on_disk.filter(is_there) {
            Some(kept) => kept,
            // What is read is another process's, which may have died before it waited.
            None => self.sync()?,
        };
        let keeps = |slot: &Option<Slot>| {
            slot.as_ref().is_some_and(|slot| [read, kept.number].contains(&slot.number))
        };
        let free = self.found.iter().position(|slot| !keeps(slot)).unwrap_or_default();
        let number = read + 1;
        let at = SeekFrom::Start((free * SLOT) as u64);
        let bytes = text_of(number, self.identity, content);
        let written = self.slots.seek(at).and_then(|_| self.slots.write_all(&bytes));
        written.map_err(|error| FileError::new("write", &beside(&self.path), error))?;
        self.found[free] = Some(Slot { number, of_this_boot: true, content: content.to_owned() });
        let on_disk = if wait { self.sync()? } else { kept };
        write_over(&self.path, content)?;
        Ok(on_disk)
    }

    /// Waits until what the file says is on the disk, unless that is what is known to be there.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn wait(&self, on_disk: OnDisk) -> Result<OnDisk, FileError> {
        if on_disk == self.newest() { Ok(on_disk) } else { self.sync() }
    }

    fn sync(&self) -> Result<OnDisk, FileError> {
        files::sync_content(&self.slots)
            .map_err(|error| FileError::new("sync", &beside(&self.path), error))?;
        Ok(self.newest())
    }

    fn newest(&self) -> OnDisk {
        OnDisk { identity: self.identity, number: newest(&self.found).map_or(0, |newest| newest.number) }
    }
}

/// Removes a file with its slots. False: it was not there.
///
/// # Errors
/// It is there and stays.
pub fn remove(path: &Path) -> Result<bool, FileError> {
    let removed = files::remove_file(path)?;
    files::remove_file(&beside(path))?;
    Ok(removed)
}

impl Identity {
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let born = meta.created().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        (meta.is_file() && born > 0).then(|| Self { inode: meta.ino(), born })
    }

    #[cfg(not(unix))]
    fn of(_meta: &Metadata) -> Option<Self> {
        None
    }
}

/// A file that was opened; `None`: there is none.
fn there(opened: io::Result<File>) -> io::Result<Option<File>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("slots")
}

fn newest(found: &[Option<Slot>; SLOTS]) -> Option<&Slot> {
    found.iter().flatten().max_by_key(|slot| slot.number)
}

/// A slot as it is written: one line with the hash of all the rest, and the content.
fn text_of(number: u64, identity: Identity, content: &str) -> Vec<u8> {
    text_of_boot((number, this_boot()), identity, content)
}

fn text_of_boot((number, boot): (u64, &str), Identity { inode, born }: Identity, content: &str) -> Vec<u8> {
    let said = format!("{number} {inode} {born} {} {boot}", content.len());
    let hash = sha256_hex_of(&[said.as_bytes(), b"\n", content.as_bytes()]);
    format!("{FORM} {hash} {said}\n{content}").into_bytes()
}

/// What the slots say that were made beside this file.
fn found(slots: &mut File, identity: Identity) -> io::Result<[Option<Slot>; SLOTS]> {
    let mut bytes = Vec::with_capacity(SLOT * SLOTS);
    slots.seek(SeekFrom::Start(0))?;
    slots.take((SLOT * SLOTS) as u64).read_to_end(&mut bytes)?;
    let mut slots = bytes.chunks(SLOT).map(|bytes| slot_of(bytes, identity));
    Ok(std::array::from_fn(|_| slots.next().flatten()))
}

/// A slot that is whole, and of this file.
fn slot_of(bytes: &[u8], identity: Identity) -> Option<Slot> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut words = line.split(' ').skip(2);
    let number: u64 = words.next()?.parse().ok()?;
    let length: usize = words.nth(2)?.parse().ok()?;
    let boot = words.next()?;
    let content = std::str::from_utf8(bytes.get(end + 1..)?.get(..length)?).ok()?;
    let written = text_of_boot((number, boot), identity, content);
    let of_this_boot = boot == this_boot() && !boot.is_empty();
    (bytes.get(..written.len()) == Some(written.as_slice())).then(|| Slot {
        number,
        of_this_boot,
        content: content.to_owned(),
    })
}

/// What somebody wrote into the file since its slots were written; `None`: nothing, or half of it is missing.
fn edited(path: &Path, slots: &File, newest: &Slot) -> Option<String> {
    if !newest.of_this_boot {
        return None;
    }
    let changed = |meta: io::Result<Metadata>| meta.and_then(|meta| meta.modified()).ok();
    if changed(std::fs::metadata(path)) <= changed(slots.metadata()) {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    (text != newest.content && serde_json::from_str::<IgnoredAny>(&text).is_ok()).then_some(text)
}

fn write_over(path: &Path, content: &str) -> Result<(), FileError> {
    let opened = OpenOptions::new().write(true).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        file.set_len(content.len() as u64)
    });
    written.map_err(|error| FileError::new("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that says `first` in its slots, which is on the disk.
    fn file(first: &str) -> (tempfile::TempDir, PathBuf, OnDisk) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.json");
        files::write_private(&path, b"before").unwrap();
        let on_disk = InPlace::make(&path, first).unwrap().unwrap();
        (folder, path, on_disk)
    }

    fn said(path: &Path) -> String {
        read(path).unwrap().unwrap()
    }

    fn write(path: &Path, content: &str, on_disk: Option<OnDisk>, wait: bool) -> OnDisk {
        InPlace::open(path).unwrap().unwrap().write(content, on_disk, wait).unwrap()
    }

    /// Writes something at a place of a file, as a disk does that loses its power.
    fn damage(path: &Path, at: usize, bytes: &[u8]) {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn a_change_is_one_wait_and_the_file_says_it_as_well() {
        let (_folder, path, on_disk) = file("one");
        let identity = || Identity::of(&std::fs::metadata(&path).unwrap());
        let before = identity();
        let mut on_disk = Some(on_disk);
        for content in ["a longer one", "two", ""] {
            let waits = files::waits();
            on_disk = Some(write(&path, content, on_disk, true));
            assert_eq!(files::waits() - waits, 1, "{content}");
            assert_eq!(
                (said(&path).as_str(), std::fs::read_to_string(&path).unwrap().as_str()),
                (content, content)
            );
        }
        assert_eq!((on_disk.unwrap().number, identity()), (4, before));
        let waits = files::waits();
        write(&path, "for now", on_disk, false);
        assert_eq!((files::waits() - waits, said(&path).as_str()), (0, "for now"));
        // Another process does not know what was waited for.
        write(&path, "another's", None, true);
        assert_eq!(files::waits() - waits, 2);
    }

    #[test]
    fn a_loss_of_power_while_a_slot_is_written_leaves_what_was_waited_for_or_the_new_one() {
        let (_folder, path, on_disk) = file("first");
        let slots = path.with_extension("slots");
        let on_disk = write(&path, "waited for", Some(on_disk), true);
        let before = std::fs::read(&slots).unwrap();
        // Each of these may be lost, or be there in part, in any order.
        write(&path, "for now 1", Some(on_disk), false);
        write(&path, "for now 2", Some(on_disk), false);
        write(&path, "for now 3", Some(on_disk), true);
        let after = std::fs::read(&slots).unwrap();
        damage(&path, 0, b"torn");
        let changed: Vec<usize> = (0..after.len()).filter(|at| before[*at] != after[*at]).collect();
        assert!(changed.len() > 100 && changed.iter().any(|at| at / SLOT != changed[0] / SLOT), "two slots");
        for cut in 0..=changed.len() {
            for reached in [&changed[..cut], &changed[cut..]] {
                let mut torn = before.clone();
                reached.iter().for_each(|at| torn[*at] = after[*at]);
                damage(&slots, 0, &torn);
                let now = said(&path);
                assert!(["waited for", "for now 2", "for now 3"].contains(&now.as_str()), "{cut}: {now}");
                let next = write(&path, "next", None, true);
                assert!(next.number > on_disk.number && said(&path) == "next", "and it goes on");
                damage(&path, 0, b"torn");
            }
        }
        damage(&slots, 0, &after);
        assert_eq!(said(&path), "for now 3");
    }

    #[test]
    fn what_was_waited_for_is_not_written_over_by_what_was_not() {
        let (_folder, path, on_disk) = file("waited for");
        let slots = path.with_extension("slots");
        let place = |content: &str| {
            let bytes = std::fs::read(&slots).unwrap();
            bytes.windows(content.len()).position(|part| part == content.as_bytes()).map(|at| at / SLOT)
        };
        let kept = place("waited for");
        for turn in 0..7 {
            let before = said(&path);
            assert_eq!(write(&path, &format!("for now {turn}"), Some(on_disk), false), on_disk);
            assert_eq!(place("waited for"), kept);
            assert!(place(&before).is_some(), "a reader may be reading it");
        }
        let opened = InPlace::open(&path).unwrap().unwrap();
        assert_eq!((opened.wait(on_disk).unwrap().number, said(&path)), (8, "for now 6".to_owned()));
    }

    /// Writes a file anew under its name, as an editor does.
    fn edit(path: &Path, bytes: &[u8]) {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn who_edits_the_file_has_the_last_word_unless_half_of_it_is_missing() {
        let (_folder, path, on_disk) = file("1");
        let on_disk = write(&path, "2", Some(on_disk), true);
        // The clock of a file system goes by steps.
        let edited = |text: &str| {
            let slots = || std::fs::metadata(path.with_extension("slots")).unwrap().modified().unwrap();
            while std::fs::metadata(&path).unwrap().modified().unwrap() <= slots() {
                edit(&path, text.as_bytes());
            }
            edit(&path, text.as_bytes());
        };
        edited("[3, ");
        assert_eq!(said(&path), "2");
        assert!(InPlace::open(&path).unwrap().is_some());
        edited("[3]");
        assert_eq!(said(&path), "[3]");
        // After a loss of power the file may be young, and say what it said before the slots did.
        let identity = Identity::of(&std::fs::metadata(&path).unwrap()).unwrap();
        let slots = path.with_extension("slots");
        let now = std::fs::read(&slots).unwrap();
        edit(&slots, &text_of_boot((2, "another-boot"), identity, "2"));
        edited("[3]");
        assert_eq!(said(&path), "2");
        edit(&slots, &now);
        edited("[3]");
        assert!(InPlace::open(&path).unwrap().is_none());
        assert!(InPlace::make(&path, "4").unwrap().is_some_and(|made| made != on_disk));
        assert_eq!(said(&path), "4");
    }

    #[test]
    fn who_replaces_the_file_has_the_last_word() {
        let (folder, path, on_disk) = file("one");
        files::write_private(&path, b"an older agentd's").unwrap();
        assert_eq!(said(&path), "an older agentd's");
        assert!(InPlace::open(&path).unwrap().is_none());
        assert!(InPlace::make(&path, "two").unwrap().is_some_and(|made| made != on_disk));
        assert_eq!(said(&path), "two");
        // What was known of the file before says nothing of this one.
        let waits = files::waits();
        write(&path, "two", Some(on_disk), true);
        assert_eq!(files::waits() - waits, 2);
        // A copy of all of it is another file.
        let copy = folder.path().join("8.json");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::copy(path.with_extension("slots"), copy.with_extension("slots")).unwrap();
        write(&path, "three", None, true);
        assert_eq!((said(&copy), said(&path)), ("two".to_owned(), "three".to_owned()));
        assert!(remove(&path).unwrap() && !remove(&path).unwrap());
        assert_eq!(read(&path).unwrap(), None);
        assert!(!path.with_extension("slots").exists());
    }

    #[test]
    fn who_reads_while_it_is_made_and_written_over_sees_one_content_and_never_parts_of_two() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.json");
        let content = |turn: usize| format!("[{turn}, \"{}\"]", "x".repeat(turn % 3 * 2000));
        files::write_private(&path, content(0).as_bytes()).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                        let said = said(&path);
                        assert!(serde_json::from_str::<IgnoredAny>(&said).is_ok(), "{said}");
                    }
                });
            }
            scope.spawn(|| {
                for turn in (1..2000).step_by(4) {
                    files::write_private(&path, content(turn).as_bytes()).unwrap();
                    let mut on_disk = InPlace::make(&path, &content(turn + 1)).unwrap();
                    for turn in turn + 2..turn + 4 {
                        on_disk = Some(write(&path, &content(turn), on_disk, false));
                    }
                }
                ended.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        });
    }
}
