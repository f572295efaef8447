//! A program that has the terminal of whoever started agentd: it is waited for, and nothing of it is read.

use std::io;

use super::process::ProcessSpec;

/// Runs it with the streams of this process. Gives its exit code as a shell would: 128 and the signal's number where a signal
/// ended it.
///
/// # Errors
/// What the system says where the program or its directory cannot be used.
pub async fn run(spec: &ProcessSpec) -> io::Result<u8> {
    #[expect(
        clippy::disallowed_methods,
        reason = "it keeps the terminal, which no other start of a process does"
    )]
    let mut command = tokio::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(spec.cwd.as_path()).env_clear();
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let status = command.status().await?;
    Ok(status.code().map_or_else(|| 128 + signal(status), |code| u8::try_from(code).unwrap_or(1)))
}

#[cfg(unix)]
fn signal(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal().and_then(|signal| u8::try_from(signal).ok()).unwrap_or_default()
}

#[cfg(not(unix))]
fn signal(_: std::process::ExitStatus) -> u8 {
    0
}
