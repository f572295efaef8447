//! Tools that a user's managers keep in the home: what a shim of pyenv, nvm, asdf, mise or rustup needs, and a program in
//! `~/.local/bin`. It is readable in the sandbox; credentials beside it are not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Env;
use crate::domain::stop::{Stop, StopDetail};
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;
use crate::sys::sandbox;

/// Managers: the variable that names their folder, and where it usually is.
const MANAGERS: [(&str, &str); 6] = [
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("NVM_DIR", ".nvm"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("MISE_DATA_DIR", ".local/share/mise"),
];
/// What programs in `~/.local/bin` are made of: packages of Python's own installer, of pipx and of uv.
const LOCAL: [&str; 6] = [
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/uv/tools",
    ".local/share/uv/python",
];
/// Files of the home that only say which versions are used everywhere.
const VERSIONS: [&str; 2] = [".tool-versions", ".asdfrc"];
/// mise's own, of which its tools are needed; the rest may hold secrets.
const MISE: &str = ".config/mise/config.toml";
/// Longest such file.
const LONGEST: u64 = 256 << 10;

/// The folders of tools in the user's home, for a program with another home: those that the user named, else the usual
/// places that exist.
pub fn homes(env: &Env) -> Vec<(OsString, OsString)> {
    let found = MANAGERS.into_iter().filter_map(|(name, folder)| {
        let place = match env.filled(name) {
            Some(place) => PathBuf::from(place),
            None => env.home()?.join(folder),
        };
        place.is_dir().then(|| (OsString::from(name), place.into_os_string()))
    });
    let mut all: Vec<_> = found.collect();
    // Tools that a user installed look below the home, which is another one inside the sandbox.
    let own = env.home().map(|home| home.join(".local")).filter(|own| own.join("lib").is_dir());
    all.extend(own.map(|own| (OsString::from("PYTHONUSERBASE"), own.into_os_string())));
    all
}

/// What of the home a sandbox can read, and what of that it cannot.
#[derive(Debug, Clone, Default)]
pub struct Readable {
    /// Folders and files.
    pub places: Vec<AbsPath>,
    /// Credentials in them.
    pub hidden: Vec<AbsPath>,
}

/// Finds both. `further`: `sandbox.readable`. The whole home cannot be asked for.
pub fn readable(env: &Env, further: &[String]) -> Result<Readable, Stop> {
    let home = env.home();
    let usual = homes(env).into_iter().map(|(_, place)| PathBuf::from(place));
    // The base of a user's own packages holds more than packages.
    let usual = usual.filter(|place| !place.ends_with(".local"));
    let local = home.iter().flat_map(|home| LOCAL.map(|place| home.join(place)));
    let mut all: Vec<PathBuf> = usual.chain(local).collect();
    for named in further {
        let place = match (named.strip_prefix("~/"), &home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(named),
        };
        let whole = home.as_ref().is_some_and(|home| home.starts_with(&place));
        if whole || !place.is_absolute() {
            return Err(Stop::new(
                StopDetail::ConfigInvalid,
                format!(
                    "sandbox.readable names \"{named}\", which is the home, around it, or no absolute path."
                ),
            ));
        }
        all.push(place);
    }
    let absolute = |place: PathBuf| AbsPath::new(place).ok();
    let places: Vec<PathBuf> = all.into_iter().filter(|place| place.exists()).collect();
    let hidden =
        places.iter().flat_map(|place| sandbox::credentials_below(place)).filter_map(absolute).collect();
    Ok(Readable { places: places.into_iter().filter_map(absolute).collect(), hidden })
}

/// Writes the globally used versions into another home, and nothing else of those files.
pub fn copy_versions(env: &Env, home: &Path) -> Result<(), FileError> {
    let Some(own) = env.home() else { return Ok(()) };
    for name in VERSIONS {
        if let Some(text) = files::read_plain(&own.join(name), LONGEST) {
            files::write_private(&home.join(name), &text)?;
        }
    }
    let mise = files::read_plain(&own.join(MISE), LONGEST).and_then(|text| String::from_utf8(text).ok());
    if let Some(tools) = mise.and_then(|text| tools_of(&text)) {
        let place = home.join(MISE);
        files::create_private_dir(place.parent().unwrap_or(home))?;
        files::write_private(&place, tools.as_bytes())?;
    }
    Ok(())
}

fn tools_of(text: &str) -> Option<String> {
    let mut whole: toml::Table = text.parse().ok()?;
    let tools = whole.remove("tools")?;
    toml::to_string(&toml::Table::from_iter([("tools".to_owned(), tools)])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_mise_s_configuration_the_tools_alone_are_told() {
        let told =
            tools_of("[env]\nTOKEN = \"secret\"\n[tools]\nnode = \"22\"\n[settings]\nx = 1\n").unwrap();
        assert!(told.contains("node") && !told.contains("secret") && !told.contains("settings"), "{told}");
        assert_eq!(tools_of("[env]\nTOKEN = \"secret\"\n"), None);
    }
}
