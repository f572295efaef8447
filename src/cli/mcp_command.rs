//! `agentd mcp`: the tools of a live run over standard input and output, for the agent program that the run started.

use std::io;
use std::path::PathBuf;

use super::args::McpArgs;
use super::context::Context;
use super::error::CommandError;

/// Passes lines on until one side ends. The run at the other end judges every call.
pub fn run(context: &Context, args: &McpArgs) -> Result<(), CommandError> {
    let named = args.socket.clone().or_else(|| context.env.filled("AGENTD_MCP_SOCKET").map(PathBuf::from));
    let Some(socket) = named else {
        return Err(CommandError::invalid(
            "there is no run to serve the tools of: neither --socket nor AGENTD_MCP_SOCKET says where it is",
        )
        .hint("agentd starts this command itself for the agent programs of a run; see docs/agents.md")
        .hint("`agentd tools list` shows the tools, `agentd tools call` calls one without a run"));
    };
    pass(context, context.env.working_dir().join(socket))
}

#[cfg(unix)]
fn pass(context: &Context, socket: PathBuf) -> Result<(), CommandError> {
    let gone = |error: io::Error| {
        CommandError::failed(format!("the run behind {} cannot be reached: {error}", socket.display())).hint(
            "a socket is open only while the run's agent program works; start the program with `agentd run`",
        )
    };
    let (mut to_run, from_run) = ends(&socket).map_err(gone)?;
    let asking = std::thread::Builder::new().name("agentd-mcp".into()).spawn(move || {
        // The run hears of the end by the end of what is said.
        let _ = io::copy(&mut io::stdin().lock(), &mut to_run);
        to_run.end();
    });
    asking.map_err(|error| CommandError::failed(format!("no thread can be started: {error}")))?;
    // It ends with what it says, or when nobody listens any more.
    context.output.stream(from_run)
}

/// What the run is told by.
#[cfg(unix)]
enum ToRun {
    Socket(std::os::unix::net::UnixStream),
    #[cfg(target_os = "linux")]
    Pipe(std::fs::File),
}

#[cfg(unix)]
impl ToRun {
    fn end(self) {
        match self {
            Self::Socket(stream) => drop(stream.shutdown(std::net::Shutdown::Write)),
            #[cfg(target_os = "linux")]
            Self::Pipe(pipe) => drop(pipe),
        }
    }
}

#[cfg(unix)]
impl io::Write for ToRun {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.write(data),
            #[cfg(target_os = "linux")]
            Self::Pipe(pipe) => pipe.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both directions of a connection with the run: a socket, or pipes if the path is a folder.
#[cfg(unix)]
fn ends(place: &std::path::Path) -> io::Result<(ToRun, Box<dyn io::Read>)> {
    #[cfg(target_os = "linux")]
    if place.is_dir() {
        let (says, hears) = crate::sys::pipes::call(place)?;
        return Ok((ToRun::Pipe(says), Box::new(hears)));
    }
    let stream = crate::sys::socket::connect(place)?;
    Ok((ToRun::Socket(stream.try_clone()?), Box::new(stream)))
}

#[cfg(not(unix))]
fn pass(_context: &Context, _socket: PathBuf) -> Result<(), CommandError> {
    Err(CommandError::invalid(
        "the tools of a run are served over Unix sockets only, and there are none here",
    ))
}
