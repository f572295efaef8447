//! `agentd init`: writes a configuration, an agent and a policy into this repository, and overwrites nothing.

use std::path::Path;

use minijinja::context;
use serde_json::json;

use super::args::InitArgs;
use super::context::{Context, main_checkout};
use super::error::CommandError;
use super::output::Tone;
use super::remote::Remote;
use crate::config::layer::FILE_NAME;
use crate::config::placeholder::ENV_FILE;
use crate::config::{Config, ConfigError, Source};
use crate::definition::scaffold::RESOLVER;
use crate::sys::files;

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/init/", $path))
    };
}

/// Files of a project that say how its tests are run, and the command.
const TEST_COMMANDS: [(&str, &[&str]); 9] = [
    ("Cargo.toml", &["cargo", "test"]),
    ("go.mod", &["go", "test", "./..."]),
    ("deno.json", &["deno", "test"]),
    ("package.json", &["npm", "test"]),
    ("pyproject.toml", &["python3", "-m", "pytest"]),
    ("pom.xml", &["mvn", "-q", "test"]),
    ("build.gradle", &["./gradlew", "test"]),
    ("Gemfile", &["bundle", "exec", "rake", "test"]),
    ("mix.exs", &["mix", "test"]),
];

/// What the files say about this repository.
pub(super) struct Found {
    /// Its remote.
    pub remote: Option<Remote>,
    /// Its verify commands.
    pub verify: Vec<Vec<String>>,
}

/// Paths below the repository's root.
#[derive(Default)]
pub(super) struct Written {
    written: Vec<String>,
    kept: Vec<String>,
}

/// Writes what is missing and tells what it wrote and what it kept.
pub fn run(context: &Context, args: &InitArgs) -> Result<(), CommandError> {
    if args.service {
        return super::service_unit::write(context);
    }
    let root = main_checkout(context.env.working_dir()).ok_or_else(|| {
        CommandError::invalid(format!("{} is not in a git repository", context.env.working_dir().display()))
            .hint("go to the repository, or start one with `git init`")
    })?;
    let verify = test_command(&root).map(|argv| argv.iter().map(|word| (*word).to_owned()).collect());
    let found = Found {
        remote: context.block_on(Remote::find(&context.base_path()?, &context.env))?,
        verify: verify.into_iter().collect(),
    };
    let Written { written, kept } = write(&root, &found)?;
    tell(context, &root, &found, &written, &kept)
}

/// Writes what is missing below `root`.
pub(super) fn write(root: &Path, found: &Found) -> Result<Written, CommandError> {
    let mut files =
        vec![("agentd.toml".to_owned(), configuration(found)?), ("policy.toml".to_owned(), policy(found)?)];
    files.push((".gitignore".to_owned(), template!("gitignore").to_owned()));
    files.extend(RESOLVER.map(|(path, content)| (format!("resolver/{path}"), content.to_owned())));
    let mut paths = Written::default();
    for (path, content) in files {
        // A configuration in the root takes precedence: one below .agent/ would not be read.
        if path == "agentd.toml" && root.join(&path).exists() {
            paths.kept.push(path);
            continue;
        }
        let path = format!(".agent/{path}");
        let new = write_new(&root.join(&path), &content)
            .map_err(|error| CommandError::failed(error.to_string()))?;
        if new { &mut paths.written } else { &mut paths.kept }.push(path);
    }
    Ok(paths)
}

fn write_new(path: &Path, content: &str) -> Result<bool, files::FileError> {
    if let Some(folder) = path.parent() {
        files::create_dir(folder)?;
    }
    files::write_new(path, content.as_bytes())
}

fn test_command(root: &Path) -> Option<&'static [&'static str]> {
    TEST_COMMANDS.iter().find(|(file, _)| root.join(file).is_file()).map(|(_, command)| *command)
}

fn configuration(found: &Found) -> Result<String, CommandError> {
    let remote = found.remote.as_ref();
    render(
        template!("agentd.toml.j2"),
        context! {
            name => remote.and_then(|remote| remote.repo.as_ref()).map(ToString::to_string),
            remote => remote.map_or("origin", |remote| remote.name.as_str()),
            branch => remote.and_then(|remote| remote.default_branch.as_deref()),
            verify => (!found.verify.is_empty()).then(|| toml_argvs(&found.verify)),
        },
    )
}

fn policy(found: &Found) -> Result<String, CommandError> {
    let commands: Vec<String> = found.verify.iter().map(|argv| toml_argv(argv)).collect();
    render(template!("policy.toml.j2"), context! { commands })
}

fn render(template: &str, values: minijinja::Value) -> Result<String, CommandError> {
    minijinja::Environment::new()
        .render_str(template, values)
        .map(|text| text + "\n")
        .map_err(|error| CommandError::failed(format!("a template is broken: {error}")))
}

fn toml_argv(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| toml::Value::String(word.clone()).to_string()).collect();
    format!("[{}]", words.join(", "))
}

fn toml_argvs(argvs: &[Vec<String>]) -> String {
    let argvs: Vec<String> = argvs.iter().map(|argv| toml_argv(argv)).collect();
    format!("[{}]", argvs.join(", "))
}

fn tell(
    context: &Context,
    root: &Path,
    found: &Found,
    written: &[String],
    kept: &[String],
) -> Result<(), CommandError> {
    let output = context.output;
    let mut next = Vec::new();
    if found.remote.is_none() {
        next.push("There is no remote: add one, or use `agentd run --issue-file FILE.md`.".to_owned());
    }
    next.extend(missing(context, root)?);
    next.push("Then: agentd doctor, and agentd run --issue N --dry-run.".to_owned());
    if output.json() {
        return output.document(&json!({ "root": root, "written": written, "kept": kept, "next": next }));
    }
    for path in written {
        output.line(format!("{}  {path}", output.toned("wrote", Tone::Good)))?;
    }
    for path in kept {
        output.line(format!("{}   {path} (it was there; not changed)", output.toned("kept", Tone::Warn)))?;
    }
    output.line("")?;
    next.iter().try_for_each(|line| output.line(line))
}

/// What the configuration that is in force here still lacks, with the file to write it into.
fn missing(context: &Context, root: &Path) -> Result<Vec<String>, CommandError> {
    let own =
        if root.join(FILE_NAME).exists() { FILE_NAME.to_owned() } else { format!(".agent/{FILE_NAME}") };
    let config = match context.config() {
        Ok(config) => config,
        Err(error) => return Ok(vec![format!("Mend the configuration: {error}")]),
    };
    let mut next = Vec::new();
    let repository = config.repository(context.global.repo.as_ref(), Some(root));
    if repository.origin_branch.is_none_or(|branch| branch.trim().is_empty()) {
        next.push(format!("Set `origin_branch` in {own}: which branch work starts from was not clear."));
    }
    if config.verify.commands.is_empty() {
        next.push(format!(
            "Set `verify.commands` in {own}, and allow the same commands in .agent/policy.toml."
        ));
    }
    let mut variables = missing_variables(&config);
    let env_file = Path::new(&own).with_file_name(ENV_FILE).display().to_string();
    // A default stands in no file, and so no file's variables are looked at for it.
    if config.source("github.token") == Source::Default
        && let Some(at) = variables.iter().position(|variable| variable == "GITHUB_TOKEN")
    {
        let variable = variables.remove(at);
        next.push(format!(
            "Put {variable} into the environment; to read it from {env_file}, write token = \"${{{variable}}}\" under [github] in {own}."
        ));
    }
    if !variables.is_empty() {
        keep_out_of_git(context, root, &env_file)?;
        let variables = variables.join(" and ");
        next.push(format!("Put {variables} into the environment, or into {env_file}, which git ignores."));
    }
    Ok(next)
}

/// Variables without a value that GitHub and the targets' providers need.
fn missing_variables(config: &Config) -> Vec<String> {
    let targets = config.session().map(|session| session.settings.targets).unwrap_or_default();
    let providers = targets.iter().map(|target| config.provider(&target.provider).map(drop));
    let mut found = Vec::new();
    for needed in std::iter::once(config.github_credentials().map(drop)).chain(providers) {
        if let Err(ConfigError::MissingVariable { variable, .. }) = needed
            && !found.contains(&variable)
        {
            found.push(variable);
        }
    }
    found
}

/// Keeps a file with secrets out of git, for this clone alone, where the repository's own rules do not.
fn keep_out_of_git(context: &Context, root: &Path, path: &str) -> Result<(), CommandError> {
    let checkout = context.base_path()?;
    let ignored =
        context.block_on(super::remote::git(&checkout, &context.env, &["check-ignore", "--", path]))?;
    if ignored.is_some() {
        return Ok(());
    }
    let failed = |error: files::FileError| CommandError::failed(error.to_string());
    let info = root.join(".git").join("info");
    files::create_dir(&info).map_err(failed)?;
    files::ensure_line(&info.join("exclude"), &format!("/{path}")).map_err(failed)?;
    Ok(())
}
