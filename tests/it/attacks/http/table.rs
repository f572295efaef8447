//! Requests as a stranger would send them, each with the one answer that is right; none of them tells or does anything.

use std::io::Write as _;

use hmac::{Hmac, Mac as _};

use super::{Front, HOOK_SECRET, TOKEN, answer};
use crate::outside::daemons::until;
use crate::outside::world::World;

/// What is sent: name, request, and the statuses that are right. `%P` the port, `%T` the token, `%S(body)` a right signature,
/// `%A(n)` n letters, `%C` a cookie of a login that has ended.
pub const ROWS: &[(&str, &str, &[u16])] = &[
    // Reading without the token.
    ("page", "GET / HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("metrics", "GET /metrics HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("status", "GET /api/v1/status HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("state", "GET /api/v1/state HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("queue", "GET /api/v1/queue HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("limits", "GET /api/v1/limits HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("cost", "GET /api/v1/cost HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("runs", "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("run", "GET /api/v1/runs/latest HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("report", "GET /api/v1/runs/latest/report HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("journal", "GET /api/v1/runs/latest/events HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("issue", "GET /api/v1/issues/demo/shop/7 HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("event stream", "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    ("head", "HEAD /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nConnection: close\r\n\r\n", &[401]),
    ("refresh", "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nContent-Length: 0\r\n\r\n", &[401]),
    ("health tells nothing", "GET /health HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[200]),
    ("health of a stranger's name", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", &[421]),
    // With something that is not the token.
    ("no token", "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer \r\n\r\n", &[401]),
    (
        "its beginning",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer front\r\n\r\n",
        &[401],
    ),
    (
        "more than it",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T0\r\n\r\n",
        &[401],
    ),
    (
        "another case",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer FRONT-TOKEN-0123456789ABCDEF\r\n\r\n",
        &[401],
    ),
    (
        "another scheme",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Basic %T\r\n\r\n",
        &[401],
    ),
    ("no scheme", "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: %T\r\n\r\n", &[401]),
    ("in the API's query", "GET /api/v1/runs?token=%T HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    (
        "in a header of one's own",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nX-Token: %T\r\n\r\n",
        &[401],
    ),
    (
        "as the cookie",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nCookie: agentd_%P=%T\r\n\r\n",
        &[401],
    ),
    (
        "a forged cookie",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nCookie: agentd_%P=99999999999.%A(64)\r\n\r\n",
        &[401],
    ),
    (
        "a cookie of the past",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nCookie: agentd_%P=%C\r\n\r\n",
        &[401],
    ),
    (
        "a secret of webhooks",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer a secret of the hooks\r\n\r\n",
        &[401],
    ),
    (
        "a wrong login",
        "POST /login HTTP/1.1\r\nHost: localhost:%P\r\nContent-Length: 9\r\n\r\ntoken=abc",
        &[401],
    ),
    ("a wrong login in the query", "GET /?token=abc HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[401]),
    (
        "a login of another site's form",
        "POST /login HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://evil.example\r\nContent-Length: 34\r\n\r\ntoken=%T",
        &[403],
    ),
    (
        "a long login",
        "POST /login HTTP/1.1\r\nHost: localhost:%P\r\nContent-Length: 999999999\r\n\r\ntoken=",
        &[413],
    ),
    // Under another name, with the token (DNS rebinding).
    (
        "another name",
        "GET /api/v1/runs HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "another name, own port",
        "GET /api/v1/runs HTTP/1.1\r\nHost: evil.example:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "own name below another",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost.evil.example:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "own name before an at",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost@evil.example\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "own name after an at",
        "GET /api/v1/runs HTTP/1.1\r\nHost: evil.example@localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "another port",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "another address",
        "GET /api/v1/runs HTTP/1.1\r\nHost: 192.0.2.1:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    ("no name", "GET /api/v1/runs HTTP/1.1\r\nAuthorization: Bearer %T\r\n\r\n", &[400, 421]),
    ("no name in HTTP/1.0", "GET /api/v1/runs HTTP/1.0\r\nAuthorization: Bearer %T\r\n\r\n", &[421]),
    (
        "two names",
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nHost: evil.example\r\nAuthorization: Bearer %T\r\n\r\n",
        &[400, 421],
    ),
    (
        "another name in the path's place",
        "GET http://evil.example/api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    (
        "a name that a proxy is said to have heard",
        "GET /api/v1/runs HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[421],
    ),
    // Another site's page orders something, with the token.
    (
        "another origin",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://evil.example\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "no origin to speak of",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: null\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "another port's origin",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://localhost:1\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "an origin below the name",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://localhost:%P.evil.example\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "two origins",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://localhost:%P\r\nOrigin: http://evil.example\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "a browser says another site",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nSec-Fetch-Site: cross-site\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "a browser says a neighbour",
        "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nSec-Fetch-Site: same-site\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[403],
    ),
    (
        "asking beforehand",
        "OPTIONS /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
        &[401, 403, 405],
    ),
    // Out of the runs' folder, and methods, with the token.
    (
        "up",
        "GET /api/v1/runs/../../etc/passwd HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "up, escaped",
        "GET /api/v1/runs/..%2f..%2f..%2fetc%2fpasswd/events HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "up, backslashes",
        "GET /api/v1/runs/..%5c..%5cetc/report HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "absolute",
        "GET /api/v1/runs/%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "a zero byte",
        "GET /api/v1/runs/latest%00/events HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "a dot",
        "GET /api/v1/runs/./events HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "a star",
        "GET /api/v1/runs/*/events HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[404],
    ),
    (
        "no characters",
        "GET /api/v1/runs/%ff%fe HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[400],
    ),
    (
        "delete",
        "DELETE /api/v1/runs/latest HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[405],
    ),
    (
        "put",
        "PUT /api/v1/runs/latest HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n",
        &[405],
    ),
    (
        "another method said beside",
        "GET /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nX-HTTP-Method-Override: POST\r\nAuthorization: Bearer %T\r\n\r\n",
        &[405],
    ),
    ("trace", "TRACE / HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n", &[405]),
    (
        "as a proxy",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[400, 404, 421],
    ),
    (
        "as many runs as there are numbers",
        "GET /api/v1/runs?limit=99999999999999999999999 HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n",
        &[400],
    ),
    // Heads and bodies that are none.
    ("a large header", "GET /health HTTP/1.1\r\nHost: localhost:%P\r\nX: %A(200000)\r\n\r\n", &[431]),
    ("a long path", "GET /%A(200000) HTTP/1.1\r\nHost: localhost:%P\r\n\r\n", &[414, 431]),
    ("many headers", "GET /health HTTP/1.1\r\nHost: localhost:%P\r\n%H\r\n", &[431]),
    ("a folded header", "GET /health HTTP/1.1\r\nHost: localhost:%P\r\nX: a\r\n b\r\n\r\n", &[400]),
    ("a zero byte in a header", "GET /health HTTP/1.1\r\nHost: localhost:%P\r\nX: a\0b\r\n\r\n", &[400]),
    ("no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", &[400]),
    (
        "two lengths",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-Hub-Signature-256: %S(ab)\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        &[400],
    ),
    (
        "pieces of no length",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-Hub-Signature-256: %S(ab)\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        &[400],
    ),
    (
        "pieces of endless length",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-Hub-Signature-256: %S(ab)\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab",
        &[400],
    ),
    (
        "pieces and a length",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-Hub-Signature-256: %Z\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/runs HTTP/1.1\r\nHost: localhost:%P\r\n\r\n",
        &[400, 401],
    ),
    // Webhooks.
    (
        "no signature",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "no signature, and a body that never comes",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nContent-Length: 26214400\r\n\r\n{",
        &[401],
    ),
    (
        "zeros",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: %Z\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "the signature's beginning",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: sha256=ab\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "an empty signature",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: sha256=\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "the old signature",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature: sha1=%A(40)\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "another body's signature",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: %S([])\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "a signed body with more behind it",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: %S({})\r\nContent-Length: 3\r\n\r\n{} ",
        &[401],
    ),
    (
        "a body that says it is too long",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nX-Hub-Signature-256: %Z\r\nContent-Length: 619000000\r\n\r\n{",
        &[413],
    ),
    (
        "a signed one without an id",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-Hub-Signature-256: %S({})\r\nContent-Length: 2\r\n\r\n{}",
        &[400],
    ),
    (
        "a signed one with a long id",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: %A(5000)\r\nX-Hub-Signature-256: %S({})\r\nContent-Length: 2\r\n\r\n{}",
        &[400],
    ),
    (
        "the token for a signature",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\nAuthorization: Bearer %T\r\nContent-Length: 2\r\n\r\n{}",
        &[401],
    ),
    (
        "a signed webhook under another name",
        "POST /webhooks/github HTTP/1.1\r\nHost: evil.example\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: e\r\nX-Hub-Signature-256: %S({})\r\nContent-Length: 2\r\n\r\n{}",
        &[421],
    ),
    (
        "a conversation under another name",
        "GET /api/550e8400-e29b-41d4-a716-446655440000/conversations HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        &[421],
    ),
    // Conversations: nobody has a token for them, and no body is waited for.
    (
        "a conversation",
        "POST /api/550e8400-e29b-41d4-a716-446655440000/chat HTTP/1.1\r\nHost: localhost:%P\r\nContent-Length: 4000000\r\n\r\n{",
        &[404],
    ),
];

fn signature(body: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(HOOK_SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// A login until the first second of time, with its right seal.
fn ended_login() -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(TOKEN.as_bytes()).unwrap();
    mac.update(b"agentd login until 1");
    format!("1.{}", hex::encode(mac.finalize().into_bytes()))
}

/// A row's request, filled in.
fn filled(text: &str, port: u16) -> String {
    let mut text = text
        .replace("%P", &port.to_string())
        .replace("%T", TOKEN)
        .replace("%C", &ended_login())
        .replace("%Z", &format!("sha256={}", "0".repeat(64)))
        .replace("%H", &"X: a\r\n".repeat(300));
    for (mark, fill) in
        [("%S(", signature as fn(&str) -> String), ("%A(", |n| "a".repeat(n.parse().unwrap()))]
    {
        while let Some((before, rest)) = text.clone().split_once(mark) {
            let (inner, after) = rest.split_once(')').unwrap();
            text = format!("{before}{}{after}", fill(inner));
        }
    }
    text
}

const LOCKED: &str = "poll_interval = \"10m\"\nwebhook_secret = \"${HOOK_SECRET}\"\ntoken = \"${FRONT_TOKEN}\"\nhosts = [\"agentd.example.org\"]";

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_nothing_and_order_nothing() {
    let world = World::new(0).await;
    let front = Front::start(&world, LOCKED, "");
    let lists = || world.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    until("a first poll", || lists() == 1).await;
    let mut wrong = Vec::new();
    for (name, request, right) in ROWS {
        let (status, text) = front.say(filled(request, front.port).as_bytes());
        let tells =
            ["\"repositories\"", "\"runs\"", "agentd_", "started_at", "\"version\"", "root:", "counted"];
        let told: Vec<&&str> = tells.iter().filter(|word| text.contains(**word)).collect();
        let told_by_cookie = text.contains("set-cookie");
        if !right.contains(&status) || !told.is_empty() || told_by_cookie {
            wrong.push(format!("{name}: {status} instead of {right:?}, tells {told:?}: {text:.300}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Its own people are answered, under its own names, and it has looked at GitHub for nobody but them.
    assert_eq!(lists(), 1);
    for host in ["localhost:%P", "127.0.0.1:%P", "[::1]:%P", "agentd.example.org"] {
        let ask = format!("GET /api/v1/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer %T\r\n\r\n");
        assert_eq!(front.say(filled(&ask, front.port).as_bytes()).0, 200, "{host}");
    }
    let refresh = "POST /api/v1/refresh HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://localhost:%P\r\nAuthorization: Bearer %T\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(front.say(filled(refresh, front.port).as_bytes()).0, 202);
    until("another look", || lists() == 2).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_with_a_browser_and_every_answer_is_guarded() {
    let world = World::new(0).await;
    let front = Front::start(&world, LOCKED, "");
    let say = |text: &str| front.say(filled(text, front.port).as_bytes());
    for login in [
        "GET /?token=%T HTTP/1.1\r\nHost: localhost:%P\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        "POST /login HTTP/1.1\r\nHost: localhost:%P\r\nOrigin: http://localhost:%P\r\nContent-Length: 34\r\n\r\ntoken=%T",
    ] {
        let (status, text) = say(login);
        assert_eq!(status, 200, "{text}");
        let cookie = text
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(cookie.contains("HttpOnly; SameSite=Strict") && !text.contains(TOKEN), "{text}");
        let value = cookie.split(';').next().unwrap();
        let page = format!("GET / HTTP/1.1\r\nHost: localhost:%P\r\nCookie: x=y; {value}\r\n\r\n");
        assert!(say(&page).1.contains("status.js"));
        let stream = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost:%P\r\nCookie: {value}\r\n\r\n");
        assert_eq!(say(&stream).0, 200);
        let spoilt = format!("GET / HTTP/1.1\r\nHost: localhost:%P\r\nCookie: {value}0\r\n\r\n");
        assert_eq!(say(&spoilt).0, 401, "a cookie of another end");
    }
    for path in ["/", "/health", "/status.js", "/nothing", "/api/v1/runs", "/metrics", "/login"] {
        let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost:%P\r\nAuthorization: Bearer %T\r\n\r\n");
        let text = say(&ask).1;
        for guard in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(text.contains(guard), "{path}: {guard}: {text:.600}");
        }
        assert!(!text.contains("access-control-allow"), "{path}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_end_is_neither_kept_nor_waited_for() {
    let world = World::new(0).await;
    let front = Front::start(&world, LOCKED, "");
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", front.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap()
    };
    let before = memory();
    let head = "POST /webhooks/github HTTP/1.1\r\nHost: localhost:%P\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d\r\n\
                X-Hub-Signature-256: %Z\r\nTransfer-Encoding: chunked\r\n\r\n";
    let head = filled(head, front.port);
    let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = front.connect();
                stream.write_all(head.as_bytes()).unwrap();
                let mut sent = 0;
                while sent < 200 && stream.write_all(piece.as_bytes()).is_ok() {
                    sent += 1;
                }
                assert!(sent < 60, "{sent} MiB were taken");
                // What it said may be lost where it hangs up on what is still sent.
                assert!([413, 408, 0].contains(&answer(&mut stream).0));
            });
        }
    });
    let taken = memory().saturating_sub(before) >> 10;
    assert!(taken < 60, "{taken} MiB were kept of unsigned bodies");
    world.finish().await;
}
