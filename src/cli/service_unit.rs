//! `agentd init --service`: a systemd unit of the user for the daemon of this repository.

use std::path::Path;
use std::time::Duration;

use minijinja::context;

use super::context::Context;
use super::error::CommandError;
use crate::config::cluster_file::StoreKind;
use crate::sys::files;

/// What runs need for their last reports.
const LAST_REPORTS: Duration = Duration::from_secs(5 * 60);

const TEMPLATE: &str = include_str!("../../templates/init/agentd.service.j2");

/// Writes the unit beside the user's others; one that is there stays.
pub fn write(context: &Context) -> Result<(), CommandError> {
    let place = context.env.config_home().map(|home| home.join("systemd").join("user"));
    let place = place.ok_or_else(|| {
        CommandError::invalid("neither XDG_CONFIG_HOME nor HOME is set, so there is no place for the unit")
    })?;
    let program =
        context.env.program().ok_or_else(|| CommandError::failed("where agentd itself is cannot be told"))?;
    let folder = context.base.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder: String =
        folder.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let name = format!("agentd-{folder}.service");
    let unit = minijinja::Environment::new()
        .render_str(
            TEMPLATE,
            context! {
                name => name.clone(),
                directory => escaped(&context.base),
                program => quoted(program),
                flags => flags(context)?,
                stops_within => format!("{}s", stops_within(context).as_secs()),
                path => context.env.get("PATH").map(|path| path.replace('%', "%%").replace('"', "\\\"")),
                environment => escaped(&context.base.join(".agent").join(".agentd.env")),
            },
        )
        .map_err(|error| CommandError::failed(format!("the unit cannot be made: {error}")))?;
    let path = place.join(&name);
    files::create_dir(&place).map_err(|error| CommandError::failed(error.to_string()))?;
    let written =
        files::write_new(&path, unit.as_bytes()).map_err(|error| CommandError::failed(error.to_string()))?;
    let known = if written { None } else { std::fs::read_to_string(&path).ok() };
    let is_of = |known: &str| {
        let place = format!("WorkingDirectory={}", escaped(&context.base));
        known.lines().any(|line| line.trim() == place)
    };
    if known.as_deref().is_some_and(|known| !is_of(known)) {
        let message = format!("{} is another repository's unit, and is left as it is", path.display());
        return Err(CommandError::invalid(message).hint(
            "give this folder another name, or have one daemon for both: name both repositories in one agentd.toml",
        ));
    }
    let is_older = known.is_some_and(|known| known != unit);
    let out = context.output;
    if out.json() {
        return out.document(&serde_json::json!({ "unit": path, "written": written }));
    }
    out.line(format!("{}  {}", if written { "wrote" } else { "kept " }, path.display()))?;
    if is_older {
        out.line("It says something else than what would be written now; where it is removed first, it is written anew.")?;
    }
    out.line(format!("Then: systemctl --user daemon-reload && systemctl --user enable --now {name}"))
}

/// How long runs may take to end once the daemon is told to: in a cluster their visits are finished first.
fn stops_within(context: &Context) -> Duration {
    let clustered = context.config().ok().filter(|config| config.cluster.store == StoreKind::Nats);
    LAST_REPORTS + clustered.map_or(Duration::ZERO, |config| config.cluster.drain_timeout.0)
}

/// The flags that were given with `init --service`, and the state directory of the environment, as words of a command
/// line. A service has neither the environment nor the working directory of the shell.
fn flags(context: &Context) -> Result<String, CommandError> {
    let here = context.env.working_dir();
    let mut flags = String::new();
    if let Some(path) = &context.global.config {
        flags.push_str(&format!(" --config {}", quoted(&here.join(path))));
    }
    if context.global.state_dir.is_some() || context.env.filled("AGENTD_STATE_DIR").is_some() {
        flags.push_str(&format!(" --state-dir {}", quoted(context.state_place()?.as_path())));
    }
    if let Some(repo) = &context.global.repo {
        flags.push_str(&format!(" --repo {repo}"));
    }
    Ok(flags)
}

/// systemd reads `%` as the start of a specifier.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// As one word of a command line.
fn quoted(path: &Path) -> String {
    let text = escaped(path).replace('\\', "\\\\").replace('"', "\\\"");
    if text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text }
}
