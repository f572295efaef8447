//! The scope of a call: the paths, the program, the hosts and the size that rules look at. It is read from the
//! arguments alone.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use serde_json::Value;

use super::policy::PolicyInput;

/// Everything of one call that predicates ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallScope {
    /// Every path among the arguments.
    pub paths: Vec<ScopePath>,
    /// The program, if the call starts one.
    pub program: Option<Program>,
    /// Every host among the arguments.
    pub hosts: Vec<ScopeHost>,
    /// Bytes of the arguments' canonical JSON.
    pub bytes: u64,
}

/// A path as rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopePath {
    /// Normalised and relative to the worktree, `.` for its root.
    Inside(String),
    /// Outside of the worktree, in git's own files, or not readable as a plain relative path.
    Unclear,
}

/// The name by which rules judge a file that is there already. They know neither a backslash, which separates on other systems, nor a
/// drive, a home or characters that nobody sees, which some systems pass over; a model cannot name such files.
pub fn judged_name(path: &str) -> String {
    let one = |(place, c): (usize, char)| match c {
        '\\' => Some('/'),
        ':' if place == 1 => Some(char::REPLACEMENT_CHARACTER),
        c if c.is_control() => Some(char::REPLACEMENT_CHARACTER),
        c => Some(c).filter(|c| !super::untrusted::is_hidden(*c)),
    };
    let name: String = path.char_indices().filter_map(one).collect();
    if name.starts_with('~') { format!("./{name}") } else { name }
}

/// A command as rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Program and arguments, passed without a shell.
    Argv(Vec<String>),
    /// A line for some shell.
    Line(String),
    /// Not readable: empty, not text, or with NUL bytes.
    Unclear,
}

/// A host as rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeHost {
    /// As [`host_text`] gives it, without port.
    Named(String),
    /// An address that clients may read differently.
    Unclear,
}

impl CallScope {
    /// Reads a call. `worktree` is the absolute path of the worktree, since some servers take absolute paths.
    pub fn of(input: &PolicyInput, worktree: Option<&Path>) -> Self {
        let mut scope = Self {
            paths: Vec::new(),
            program: None,
            hosts: Vec::new(),
            bytes: input.args_canonical_json.len() as u64,
        };
        let Some(arguments) = &input.arguments else { return scope };
        scope.collect("", arguments, worktree);
        scope.program = program_of(arguments);
        if scope.paths.is_empty() && matches!(input.tool.as_deref(), Some("list_files" | "search")) {
            // Without a path these look at the whole worktree.
            scope.paths.push(ScopePath::Inside(".".into()));
        }
        scope
    }

    fn collect(&mut self, key: &str, value: &Value, worktree: Option<&Path>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    self.collect(key, value, worktree);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.collect(key, item, worktree);
                }
            }
            Value::String(text) if names_host(key) || has_scheme(text) => {
                self.hosts.push(host_of(text, names_bare_host(key)));
            }
            Value::String(text) if names_path(key) => self.paths.push(normalised(text, worktree)),
            Value::Null => {}
            _ if names_path(key) => self.paths.push(ScopePath::Unclear),
            _ if names_host(key) => self.hosts.push(ScopeHost::Unclear),
            _ => {}
        }
    }
}

fn plain(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Whether an argument of this name holds a path. In doubt it does: a rule that allows looks at every path.
fn names_path(key: &str) -> bool {
    let key = plain(key);
    let whole = ["source", "destination", "src", "dst", "dest", "cwd", "workdir", "root", "folder"];
    let ends = [
        "path",
        "paths",
        "file",
        "files",
        "filename",
        "filenames",
        "dir",
        "dirs",
        "directory",
        "directories",
    ];
    whole.contains(&key.as_str()) || ends.iter().any(|end| key.ends_with(end))
}

fn names_host(key: &str) -> bool {
    let key = plain(key);
    let ends = ["url", "urls", "uri", "uris", "endpoint"];
    ends.iter().any(|end| key.ends_with(end)) || names_bare_host(&key)
}

fn names_bare_host(key: &str) -> bool {
    let key = plain(key);
    ["host", "hosts", "hostname", "domain", "domains"].iter().any(|end| key.ends_with(end))
}

fn has_scheme(text: &str) -> bool {
    let text = text.trim_start();
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'))
    })
}

/// The normalised relative form of a path, from its text alone. The tool and the engine look at symbolic links.
pub fn normalised(text: &str, worktree: Option<&Path>) -> ScopePath {
    if text.is_empty() {
        return ScopePath::Unclear;
    }
    let inside = match worktree {
        Some(root) if Path::new(text).is_absolute() => {
            Path::new(text).strip_prefix(root).ok().and_then(Path::to_str)
        }
        _ => Some(text),
    };
    let Some(text) = inside else { return ScopePath::Unclear };
    let hidden = |c: char| c.is_control() || super::untrusted::is_hidden(c);
    let drive = text.as_bytes().get(1) == Some(&b':');
    if text.starts_with(['/', '~']) || text.contains('\\') || drive || text.chars().any(hidden) {
        return ScopePath::Unclear;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            // Behind a link, ".." leads elsewhere than its text says.
            ".." => return ScopePath::Unclear,
            // File systems that ignore case, trailing dots and spaces, or keep short names, open .git by these too.
            _ if is_git_directory(part) => return ScopePath::Unclear,
            _ => parts.push(part),
        }
    }
    ScopePath::Inside(if parts.is_empty() { ".".into() } else { parts.join("/") })
}

fn is_git_directory(part: &str) -> bool {
    let (stem, _) = part.split_once(':').unwrap_or((part, ""));
    let bare = stem.trim_end_matches(['.', ' ']);
    bare.eq_ignore_ascii_case(".git") || bare.eq_ignore_ascii_case("git~1")
}

/// The program that a call starts, by its arguments.
pub fn program_of(arguments: &Value) -> Option<Program> {
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let sound = |words: Vec<String>| {
        let broken = words.first().is_none_or(|program| program.trim().is_empty())
            || words.iter().any(|word| word.contains('\0'));
        if broken { Program::Unclear } else { Program::Argv(words) }
    };
    if let Some(argv) = arguments.get("argv") {
        return Some(words(argv).map_or(Program::Unclear, sound));
    }
    for key in ["command", "cmd", "script", "shell_command", "code"] {
        match (arguments.get(key), arguments.get("args")) {
            (Some(Value::String(program)), Some(rest)) => {
                let rest = words(rest);
                return Some(rest.map_or(Program::Unclear, |mut rest| {
                    rest.insert(0, program.clone());
                    sound(rest)
                }));
            }
            (Some(Value::String(line)), None) => return Some(Program::Line(line.clone())),
            (Some(list @ Value::Array(_)), _) => return Some(words(list).map_or(Program::Unclear, sound)),
            (Some(Value::Null) | None, _) => {}
            (Some(_), _) => return Some(Program::Unclear),
        }
    }
    None
}

fn host_of(text: &str, bare: bool) -> ScopeHost {
    // Clients read these in different ways, so the host is not certain.
    if text.contains('\\') || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return ScopeHost::Unclear;
    }
    let with_scheme = has_scheme(text);
    if !with_scheme && !bare {
        return ScopeHost::Unclear;
    }
    let full = if with_scheme { text.to_owned() } else { format!("https://{text}") };
    let Ok(url) = url::Url::parse(&full) else { return ScopeHost::Unclear };
    // Of other schemes the library does not read the forms of addresses.
    let url = match full.split_once("://") {
        Some((_, rest)) if url.host_str().is_some_and(|host| !host.is_empty()) => {
            let Ok(url) = url::Url::parse(&format!("https://{rest}")) else { return ScopeHost::Unclear };
            url
        }
        _ => url,
    };
    let only_host = with_scheme || (url.path() == "/" && url.query().is_none() && url.fragment().is_none());
    match url.host_str() {
        Some(host) if url.username().is_empty() && url.password().is_none() && only_host => {
            let host = host_text(host);
            if host.is_empty() { ScopeHost::Unclear } else { ScopeHost::Named(host) }
        }
        _ => ScopeHost::Unclear,
    }
}

/// The one form of a host: lower case, without a final dot, an IPv6 address without brackets in its shortest form, and an
/// IPv4 address that is written as an IPv6 one as what it is.
pub fn host_text(host: &str) -> String {
    let host = host.trim_end_matches('.').to_lowercase();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
    let Ok(address) = bare.parse::<Ipv6Addr>() else { return host };
    let [a, b, c, d, e, f, high, low] = address.segments();
    let carries = matches!([a, b, c, d, e, f], [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0])
        || ([a, b, c, d, e, f] == [0; 6] && high != 0);
    if carries {
        let [[one, two], [three, four]] = [high.to_be_bytes(), low.to_be_bytes()];
        return Ipv4Addr::new(one, two, three, four).to_string();
    }
    address.to_string()
}
