//! `agentd demo`: the main job on the simulator, through exactly the code that does it on GitHub.

mod review;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::args::DemoArgs;
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::init::{self, Found};
use crate::cli::output::{self, Tone};
use crate::cli::remote::Remote;
use crate::cli::stopping::listen;
use crate::cli::{progress, run_command};
use crate::config::{Config, Env, Request};
use crate::domain::issue::ObjectiveSource;
use crate::domain::shell_words;
use crate::lifecycle::pipeline;
use crate::lifecycle::request::RunRequest;
use crate::lifecycle::run_observer::RunObserver;
use crate::repository::context::RepositoryContext;
use crate::repository::open::{Opening, open};
use crate::sim::{Scenario, SimOptions, Simulator};
use crate::store::run_dir::StateDir;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, ProcessSpec};
use crate::sys::shutdown::Shutdown;
use tokio_util::sync::CancellationToken;

const SCENARIO: &str = include_str!("../../../templates/demo/scenario.toml");
const OWNER: &str = "demo";
const NAME: &str = "shop";
const ISSUE: u64 = 7;
const TRIGGER: &str = "agentd";

/// The files of the demo, all in one folder. The folder stays when the demo has succeeded.
struct Folder {
    root: PathBuf,
    /// Takes the folder away again, unless it is to stay.
    temporary: Option<tempfile::TempDir>,
}

impl Folder {
    fn checkout(&self) -> PathBuf {
        self.root.join("shop")
    }
    fn state(&self) -> PathBuf {
        self.root.join("state")
    }
    fn overlay(&self) -> PathBuf {
        self.root.join("demo.toml")
    }
}

/// Runs the demo; exit code as of the run it makes.
pub fn run(context: &Context, args: &DemoArgs) -> Result<u8, CommandError> {
    let mut folder = folder(context, args)?;
    let ended = context.block_on(async {
        let shutdown = listen()?;
        let scenario = Scenario::from_text(SCENARIO, Path::new("scenario.toml"))?;
        let path = context.env.get("PATH").unwrap_or_default().into();
        let options =
            SimOptions { work_dir: Some(folder.root.join("github")), path, ..SimOptions::default() };
        let simulator = Simulator::start(scenario, options).await?;
        say(
            context,
            "A GitHub, a git remote and a model are simulated on loopback. The model's replies are recorded,",
        );
        say(
            context,
            "their cost is simulated; git, HTTP, files, commands and everything agentd does are real.\n",
        );
        prepare(context, &folder, &simulator).await?;
        if args.review {
            let exit_code = review::run(context, &folder, &simulator, &shutdown).await?;
            tell_violations(context, &simulator);
            simulator.shutdown().await;
            return Ok(exit_code);
        }
        step(
            context,
            &format!("{}: ada puts the label \"{TRIGGER}\" on issue {ISSUE}", simulator.base_url()),
        );
        simulator.add_label(&format!("{OWNER}/{NAME}"), ISSUE, TRIGGER, "ada");
        let site = site(context, &folder, &shutdown).await?;
        let walked = walk_issue(context, &site).await;
        if let Some(refusal) = walked.refusal {
            return Err(refusal.into());
        }
        tell(context, &folder, &site, &walked.output).await?;
        tell_violations(context, &simulator);
        simulator.shutdown().await;
        Ok(walked.output.exit_code)
    })?;
    // Where it is was said above, so that people can look around in it.
    if ended.is_ok()
        && !output::reader_went_away()
        && let Some(temporary) = folder.temporary.take()
    {
        let _stays = temporary.keep();
    }
    ended
}

/// What was asked of the simulator that GitHub would not have liked.
fn tell_violations(context: &Context, simulator: &Simulator) {
    for violation in simulator.violations() {
        context.output.note(format!("violation: {violation}"));
    }
}

fn folder(context: &Context, args: &DemoArgs) -> Result<Folder, CommandError> {
    let failed = |error: String| CommandError::failed(format!("the demo's folder cannot be made: {error}"));
    let (root, temporary) = match &args.keep {
        Some(dir) => {
            let dir = context.env.working_dir().join(dir);
            if dir.is_dir() && std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err(CommandError::invalid(format!("{} is not empty", dir.display()))
                    .hint("name a folder that does not exist yet"));
            }
            (dir, None)
        }
        None => {
            let made = tempfile::Builder::new().prefix("agentd-demo-").tempdir();
            let made = made.map_err(|error| failed(error.to_string()))?;
            (made.path().to_owned(), Some(made))
        }
    };
    files::create_dir(&root).map_err(|error| failed(error.to_string()))?;
    Ok(Folder { root, temporary })
}

/// A clone, the files that `agentd init` writes, and a layer above them that points at the simulator.
async fn prepare(context: &Context, folder: &Folder, simulator: &Simulator) -> Result<(), CommandError> {
    let url = simulator.remote_url(OWNER, NAME);
    step(context, &shell_words::line(&["git", "clone", &url]));
    clone(context, folder, simulator).await?;
    step(context, "agentd init");
    let remote = Remote {
        name: "origin".to_owned(),
        url,
        repo: crate::domain::name::RepoName::parse(&format!("{OWNER}/{NAME}")).ok(),
        default_branch: Some("develop".to_owned()),
    };
    let verify = vec![vec!["sh".to_owned(), "tests/run.sh".to_owned()]];
    init::write(
        &folder.checkout(),
        &Found {
            remote: Some(remote),
            remotes: Vec::new(),
            setup: Vec::new(),
            verify,
            ignore: Vec::new(),
            backend: None,
        },
    )?;
    let overlay = format!(
        "# The demo's own layer, above the files that `agentd init` wrote: it points at the simulator.\n\
         [github]\napi_url = \"{}\"\ngraphql_url = \"{}\"\ntoken = \"${{DEMO_GITHUB_TOKEN}}\"\n\n\
         [providers.anthropic]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{DEMO_MODEL_KEY}}\"\n\n\
         [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"recorded-model\"\ncontext_window = 200000\n\
         price = {{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }}   # simulated\n",
        simulator.api_url(),
        simulator.graphql_url(),
        simulator.model_url_anthropic(),
    );
    let secrets = "DEMO_GITHUB_TOKEN=demo-token-of-the-simulator\nDEMO_MODEL_KEY=demo-key-of-the-simulator\n";
    let failed = |error: files::FileError| CommandError::failed(error.to_string());
    files::write_public(&folder.overlay(), overlay.as_bytes()).map_err(failed)?;
    files::write_private(&folder.root.join(".agentd.env"), secrets.as_bytes()).map_err(failed)
}

async fn clone(context: &Context, folder: &Folder, simulator: &Simulator) -> Result<(), CommandError> {
    let root = AbsPath::new(&folder.root).map_err(|error| CommandError::failed(error.to_string()))?;
    let header = format!("http.{}.extraHeader", simulator.base_url());
    let token = format!("Authorization: Basic {}", {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode("x-access-token:demo-token-of-the-simulator")
    });
    let spec = ProcessSpec::new("git", &root)
        .args(["clone", "--quiet", &simulator.remote_url(OWNER, NAME), "shop"])
        .env("PATH", context.env.get("PATH").unwrap_or_default())
        .env("HOME", folder.root.as_os_str())
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", header)
        .env("GIT_CONFIG_VALUE_0", token)
        .output_cap(64 * 1024);
    let exit = process::run(spec, &CancellationToken::new())
        .await
        .map_err(|error| CommandError::failed(format!("git: {error}")).hint("install git 2.31 or newer"))?;
    if exit.success() {
        return Ok(());
    }
    Err(CommandError::failed(format!("git clone failed: {}", exit.stderr.text().trim())))
}

/// The environment of the demo, without the user's own settings.
fn environment(context: &Context, folder: &Folder) -> Env {
    let kept = ["PATH", "LANG", "TMPDIR", "TERM"];
    let mut variables: Vec<(String, String)> = kept
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), context.env.get(name)?.to_owned())))
        .collect();
    variables.push(("HOME".to_owned(), folder.root.display().to_string()));
    Env::new(folder.checkout(), variables)
}

/// The repository context as in `agentd run`, without the user's own settings, so that the demo is the same everywhere.
async fn site(
    context: &Context,
    folder: &Folder,
    shutdown: &Shutdown,
) -> Result<RepositoryContext, CommandError> {
    let env = environment(context, folder);
    let (checkout, overlay) = (folder.checkout(), folder.overlay());
    let config = Config::load(Request {
        explicit: Some(&overlay),
        base: &checkout,
        repo: None,
        agent: None,
        flags: &[],
        entry: None,
        env: &env,
    })?;
    let absolute =
        |path: PathBuf| AbsPath::new(path).map_err(|error| CommandError::failed(error.to_string()));
    let opening = Opening {
        config: Arc::new(config),
        base: &absolute(checkout.clone())?,
        repo: None,
        state: &StateDir::new(folder.state()),
        needs_github: true,
        github: None,
        env: &env,
        cancel: shutdown.abort_token().clone(),
    };
    Ok(open(opening).await?)
}

async fn walk_issue(context: &Context, site: &RepositoryContext) -> pipeline::Finished {
    step(
        context,
        "the run pipeline: plan → origin → lease → worktree → instance → steps → commit → verify → judge → publish → seal\n",
    );
    let request = RunRequest { source: ObjectiveSource::Issue, ..run_command::plain(ISSUE) };
    let view = progress::View::new(context.output, false, context.detail());
    let watch = RunObserver::new({
        let view = view.clone();
        move |lines, opened| view.follow(lines, opened.dir)
    });
    let walked = pipeline::run(request, site, &watch).await;
    view.finish().await;
    walked
}

async fn tell(
    context: &Context,
    folder: &Folder,
    site: &RepositoryContext,
    output: &crate::domain::run_output::RunOutput,
) -> Result<(), CommandError> {
    if context.output.json() {
        return context.output.document(output);
    }
    let dir = site.state.run(&site.repo, crate::domain::run::RunId(output.run_id));
    let report = std::fs::read_to_string(dir.report()).unwrap_or_default();
    let out = context.output;
    out.line(format!("\n{}\n", out.toned("━━ The report ━━", Tone::Strong)))?;
    out.result(&report)?;
    out.line(format!("\n{}\n", out.toned("━━ The diff ━━", Tone::Strong)))?;
    out.result(&run_command::diff(site, output).await)?;
    out.line(format!("\n{}\n", out.toned("━━ The same on your own repository ━━", Tone::Strong)))?;
    for command in ["agentd init", "agentd doctor", "agentd run --issue N"] {
        out.line(format!("  {command}"))?;
    }
    out.line(format!("\nEverything of this demo is in {}", folder.root.display()))?;
    out.line("The model's replies were recorded and their cost is simulated.")
}

fn say(context: &Context, text: &str) {
    context.output.note(text);
}

fn step(context: &Context, text: &str) {
    context.output.note(format!("▸ {text}"));
}
