//! The last steps before a command. agentd's own program starts inside the sandbox, sets limits and restrictions,
//! connects the proxy, and becomes the command. It has one thread and no secrets.

use std::ffi::{CString, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::order_format::{FILTER_NUMBER, Limits, Network, Order, WORD};
use super::{filter, group, landlock, relay};

/// Exit codes by which shells say that a command could not be run.
const NOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

static OWN: OnceLock<PathBuf> = OnceLock::new();

/// For the first line of `main`. It becomes the command if it was started for that; else it remembers the path of the
/// program. A process that never calls this has sandboxes without limits and without a proxy.
pub fn enter_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|word| word == WORD) {
        let (code, why) = enter(args);
        // Nothing else is open yet. Whoever started the command reads this.
        let _ = writeln!(io::stderr(), "agentd: {why}");
        std::process::exit(code);
    }
    if let Ok(own) = std::env::current_exe() {
        let _set_once = OWN.set(own);
    }
}

/// Where agentd's own program is, if it still is there.
pub(super) fn own_program() -> Option<PathBuf> {
    OWN.get().filter(|own| own.is_file()).cloned()
}

/// Returns only an error. Otherwise this process has become the command.
fn enter(mut args: impl Iterator<Item = OsString>) -> (i32, String) {
    let order = args.next().and_then(|text| Order::parse(text.to_str()?));
    let (Some(order), Some(program)) = (order, args.next()) else {
        return (NOT_RUN, format!("{WORD} is for agentd's own use"));
    };
    if let Err((what, error)) = prepare(&order) {
        return (NOT_RUN, format!("the sandbox cannot be closed: {what}: {error}"));
    }
    let words = std::iter::once(program.clone()).chain(args);
    let words: Result<Vec<CString>, _> = words.map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return (NOT_RUN, "an argument holds a NUL character".to_owned()) };
    let Err(error) = nix::unistd::execv(&words[0], &words);
    let code = if error == nix::errno::Errno::ENOENT { NOT_FOUND } else { NOT_RUN };
    (code, format!("{} cannot be run: {}", Path::new(&program).display(), error.desc()))
}

type Failed = (&'static str, io::Error);

fn prepare(order: &Order) -> Result<(), Failed> {
    if let Some(group) = &order.group {
        group::join(group).map_err(|error| ("its control group", error))?;
    }
    let named = |what| move |error: io::Error| (what, error);
    if order.outside {
        return if filter::is_known() {
            filter::hand_over(FILTER_NUMBER).map_err(named("the filter of system calls"))
        } else {
            Ok(())
        };
    }
    let mut own_namespaces = true;
    if let Some(walls) = &order.walls {
        let wanted = walls.network != Network::Shared;
        match landlock::own_namespaces(wanted, &walls.shown_as) {
            Ok(()) => {}
            Err(error) if walls.network == Network::Own || !walls.shown_as.is_empty() => {
                return Err(("namespaces of its own", error));
            }
            Err(_) => own_namespaces = false,
        }
    }
    if let Some(socket) = &order.proxy {
        relay::start(socket).map_err(named("the way to the proxy"))?;
    }
    limit(&order.limits).map_err(named("limits"))?;
    let filter = match &order.walls {
        // What bubblewrap cannot prevent when the network is the machine's own.
        None => {
            landlock::complete(&order.pipes).map_err(named("Landlock"))?;
            filter::INSIDE_BUBBLEWRAP
        }
        Some(walls) => {
            landlock::enclose(walls, &order.pipes).map_err(named("Landlock"))?;
            let some = walls.network == Network::Shared || own_namespaces;
            let sockets = if some { filter::Sockets::Internet } else { filter::Sockets::None };
            filter::Filter { sockets, own_ipc: own_namespaces, own_processes: false }
        }
    };
    filter::install(filter).map_err(named("the filter of system calls"))
}

/// Lowers what the process may use, never beyond what it has.
fn limit(limits: &Limits) -> io::Result<()> {
    let all = [
        (Resource::RLIMIT_NPROC, limits.processes),
        (Resource::RLIMIT_DATA, limits.memory),
        (Resource::RLIMIT_FSIZE, limits.file_size),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        // 1 and not 0: with 0 a program of the machine that collects memory images would still run, outside of the
        // sandbox.
        (Resource::RLIMIT_CORE, 1),
    ];
    for (resource, wanted) in all {
        let (_, most) = getrlimit(resource)?;
        let wanted = wanted.min(most);
        setrlimit(resource, wanted, wanted)?;
    }
    Ok(())
}
