//! `agentd init`: writes a configuration, an agent and a policy into this repository, and overwrites nothing.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;

use minijinja::context;
use serde_json::json;

use self::kinds::Kind;
use super::args::{BackendChoice, InitArgs};
use super::context::{Context, main_checkout};
use super::error::CommandError;
use super::output::Tone;
use super::remote::{self, Remote};
use crate::config::layer::FILE_NAME;
use crate::config::placeholder::ENV_FILE;
use crate::config::{self, Config, ConfigError, Env, Source};
use crate::definition::scaffold::{RESOLVER, editor_schemas, schema_path};
use crate::domain::shell_words;
use crate::github::Endpoint;
use crate::sys::paths::AbsPath;
use crate::sys::{files, sandbox};

pub(super) mod kinds;
mod models;

/// Where it all goes, below the repository's root.
const FOLDER: &str = ".agent";

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/init/", $path))
    };
}

/// What the files say about this repository.
pub(super) struct Found {
    /// Its remote.
    pub remote: Option<Remote>,
    /// All that there are.
    pub remotes: Vec<String>,
    /// What makes a new worktree ready.
    pub setup: Vec<Vec<String>>,
    /// Its verify commands.
    pub verify: Vec<Vec<String>>,
    /// What these leave behind, as lines of `.gitignore`.
    pub ignore: Vec<String>,
    /// The agent program that works on every step.
    pub backend: Option<BackendChoice>,
}

impl Found {
    fn new(remote: Option<Remote>, kind: Option<&Kind>, backend: Option<BackendChoice>) -> Self {
        let argvs = |argvs: &[&[&str]]| -> Vec<Vec<String>> {
            argvs.iter().map(|argv| argv.iter().map(|word| (*word).to_owned()).collect()).collect()
        };
        Self {
            remote,
            remotes: Vec::new(),
            setup: kind.map(|kind| argvs(kind.setup)).unwrap_or_default(),
            verify: kind.map(|kind| argvs(kind.verify)).unwrap_or_default(),
            ignore: kind
                .map(|kind| kind.ignore.iter().map(|line| (*line).to_owned()).collect())
                .unwrap_or_default(),
            backend,
        }
    }

    /// Programs that the commands start by name and that are not in the `PATH`.
    fn missing_programs(&self, env: &Env) -> Vec<String> {
        let path = OsString::from(env.get("PATH").unwrap_or_default());
        let mut missing: Vec<String> = Vec::new();
        if let Some(program) = self.backend.map(|backend| models::words(backend).1)
            && sandbox::which(program.as_ref(), &path).is_none()
        {
            missing.push(program.to_owned());
        }
        for argv in self.setup.iter().chain(&self.verify) {
            // `env NAME=VALUE program` starts the program.
            let own = argv.iter().find(|word| *word != "env" && !word.contains('='));
            // What has a slash is the repository's, or made by the set-up.
            let Some(program) = own.filter(|program| !program.contains('/')) else { continue };
            if sandbox::which(program.as_ref(), &path).is_none() && !missing.contains(program) {
                missing.push(program.clone());
            }
        }
        missing
    }
}

/// Paths below the repository's root.
#[derive(Default)]
pub(super) struct Written {
    written: Vec<String>,
    kept: Vec<String>,
    /// Lines added to a `.gitignore` that was there.
    added: Vec<String>,
}

/// Writes what is missing and tells what it wrote and what it kept.
pub fn run(context: &Context, args: &InitArgs) -> Result<(), CommandError> {
    if args.service {
        return super::service_unit::write(context);
    }
    if let Some(error) = context.block_on(remote::bare(&context.base_path()?, &context.env))? {
        let refused = CommandError::invalid(format!("{error}: nothing was written"));
        return Err(error.remedy().into_iter().fold(refused, |refused, hint| refused.hint(hint)));
    }
    let root = main_checkout(context.env.working_dir()).ok_or_else(|| {
        CommandError::invalid(format!("{} is not in a git repository", context.env.working_dir().display()))
            .hint("go to the repository, or start one with `git init`")
    })?;
    let fitting = kinds::fitting(&root);
    let kind = chosen(context, &fitting)?;
    let remote = context.block_on(Remote::find(&context.base_path()?, &context.env))?;
    let remotes = context.block_on(Remote::names(&context.base_path()?, &context.env))?;
    let found = Found { remotes, ..Found::new(remote, kind, args.backend) };
    let done = write(&root, &found)?;
    tell(context, &root, &found, &done, (kind, &fitting))
}

/// The kind of the project. If several fit, a person chooses on a terminal; otherwise it is the first.
fn chosen<'a>(context: &Context, fitting: &[&'a Kind]) -> Result<Option<&'a Kind>, CommandError> {
    let Some(first) = fitting.first() else { return Ok(None) };
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !context.output.json();
    if fitting.len() == 1 || !asks {
        return Ok(Some(first));
    }
    context.output.note("Several ways to run the tests fit this repository:");
    for (place, kind) in (1..).zip(fitting) {
        let lines: Vec<String> = kind.verify.iter().map(|argv| kinds::line(argv)).collect();
        context.output.note(format!("  {place}  {}: {}", kind.name, lines.join(", then ")));
    }
    loop {
        context.output.note(format!("Which one? [1-{}, empty = 1]", fitting.len()));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        let read =
            read.map_err(|error| CommandError::failed(format!("the answer cannot be read: {error}")))?;
        let answer = answer.trim();
        let place = if answer.is_empty() || read == 0 { Some(1) } else { answer.parse::<usize>().ok() };
        if let Some(kind) = place.and_then(|place| fitting.get(place.checked_sub(1)?)) {
            return Ok(Some(kind));
        }
    }
}

/// Writes what is missing below `root`.
pub(super) fn write(root: &Path, found: &Found) -> Result<Written, CommandError> {
    if root.join(FOLDER).is_file() {
        return Err(CommandError::invalid(format!(
            "{} is a file, and agentd has its folder there",
            root.join(FOLDER).display()
        ))
        .hint("move it, and run agentd init again"));
    }
    if let Some(leads_to) = files::leads_out(root, &root.join(FOLDER)) {
        return Err(CommandError::invalid(format!(
            "{} leads out of the repository, to {}: what is written there is no part of it. Nothing was written",
            root.join(FOLDER).display(),
            leads_to.display()
        ))
        .hint("put a folder in the place of the link, and run agentd init again"));
    }
    let mut files =
        vec![("agentd.toml".to_owned(), configuration(found)?), ("policy.toml".to_owned(), policy(found)?)];
    files.push((".gitignore".to_owned(), template!("gitignore").to_owned()));
    files.extend(
        RESOLVER.map(|(path, content)| (format!("resolver/{path}"), agent_file(path, content, found))),
    );
    files.push((schema_path("config"), format!("{:#}\n", config::schema())));
    files.extend(editor_schemas());
    let mut paths = Written::default();
    for (path, content) in files {
        // A configuration in the root takes precedence: one below .agent/ would not be read.
        if path == "agentd.toml" && root.join(&path).exists() {
            paths.kept.push(path);
            continue;
        }
        let path = format!("{FOLDER}/{path}");
        let new = write_new(&root.join(&path), &content)
            .map_err(|error| CommandError::failed(error.to_string()))?;
        if new { &mut paths.written } else { &mut paths.kept }.push(path);
    }
    let mut ignored = found.ignore.clone();
    if root.join(FILE_NAME).exists() {
        // Its secrets stand beside it.
        ignored.push(format!("/{ENV_FILE}"));
    }
    ignore(root, &ignored, &mut paths)?;
    Ok(paths)
}

/// A file of the agent. With verify commands, a run is a success only if they pass.
fn agent_file(path: &str, content: &str, found: &Found) -> String {
    let own = "\"agentd\": { \"closes\": true }";
    if path != "agent.json" {
        return content.to_owned();
    }
    let mut keys = vec!["\"closes\": true".to_owned()];
    if !found.verify.is_empty() {
        keys.push("\"requires\": [\"tests_pass\"]".to_owned());
    }
    let Some(backend) = found.backend else {
        return content.replacen(own, &format!("\"agentd\": {{ {} }}", keys.join(", ")), 1);
    };
    keys.push(format!("\"backend\": {}", json!(models::words(backend).0)));
    keys.push(format!("\"program\": {}", models::program(backend)));
    content.replacen(own, &format!("\"agentd\": {{\n      {}\n    }}", keys.join(",\n      ")), 1)
}

/// Adds what is not ignored yet to the repository's `.gitignore`. Existing lines stay.
fn ignore(root: &Path, lines: &[String], paths: &mut Written) -> Result<(), CommandError> {
    let name = ".gitignore";
    let file = root.join(name);
    let known = std::fs::read_to_string(&file);
    let is_new = matches!(&known, Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    let known = known.unwrap_or_default();
    let has =
        |line: &str| known.lines().any(|known| known.trim().trim_matches('/') == line.trim_matches('/'));
    for line in lines.iter().filter(|line| !has(line)) {
        files::ensure_line(&file, line).map_err(|error| CommandError::failed(error.to_string()))?;
        paths.added.push(line.clone());
    }
    if is_new && !paths.added.is_empty() {
        paths.written.push(name.to_owned());
        paths.added.clear();
    }
    Ok(())
}

fn write_new(path: &Path, content: &str) -> Result<bool, files::FileError> {
    if let Some(folder) = path.parent() {
        files::create_dir(folder)?;
    }
    files::write_new(path, content.as_bytes())
}

fn configuration(found: &Found) -> Result<String, CommandError> {
    let remote = found.remote.as_ref();
    let model = models::model(found.backend);
    render(
        template!("agentd.toml.j2"),
        context! {
            name => remote.and_then(|remote| remote.repo.as_ref()).map(ToString::to_string),
            remote => remote.map_or("origin", |remote| remote.name.as_str()),
            branch => remote.and_then(|remote| remote.default_branch.as_deref()),
            setup => (!found.setup.is_empty()).then(|| toml_argvs(&found.setup)),
            verify => (!found.verify.is_empty()).then(|| toml_argvs(&found.verify)),
            provider => model.provider,
            kind => model.kind,
            variable => model.variable,
            model => model.name,
            window => model.window,
            price => model.price,
            backend => found.backend.map(|backend| models::words(backend).0),
        },
    )
}

fn policy(found: &Found) -> Result<String, CommandError> {
    let commands: Vec<String> = found.verify.iter().map(|argv| toml_argv(argv)).collect();
    render(
        template!("policy.toml.j2"),
        context! { commands, backend => found.backend.map(|backend| models::words(backend).0) },
    )
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
    Written { written, kept, added }: &Written,
    (kind, fitting): (Option<&Kind>, &[&Kind]),
) -> Result<(), CommandError> {
    let output = context.output;
    let mut next = Vec::new();
    let others: Vec<&str> = fitting
        .iter()
        .map(|kind| kind.name)
        .filter(|name| kind.is_some_and(|kind| kind.name != *name))
        .collect();
    // A configuration that was there says itself how tests are run.
    let is_ours = written.iter().any(|path| path.ends_with(FILE_NAME));
    if let Some(kind) = kind.filter(|_| is_ours && !others.is_empty()) {
        let others = others.join(", ");
        next.push(format!("Taken for a project of the kind {}; {others} would fit as well.", kind.name));
    }
    for program in found.missing_programs(&context.env).iter().filter(|_| is_ours) {
        next.push(format!("`{program}` is not installed here: what was written for it could not be tried."));
    }
    // That of a configuration which was there, or of what was written.
    let configured = context.config().ok().map(|config| config.repository(None, Some(root)).remote);
    let counts = configured.as_deref().unwrap_or("origin");
    match found.remotes.first() {
        None => next.push("There is no remote: add one, or use `agentd run --issue-file FILE.md`.".to_owned()),
        Some(first) if !found.remotes.iter().any(|name| name == counts) => next.push(format!(
            "None of the remotes ({}) is called {counts}: write which one counts into .agent/agentd.toml, under [[repositories]]: \
             remote = \"{first}\".",
            found.remotes.join(", ")
        )),
        Some(_) => {}
    }
    next.extend(on_another_host(context, found));
    next.extend(missing(context, root)?);
    if let Some(backend) = found.backend
        && let Some(path) = kept.iter().find(|path| path.ends_with("/agent.json"))
    {
        next.push(format!(
            "{path} was there and does not change: for {} write \"backend\": \"{}\" and its program there and allow it in the policy, \
             as docs/agents.md shows; or move what is there away and run this again.",
            models::words(backend).1,
            models::words(backend).0
        ));
    }
    if !written.is_empty() || !added.is_empty() {
        next.extend(committing(context, root, written, (!added.is_empty(), !found.remotes.is_empty()))?);
    }
    next.push("Then: agentd doctor tries it all; agentd run --issue N --dry-run.".to_owned());
    if output.json() {
        return output.document(&json!({
           "root": root,
           "kind": kind.map(|kind| kind.name),
           "written": written,
           "kept": kept,
           "added": added,
           "next": next,
        }));
    }
    for path in written {
        output.line(format!("{}  {path}", output.toned("wrote", Tone::Good)))?;
    }
    for path in kept {
        output.line(format!("{}   {path} (it was there; not changed)", output.toned("kept", Tone::Warn)))?;
    }
    for line in added {
        output.line(format!("{}  {line} to .gitignore", output.toned("added", Tone::Good)))?;
    }
    output.line("")?;
    next.iter().try_for_each(|line| output.line(line))
}

/// How what was written is committed, in one line that works from where the command was started.
fn committing(
    context: &Context,
    root: &Path,
    written: &[String],
    (ignores_more, has_a_remote): (bool, bool),
) -> Result<Vec<String>, CommandError> {
    let all = written.iter().map(String::as_str).chain(ignores_more.then_some(".gitignore"));
    let checkout = AbsPath::new(root).map_err(|error| CommandError::failed(error.to_string()))?;
    let mut arguments = vec!["check-ignore", "--no-index", "--"];
    arguments.extend(all.clone());
    let ignored =
        context.block_on(remote::git(&checkout, &context.env, &arguments))?.filter(|told| !told.is_empty());
    let mut paths: Vec<&str> = Vec::new();
    for path in all {
        // What is added by force is named, for there are secrets beside it.
        let named = if ignored.is_some() { path } else { path.split('/').next().unwrap_or(path) };
        if !paths.contains(&named) {
            paths.push(named);
        }
    }
    let add: &[&str] = if ignored.is_some() { &["add", "-f"] } else { &["add"] };
    let mut told = Vec::new();
    if let Some(ignored) = ignored {
        let first = ignored.lines().next().unwrap_or(FOLDER);
        told.push(format!(
            "git ignores {first}, so that nobody else would have it: take the rule out of .gitignore, or add the files by force, as below."
        ));
    }
    // The files may be elsewhere: in the main checkout of a linked worktree, or above this folder.
    let is_here = context.env.working_dir().canonicalize().ok() == root.canonicalize().ok();
    let root = root.display().to_string();
    let git = |words: &[&str]| match is_here {
        true => shell_words::line(&[&["git"], words].concat()),
        false => shell_words::line(&[&["git", "-C", &root], words].concat()),
    };
    let mut commands = vec![git(&[add, paths.as_slice()].concat()), git(&["commit", "-m", "agentd"])];
    commands.extend(has_a_remote.then(|| git(&["push"])));
    told.push(format!("Commit it: {}", commands.join(" && ")));
    Ok(told)
}

/// What the present configuration still lacks, with the file for it.
/// Whose issues the remote's name is taken for, where the remote is not on the GitHub that is configured.
fn on_another_host(context: &Context, found: &Found) -> Option<String> {
    let remote = found.remote.as_ref()?;
    let api = context.config().ok()?.github.api_url.clone();
    if Endpoint::new(&api, None).ok()?.hosts(&remote.url) {
        return None;
    }
    Some(format!(
        "The remote \"{}\" is not on the GitHub that is asked ({api}): set `api_url` under [github] if it is another GitHub. agentd works with \
         no other tracker.",
        remote.name
    ))
}

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
    // Only a configuration that was there can lack it.
    if config.policy.files.is_empty() {
        next.push(format!(
            "Add files = [\"{FOLDER}/policy.toml\"] under [policy] in {own}: without a policy nothing is allowed."
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

/// Keeps a file with secrets out of git in this clone, if the repository's own rules do not.
fn keep_out_of_git(context: &Context, root: &Path, path: &str) -> Result<(), CommandError> {
    let checkout = context.base_path()?;
    let ignored = context.block_on(remote::git(&checkout, &context.env, &["check-ignore", "--", path]))?;
    if ignored.is_some() {
        return Ok(());
    }
    let failed = |error: files::FileError| CommandError::failed(error.to_string());
    // `.git` is a file where the repository is elsewhere.
    let asked = context.block_on(remote::git(
        &checkout,
        &context.env,
        &["rev-parse", "--git-path", "info/exclude"],
    ))?;
    let exclude = root.join(asked.as_deref().unwrap_or(".git/info/exclude"));
    if let Some(info) = exclude.parent() {
        files::create_dir(info).map_err(failed)?;
    }
    files::ensure_line(&exclude, &format!("/{path}")).map_err(failed)?;
    Ok(())
}
