//! The status page in a real browser without a window: a run starts, goes on and ends in it, without a reload.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use super::daemons::{slow_model, until};
use super::front::Front;
use super::front_costs::{SHOWN_TITLE, of_unknown_cost};
use super::world::World;

/// The first browser of this family that is there.
pub(super) fn program() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success()))
}

/// A browser that is talked to over two pipes, one JSON message after the other with a zero byte between.
pub(super) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    asked: u64,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Opens a page.
    pub(super) fn open(program: &str, dir: &Path, url: &str) -> Self {
        let (to, from) = (dir.join("to"), dir.join("from"));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success());
        let script = format!(
            "exec {program} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
             --no-first-run --window-size=1280,1100 --user-data-dir={} --remote-debugging-pipe about:blank 3<{} 4>{}",
            dir.join("profile").display(),
            to.display(),
            from.display()
        );
        let child = Command::new("sh")
            .args(["-c", &script])
            .env("HOME", dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let mut browser = Self { child, to, from, session: None, asked: 0 };
        let target = browser.ask("Target.createTarget", &json!({ "url": url }))["targetId"].clone();
        let attached = browser.ask("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            assert!(self.from.read_until(0, &mut bytes).unwrap() > 0, "the browser ended");
            bytes.pop();
            let heard: Value = serde_json::from_slice(&bytes).unwrap();
            if heard["id"] == self.asked {
                assert!(heard["error"].is_null(), "{heard:#}");
                return heard["result"].clone();
            }
        }
    }

    pub(super) fn evaluate(&mut self, script: &str) -> Value {
        let done = self.ask("Runtime.evaluate", &json!({ "expression": script, "returnByValue": true }));
        done["result"]["value"].clone()
    }

    /// Waits until the page's text holds all of these.
    pub(super) fn shows(&mut self, wanted: &[&str]) -> String {
        let began = Instant::now();
        loop {
            let shown = self.evaluate("document.body ? document.body.innerText : ''");
            let shown = shown.as_str().unwrap_or_default().to_owned();
            if wanted.iter().all(|one| shown.contains(one)) {
                return shown;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{wanted:?} is not in:\n{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A picture of what is shown, for people to look at.
    #[expect(clippy::print_stdout, reason = "says where to look")]
    pub(super) fn picture(&mut self, name: &str) {
        let shot =
            self.ask("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        agentd::sys::files::write_public(&place, &bytes).unwrap();
        println!("{}", place.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_a_run_from_its_start_to_its_end_without_a_reload() {
    let Some(program) = program() else {
        println!("skipped: there is no Chromium here");
        return;
    };
    let world = World::new(1).await;
    let front = Front::start(&world, "1s", "");
    let (dir, url) = (tempfile::tempdir().unwrap(), front.base.clone());
    let folder = dir.path().to_owned();
    let mut browser =
        tokio::task::spawn_blocking(move || Browser::open(program, &folder, &url)).await.unwrap();
    let mut browser = tokio::task::spawn_blocking(move || {
        browser.shows(&["Nothing runs.", "No run has ended yet.", "demo/shop", "working"]);
        // A reload would lose it.
        browser.evaluate("window.seenSinceTheStart = 1");
        browser
    })
    .await
    .unwrap();
    slow_model(&world, 1, 2_000);
    slow_model(&world, 4, 2_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let mut browser = tokio::task::spawn_blocking(move || {
        browser.shows(&["demo/shop#7", "Discount takes off cents", "initial.issue"]);
        browser.picture("status-page-begins.png");
        browser.shows(&["demo/shop#7", "continuation.issue", "of at most 12"]);
        browser.picture("status-page-running.png");
        browser
    })
    .await
    .unwrap();
    until("done", || world.labels() == ["agentd:done"]).await;
    tokio::task::spawn_blocking(move || {
        let shown = browser.shows(&["Nothing runs.", "achieved", "pull request", "OBJECTIVE_ACHIEVED"]);
        assert!(!shown.contains("No run has ended yet."), "{shown}");
        assert_eq!(browser.evaluate("window.seenSinceTheStart"), 1, "it was reloaded");
        browser.picture("status-page-ended.png");
        browser.ask(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] }),
        );
        browser.picture("status-page-dark.png");
        browser.ask(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true }),
        );
        browser.picture("status-page-narrow.png");
    })
    .await
    .unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_is_unknown_and_what_is_old_and_breaks_no_word_where_it_is_narrow() {
    let Some(program) = program() else {
        println!("skipped: there is no Chromium here");
        return;
    };
    let world = of_unknown_cost().await;
    let front = Front::start(&world, "1s", "max_runs_per_repository = 1");
    let (dir, url) = (tempfile::tempdir().unwrap(), front.base.clone());
    let folder = dir.path().to_owned();
    tokio::task::spawn_blocking(move || {
        let mut browser = Browser::open(program, &folder, &url);
        let wanted = [
            "unknown\nspent today (UTC), 1 of unknown cost",
            "counts against the day's cap of $50.00",
            "repository_slots_full",
            "asking anthropic",
        ];
        browser.shows(&wanted);
        let times = "[...document.querySelectorAll('#runs td:nth-child(2), #repositories td:nth-child(2)')]\
                     .every((cell) => / UTC$/.test(cell.textContent))";
        assert_eq!(browser.evaluate(times), true, "times have their zone");
        let row = browser.evaluate("document.querySelector('#queue td').textContent");
        assert!(row.as_str().unwrap().contains(SHOWN_TITLE), "{row}");
        let link = browser.evaluate("document.querySelector('#queue a').href");
        assert!(link.as_str().unwrap().contains("/demo/shop/issues/"), "{link}");
        for width in [360, 700, 900, 1280] {
            browser.ask(
                "Emulation.setDeviceMetricsOverride",
                &json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false }),
            );
            let hidden = browser.evaluate(
                "document.documentElement.scrollWidth - innerWidth \
                 + [...document.querySelectorAll('.scroll')].reduce((sum, one) => sum + one.scrollWidth - one.clientWidth, 0)",
            );
            assert_eq!(hidden, 0, "nothing is out of sight at {width}");
            // In one line each: a word that is broken takes several.
            let lines = browser.evaluate(
                "Math.max(...[...document.querySelectorAll('#queue a, #queue .warn')].map((one) => one.getClientRects().length))",
            );
            browser.picture(&format!("status-page-{width}.png"));
            assert_eq!(lines, 1, "no word is broken at {width}");
        }
        drop(front);
        browser.shows(&["no connection; all below is as of 20", " UTC"]);
        let beats = "getComputedStyle(document.querySelector('.cards .title'), '::before').animationName";
        assert_eq!(browser.evaluate(beats), "none");
        let clock = "document.querySelector('.cards .facts span:last-child').textContent";
        let stood = browser.evaluate(clock);
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(browser.evaluate(clock), stood, "its clock stands");
        browser.picture("status-page-stale.png");
    })
    .await
    .unwrap();
    world.sim.shutdown().await;
}
