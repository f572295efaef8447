//! The bridge from an agent program to the tools of its run: a socket in a private folder, or pipes if the sandbox
//! allows no sockets. It is served while the program runs.
//!
//! `agentd mcp` is the other end: it passes lines between the bridge and its own standard streams. Only the run's user and
//! programs in the run's sandbox reach the folder. Nothing else authorises, and the bridge of one launch has the tools
//! of that launch only.

use std::io;
use std::path::PathBuf;

use tokio::task::JoinHandle;
#[cfg(unix)]
use tokio::task::JoinSet;

pub use super::entry::Entry;
use super::tool_server::ToolServer;
#[cfg(unix)]
use super::tool_wire::ToolWire;
use crate::engine::agent_tools::AgentTools;
use crate::sys::paths::AbsPath;
#[cfg(unix)]
use crate::sys::socket;

/// Connections that a program may hold at once.
const MOST: usize = 32;
/// The pause after a connection could not be taken.
#[cfg(unix)]
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What a program can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A socket.
    Socket,
    /// Named pipes, in a folder that it may write.
    Pipes,
}

/// An open bridge; closed when dropped.
#[derive(Debug)]
pub struct ToolBridge {
    path: PathBuf,
    serving: JoinHandle<()>,
}

impl ToolBridge {
    /// Opens `name` in a private folder that exists, and serves the tools to all that connect. Needs a tokio runtime.
    #[cfg(unix)]
    pub fn open(
        folder: &AbsPath,
        (name, transport): (&str, Transport),
        tools: &AgentTools,
        permissions: bool,
    ) -> io::Result<Self> {
        let path = folder.join(name).as_path().to_owned();
        let server = ToolServer { tools: tools.clone(), permissions };
        let serving = match transport {
            Transport::Socket => {
                let listener = tokio::net::UnixListener::from_std(socket::listen(folder.as_path(), name)?)?;
                tokio::spawn(async move {
                    let mut connections = Connections { server, under_way: JoinSet::new() };
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => connections.begin(stream.into_split()),
                            // No more files, for example: a moment later there may be some.
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    }
                })
            }
            #[cfg(target_os = "linux")]
            Transport::Pipes => {
                crate::sys::files::create_private_dir(&path).map_err(io::Error::other)?;
                let mut listener = crate::sys::pipes::PipeListener::listen(&path)?;
                tokio::spawn(async move {
                    let mut connections = Connections { server, under_way: JoinSet::new() };
                    while let Ok(streams) = listener.accept().await {
                        connections.begin(streams);
                    }
                })
            }
            #[cfg(not(target_os = "linux"))]
            Transport::Pipes => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Self { path, serving })
    }

    /// There is no bridge here.
    #[cfg(not(unix))]
    pub fn open(
        _folder: &AbsPath,
        _name: (&str, Transport),
        _tools: &AgentTools,
        _permissions: bool,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The conversations of one launch; they end with it.
#[cfg(unix)]
struct Connections {
    server: ToolServer,
    under_way: JoinSet<()>,
}

#[cfg(unix)]
impl Connections {
    fn begin<R, W>(&mut self, (read, write): (R, W))
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        while self.under_way.try_join_next().is_some() {}
        if self.under_way.len() >= MOST {
            tracing::warn!("an agent program opened too many connections; one is refused");
            return;
        }
        let server = self.server.clone();
        self.under_way.spawn(async move {
            match rmcp::service::serve_server(server, ToolWire::new(read, write)).await {
                Ok(connection) => drop(connection.waiting().await),
                Err(error) => tracing::debug!(%error, "an agent program left before it spoke"),
            }
        });
    }
}

impl Drop for ToolBridge {
    fn drop(&mut self) {
        self.serving.abort();
        let is_folder = self.path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let removed = if is_folder {
            crate::sys::files::remove_dir(&self.path).map(drop)
        } else {
            crate::sys::files::remove_file(&self.path).map(drop)
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "the bridge of an agent program to its tools stays");
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation};
    use rmcp::service::serve_client;

    use super::*;
    use crate::domain::message::ToolSpec;

    #[tokio::test]
    async fn a_client_reaches_it_by_a_long_path_and_a_closed_tools_runs_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let folder =
            AbsPath::new(temp.path().canonicalize().unwrap()).unwrap().join("a".repeat(120).as_str());
        crate::sys::files::create_private_dir(folder.as_path()).unwrap();
        let spec = ToolSpec {
            name: "read_file".into(),
            description: "Reads.".into(),
            parameters: serde_json::json!({"type": "object"}),
        };
        let (tools, arriving) = AgentTools::new([spec].into());
        drop(arriving);
        let bridge = ToolBridge::open(&folder, ("mcp-1", Transport::Socket), &tools, true).unwrap();
        let stream = socket::connect(folder.join("mcp-1").as_path()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::UnixStream::from_std(stream).unwrap();
        let info = ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"));
        let client = serve_client(info, stream.into_split()).await.unwrap();
        let names: Vec<String> =
            client.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
        assert_eq!(names, ["read_file", "permission"]);
        let answer = client.call_tool(CallToolRequestParams::new("read_file")).await.unwrap();
        assert!(format!("{answer:?}").contains("the run is ending"), "{answer:?}");
        drop(bridge);
        assert!(socket::connect(folder.join("mcp-1").as_path()).is_err());
    }
}
