//! The git remote: `git http-backend` behind a token check, so that clones and pushes are real.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;

use super::call::{decode, parse_query};
use super::shared::{Shared, plain_response};
use super::world::{Token, World};
use crate::sys::paths::AbsPath;
use crate::sys::process::{Piped, ProcessSpec, run, spawn_piped};

/// The longest list of what git can do; it has some hundred bytes.
const MOST_ABILITIES: usize = 64 * 1024;

/// Answers a request below `/git/`.
pub async fn serve(shared: &Arc<Shared>, parts: &Parts, body: Body) -> Response<Body> {
    let path = decode(parts.uri.path());
    let inside = path.trim_start_matches("/git/");
    let query = parts.uri.query().unwrap_or_default();
    let service = match parse_query(query).into_iter().find(|(name, _)| name == "service") {
        Some((_, service)) => service,
        None => inside.rsplit('/').next().unwrap_or_default().to_owned(),
    };
    let write = service == "git-receive-pack";
    let Some((owner, rest)) = inside.split_once('/') else { return plain(404, "Repository not found.") };
    let Some((name, rest)) = rest.split_once('/') else { return plain(404, "Repository not found.") };
    let name = name.strip_suffix(".git").unwrap_or(name);
    if rest.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
        return plain(404, "Not Found");
    }
    if let Err(response) = admit(&mut shared.world(), &parts.headers, owner, name, write) {
        return *response;
    }
    let (git_dir, protected) = {
        let world = shared.world();
        match world.repository(&format!("{owner}/{name}")) {
            Some(repo) => (repo.git_dir.clone(), repo.protected.clone()),
            None => return plain(404, "Repository not found."),
        }
    };
    if write && let Err(error) = guard(&git_dir, &protected).await {
        return plain(500, &format!("the hook could not be written: {error}"));
    }
    match answer(shared, parts, &git_dir, rest, body).await {
        Ok(response) => response,
        Err(error) => plain(500, &format!("git http-backend did not answer: {error}")),
    }
}

fn plain(status: u16, text: &str) -> Response<Body> {
    plain_response(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

/// The token of a Basic or Bearer header. GitHub takes any user name; `x-access-token` is usual.
fn token(world: &World, headers: &HeaderMap) -> Option<Token> {
    let header = headers.get("authorization")?.to_str().ok()?;
    let (scheme, value) = header.split_once(' ')?;
    let secret = if scheme.eq_ignore_ascii_case("basic") {
        let pair = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
        let (user, password) = pair.split_once(':')?;
        if password.is_empty() { user.to_owned() } else { password.to_owned() }
    } else {
        value.trim().to_owned()
    };
    world.token(&secret).cloned()
}

fn admit(
    world: &mut World,
    headers: &HeaderMap,
    owner: &str,
    name: &str,
    write: bool,
) -> Result<(), Box<Response<Body>>> {
    let ask = || {
        let mut response = plain(401, "Authentication required");
        let realm = HeaderValue::from_static("Basic realm=\"GitHub\"");
        response.headers_mut().insert("www-authenticate", realm);
        Box::new(response)
    };
    let token = token(world, headers);
    if headers.contains_key("authorization") && token.is_none() {
        let mut response = ask();
        *response.body_mut() = Body::from("Invalid username or token.");
        return Err(response);
    }
    let Some(repo) = world.repository(&format!("{owner}/{name}")) else {
        return Err(if token.is_some() { Box::new(plain(404, "Repository not found.")) } else { ask() });
    };
    let level = if write { "write" } else { "read" };
    match world.allows(token.as_ref(), repo, "contents", level) {
        Some(true) if write && repo.archived => {
            Err(Box::new(plain(403, "This repository was archived so it is read-only.")))
        }
        Some(true) => Ok(()),
        _ if token.is_none() => Err(ask()),
        Some(false) => {
            let login = token.map(|token| token.login).unwrap_or_default();
            Err(Box::new(plain(403, &format!("Permission to {owner}/{name}.git denied to {login}."))))
        }
        None => Err(Box::new(plain(404, "Repository not found."))),
    }
}

/// Writes the hook that refuses pushes to protected branches, or takes it away.
async fn guard(git_dir: &Path, protected: &[String]) -> std::io::Result<()> {
    let hook = git_dir.join("hooks").join("update");
    if protected.is_empty() {
        return match tokio::fs::remove_file(&hook).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let patterns: Vec<String> = protected
        .iter()
        .map(|pattern| {
            let safe = |letter: &char| letter.is_ascii_alphanumeric() || "-_./*?".contains(*letter);
            format!("refs/heads/{}", pattern.chars().filter(safe).collect::<String>())
        })
        .collect();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n{})\n  echo \"error: GH006: Protected branch update failed for $1.\" >&2\n  exit 1\n  ;;\nesac\nexit 0\n",
        patterns.join("|")
    );
    tokio::fs::create_dir_all(git_dir.join("hooks")).await?;
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    options.mode(0o755);
    let mut file = options.open(&hook).await?;
    file.write_all(script.as_bytes()).await?;
    file.flush().await
}

/// Git answers. What it can do, it is asked once for each repository: each fetch begins with that question.
async fn answer(
    shared: &Arc<Shared>,
    parts: &Parts,
    git_dir: &Path,
    rest: &str,
    body: Body,
) -> std::io::Result<Response<Body>> {
    // In version 2 this names no branch, so it does not change.
    let asks_abilities = rest == "info/refs"
        && parts.uri.query() == Some("service=git-upload-pack")
        && parts.headers.get("git-protocol").is_some_and(|value| value.as_bytes() == b"version=2");
    if !asks_abilities {
        return backend(shared, parts, git_dir, rest, body).await;
    }
    if let Some((headers, known)) = shared.abilities().get(git_dir).cloned() {
        let mut response = Response::new(Body::from(known));
        *response.headers_mut() = headers;
        return Ok(response);
    }
    let (head, body) = backend(shared, parts, git_dir, rest, body).await?.into_parts();
    let told = axum::body::to_bytes(body, MOST_ABILITIES).await.map_err(std::io::Error::other)?;
    if head.status.is_success() {
        shared.abilities().insert(git_dir.to_owned(), (head.headers.clone(), told.clone()));
    }
    Ok(Response::from_parts(head, Body::from(told)))
}

/// Git's program for it, without the git program around it that would only start it.
async fn backend_program(shared: &Shared, git_dir: &AbsPath) -> std::io::Result<std::path::PathBuf> {
    let ask = async {
        let spec = ProcessSpec::new("git", git_dir).arg("--exec-path").env("PATH", &shared.path);
        let exit = run(spec, &CancellationToken::new()).await.map_err(std::io::Error::other)?;
        Ok(Path::new(exit.stdout.text().trim()).join("git-http-backend"))
    };
    shared.backend.get_or_try_init(|| ask).await.cloned()
}

async fn backend(
    shared: &Arc<Shared>,
    parts: &Parts,
    git_dir: &Path,
    rest: &str,
    body: Body,
) -> std::io::Result<Response<Body>> {
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let folder = AbsPath::new(git_dir).map_err(std::io::Error::other)?;
    let mut spec = ProcessSpec::new(backend_program(shared, &folder).await?, &folder)
        .env("PATH", &shared.path)
        .env("HOME", &shared.work_dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", git_dir)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{rest}"))
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REMOTE_USER", "simulator");
    let length = header("content-length");
    if !length.is_empty() {
        spec = spec.env("CONTENT_LENGTH", length);
    }
    let Piped { mut stdin, stdout, mut stderr, mut guard } =
        spawn_piped(spec).await.map_err(std::io::Error::other)?;
    tokio::spawn(async move {
        let mut reader = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
        // A broken pipe means that git has answered without reading everything; its answer says why.
        let _ = tokio::io::copy(&mut reader, &mut stdin).await;
        let _ = stdin.shutdown().await;
    });
    // What git complains about reaches the caller in its answer; the pipe must only not fill up.
    tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
    let mut stdout = BufReader::new(stdout);
    let mut response = Response::builder();
    loop {
        let mut line = String::new();
        if stdout.read_line(&mut line).await? == 0 {
            return Err(std::io::Error::other("git ended before its headers did"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("status") => {
                let code = value.trim().split(' ').next().and_then(|code| code.parse::<u16>().ok());
                response = response.status(code.unwrap_or(500));
            }
            Some((name, value)) => response = response.header(name, value.trim()),
            None => {}
        }
    }
    // The child lives as long as its output is read, and is killed when the caller goes away.
    let end = futures::stream::once(async move {
        guard.wait().await;
        Ok(bytes::Bytes::new())
    });
    response.body(Body::from_stream(ReaderStream::new(stdout).chain(end))).map_err(std::io::Error::other)
}
