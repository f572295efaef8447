//! The status page where its stream breaks off, where a title has no spaces, and where somebody is asked.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::daemons::until;
use super::front::Front;
use super::page::{Browser, program};
use super::solo::{calls, newest, reports, solo_of};
use super::world::World;

/// A proxy before the daemon: it answers 502 where none is behind it, and counts that for the event stream.
struct Proxy {
    port: u16,
    behind: Arc<Mutex<Option<String>>>,
    refused: Arc<Mutex<usize>>,
}

impl Proxy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (behind, refused) = (Arc::<Mutex<Option<String>>>::default(), Arc::<Mutex<usize>>::default());
        let (to, counts) = (Arc::clone(&behind), Arc::clone(&refused));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = to.lock().unwrap().clone();
                tokio::spawn(Self::answer(client, to, Arc::clone(&counts)));
            }
        });
        Self { port, behind, refused }
    }

    async fn answer(mut client: TcpStream, to: Option<String>, refused: Arc<Mutex<usize>>) {
        if let Some(to) = to {
            let mut server = TcpStream::connect(to).await.unwrap();
            let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
        let mut asked = vec![0; 4096];
        let length = client.read(&mut asked).await.unwrap_or_default();
        let answer = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let _gone = client.write_all(answer.as_bytes()).await;
        if asked[..length].starts_with(b"GET /api/v1/events") {
            *refused.lock().unwrap() += 1;
        }
    }

    /// A daemon behind it.
    fn front(&self, world: &World, more: &str) -> Front {
        let front = Front::start(world, "1s", &format!("hosts = [\"localhost:{}\"]\n{more}", self.port));
        *self.behind.lock().unwrap() = Some(front.base.trim_start_matches("http://").to_owned());
        front
    }

    /// The daemon goes; the stream's next request gets 502.
    async fn away(&self, front: Front) {
        *self.behind.lock().unwrap() = None;
        let before = *self.refused.lock().unwrap();
        drop(front);
        until("the stream was asked for", || *self.refused.lock().unwrap() > before).await;
    }
}

async fn in_browser(mut browser: Browser, look: impl FnOnce(&mut Browser) + Send + 'static) -> Browser {
    let work = move || {
        look(&mut browser);
        browser
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_again_after_a_502_and_asks_for_the_token_where_it_is_another_one() {
    let Some(program) = program() else {
        println!("skipped: there is no Chromium here");
        return;
    };
    let world = World::new(0).await;
    let proxy = Proxy::start().await;
    let front = proxy.front(&world, "");
    let (dir, url) = (tempfile::tempdir().unwrap(), format!("http://localhost:{}/", proxy.port));
    let folder = dir.path().to_owned();
    let browser = tokio::task::spawn_blocking(move || Browser::open(program, &folder, &url)).await.unwrap();
    let browser = in_browser(browser, |browser| {
        browser.shows(&["working"]);
        // A reload would lose it.
        browser.evaluate("window.seenSinceTheStart = 1");
    })
    .await;
    proxy.away(front).await;
    let browser = in_browser(browser, |browser| drop(browser.shows(&["no connection"]))).await;
    let front = proxy.front(&world, "");
    let browser = in_browser(browser, |browser| {
        let shown = browser.shows(&["working"]);
        assert!(!shown.contains("no connection"), "{shown}");
        assert_eq!(browser.evaluate("window.seenSinceTheStart"), 1, "it was reloaded");
    })
    .await;
    proxy.away(front).await;
    let front = proxy.front(&world, "token = \"${ADA_TOKEN}\"");
    drop(in_browser(browser, |browser| drop(browser.shows(&["Token"]))).await);
    drop(front);
    world.sim.shutdown().await;
}

/// On no screen.
fn nothing_is_out_of_sight(browser: &mut Browser) {
    for width in [360, 700, 900, 1280, 1600] {
        browser.ask(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false }),
        );
        let hidden = browser.evaluate(
            "document.documentElement.scrollWidth - innerWidth \
             + [...document.querySelectorAll('.scroll')].reduce((sum, one) => sum + one.scrollWidth - one.clientWidth, 0)",
        );
        browser.picture(&format!("status-page-title-{width}.png"));
        assert_eq!(hidden, 0, "nothing is out of sight at {width}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_is_asked_and_all_of_a_run_whose_title_has_no_spaces_and_one_that_cannot_be_read()
{
    let Some(program) = program() else {
        println!("skipped: there is no Chromium here");
        return;
    };
    let question =
        json!({ "question": "In which unit?", "options": ["cents", "dollars"], "default": "cents" });
    let replies =
        vec![reports("Done.", json!([])), reports("Done.", json!([])), calls(&[("agent__ask", question)])];
    let world = solo_of(replies, None, "", |scenario| {
        scenario.repositories[0].issues[0].title = "x".repeat(180);
    })
    .await;
    world.configure(&["agent = \"solo\""]);
    let (_, done) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(done["success"], true, "{done:#}");
    let run = newest(&world);
    let (_, done) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(done["success"], true, "{done:#}");
    // The first one's journal is damaged, and its result is gone.
    let journal = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    let (first, rest) = journal.split_once('\n').unwrap();
    std::fs::write(run.join("events.jsonl"), format!("{first}\ngarbage\n{rest}")).unwrap();
    std::fs::remove_file(run.join("result.json")).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let front = Front::start(&world, "1s", "");
    let (dir, url) = (tempfile::tempdir().unwrap(), front.base.clone());
    let folder = dir.path().to_owned();
    tokio::task::spawn_blocking(move || {
        let mut browser = Browser::open(program, &folder, &url);
        browser.shows(&["achieved"]);
        nothing_is_out_of_sight(&mut browser);
        browser.shows(&["question_pending", "1. cents", "2. dollars", "comment, since 20", ", until 20"]);
        let link = browser.evaluate("document.querySelector('#queue .lines a').href");
        assert!(link.as_str().unwrap().contains("#issuecomment-"), "{link}");
        browser.shows(&["achieved", "unreadable"]);
        nothing_is_out_of_sight(&mut browser);
    })
    .await
    .unwrap();
    drop(front);
    world.sim.shutdown().await;
}
