//! Logs of jobs: GitHub redirects to another host, where they are read as a stream, without the token, and no further than
//! wanted.

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_RANGE, RANGE};

use super::checks::is_denied;
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::request::Ask;
use crate::domain::name::RepoName;

/// A log that can be read.
pub struct JobLog {
    /// Bytes before the first one that is read.
    pub skipped: u64,
    response: reqwest::Response,
    left: u64,
}

/// What became of the wish to read a log.
pub enum Opened {
    /// It can be read.
    Log(JobLog),
    /// There is none.
    Nothing(NoLog),
}

/// Why there is no log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLog {
    /// GitHub has none, or does not show it to these credentials.
    Missing,
    /// GitHub has deleted it.
    Gone,
    /// Its link does not work.
    Unreadable,
}

impl JobLog {
    /// The next bytes; `None` = the end, or as many as were wanted. An error is a broken connection.
    pub async fn next(&mut self) -> Option<Result<Bytes, String>> {
        if self.left == 0 {
            return None;
        }
        let piece =
            self.response.chunk().await.map_err(|error| error.without_url().to_string()).transpose()?;
        Some(piece.map(|mut piece| {
            piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= piece.len() as u64;
            piece
        }))
    }
}

impl Client {
    /// Opens the log of a job to read at most its last `most` bytes. A link that has run out is asked for once more.
    pub async fn open_job_log(&self, repo: &RepoName, job: u64, most: u64) -> Result<Opened, Error> {
        let doing = format!("reading the log of job {job} of {repo}");
        let http = self.without_token(&doing)?;
        for _ in 0..2 {
            let url = self.url(&format!("/repos/{repo}/actions/jobs/{job}/logs"));
            let ask = Ask::get(url, &doing, "actions: read").unfollowed();
            let reply = match self.send(ask).await {
                Ok(reply) => reply,
                Err(error) if matches!(error.kind, ErrorKind::Gone) => {
                    return Ok(Opened::Nothing(NoLog::Gone));
                }
                Err(error) if is_denied(&error) => return Ok(Opened::Nothing(NoLog::Missing)),
                Err(error) => return Err(error),
            };
            let Some(link) = reply.header("location").filter(|link| self.may_be_read(link)) else {
                return Err(Error::malformed(&doing, "no link to the log"));
            };
            match fetch(&http, link, most).await {
                Ok(log) => return Ok(Opened::Log(log)),
                Err(why) => tracing::debug!(doing, why, "the log's link does not work"),
            }
        }
        Ok(Opened::Nothing(NoLog::Unreadable))
    }

    /// A link is read over TLS, unless the API itself is not.
    fn may_be_read(&self, link: &str) -> bool {
        link.starts_with("https://")
            || (link.starts_with("http://") && self.endpoint().origin().starts_with("http://"))
    }
}

/// The end of what a link gives. Asked for from the start first: that says how long it is, and where logs are kept
/// `bytes=-N` is not understood.
async fn fetch(http: &reqwest::Client, link: &str, most: u64) -> Result<JobLog, String> {
    let words = |error: reqwest::Error| error.without_url().to_string();
    let ask = async |range: String| http.get(link).header(RANGE, range).send().await.map_err(words);
    let response = ask(format!("bytes=0-{}", most.saturating_sub(1))).await?;
    let length = match response.status() {
        StatusCode::RANGE_NOT_SATISFIABLE => Some(0),
        StatusCode::PARTIAL_CONTENT => total(&response),
        StatusCode::OK => response.content_length(),
        status => return Err(format!("answered with {}", status.as_u16())),
    };
    match length {
        Some(0) => Ok(JobLog { skipped: 0, response, left: 0 }),
        // Of a log whose length nobody says, the beginning is read.
        None => Ok(JobLog { skipped: 0, response, left: most }),
        Some(length) if length <= most => Ok(JobLog { skipped: 0, response, left: most }),
        Some(length) => {
            drop(response);
            let skipped = length - most;
            let response = ask(format!("bytes={skipped}-")).await?;
            if response.status() != StatusCode::PARTIAL_CONTENT {
                return Err(format!("its end was answered with {}", response.status().as_u16()));
            }
            Ok(JobLog { skipped, response, left: most })
        }
    }
}

/// How long the whole is, as a part says.
fn total(response: &reqwest::Response) -> Option<u64> {
    response.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.trim().parse().ok()
}
