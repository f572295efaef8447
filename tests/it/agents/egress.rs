//! The way out of the cage, through caged programs: allowed hosts, refused ones, and keys that no program holds.

use serde_json::{Value, json};

use super::bench::{fixer, journal, no_sandbox, script};
use crate::outside::world::World;

/// What the programs try, one line each: `NAME: what came of it`.
const TRY: &str = r#"#!/bin/bash
if [ "$1" != inner ]; then "$0" inner | tr 'A-Za-z' 'N-ZA-Mn-za-m'; exit 0; fi
cat >/dev/null
try() { name=$1; shift; echo "$name: $(timeout 10 "$@" 2>&1 | tail -c 400 | tr '\n' ' ')"; }
"#;

/// Why these tests cannot run here.
fn skipped() -> Option<String> {
    let curl = agentd::sys::sandbox::which("curl".as_ref(), &std::env::var_os("PATH").unwrap_or_default());
    no_sandbox().or_else(|| curl.is_none().then(|| "curl is not installed".to_owned()))
}

/// `127.0.0.1:PORT` of the simulator.
fn authority(world: &World) -> String {
    let url = world.sim.api_url();
    url.trim_start_matches("http://").split('/').next().unwrap().to_owned()
}

/// What the program said under a name, from the report.
fn said<'a>(report: &'a str, name: &str) -> &'a str {
    let line = report.lines().find(|line| line.starts_with(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// What the program said, turned back from ROT13, which no redaction sees through.
fn report(output: &Value) -> String {
    let turn = |c: char| match c {
        'a'..='m' | 'A'..='M' => char::from(c as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(c as u8 - 13),
        other => other,
    };
    output["final_report"]["content"].as_str().unwrap_or_default().chars().map(turn).collect()
}

/// An HTTPS server with a certificate of an authority that nobody knows; ends when dropped.
struct Secure {
    server: std::process::Child,
    port: u16,
}

impl Drop for Secure {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

impl Secure {
    /// Serves the folder's `hello.txt`, and writes the authority's certificate to `authority.pem`. The error says why it
    /// cannot.
    fn open(folder: &std::path::Path) -> Result<Self, String> {
        use std::io::BufRead as _;
        use std::process::{Command, Stdio};
        let openssl = |args: &str| {
            let done = Command::new("openssl").args(args.split(' ')).current_dir(folder).output();
            let done = done.map_err(|error| format!("openssl: {error}"))?;
            done.status
                .success()
                .then_some(())
                .ok_or_else(|| String::from_utf8_lossy(&done.stderr).into_owned())
        };
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("hello.txt"), "hello over TLS\n").unwrap();
        std::fs::write(
            folder.join("names.cnf"),
            "subjectAltName=DNS:localhost\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n",
        )
        .unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!(
            "req -x509 {key} -keyout authority.key -out authority.pem -days 2 -subj /CN=authority"
        ))?;
        openssl(&format!("req -new {key} -keyout server.key -out server.csr -subj /CN=localhost"))?;
        openssl(
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -out server.pem -days 2 \
             -extfile names.cnf",
        )?;
        let mut server = Command::new("openssl")
            .args(["s_server", "-WWW", "-accept", "127.0.0.1:0", "-cert", "server.pem", "-key", "server.key"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ")?.rsplit(':').next()?.parse().ok());
        // It goes on talking.
        std::thread::spawn(move || lines.for_each(drop));
        match port {
            Some(port) => Ok(Self { server, port }),
            None => {
                drop(server.kill());
                Err("openssl s_server does not say where it listens".to_owned())
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_over_tls_is_reached_where_its_authority_is_known_and_only_there() {
    if let Some(why) = skipped() {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new(0).await;
    let secure = match Secure::open(&world.dir.path().join("tls")) {
        Ok(secure) => secure,
        Err(why) => {
            eprintln!("skipped, there is no HTTPS server here: {why}");
            return;
        }
    };
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let endpoint = format!("[sandbox.endpoints.secure]\nurl = \"https://localhost:{}\"\n", secure.port);
    world.write("overlay.toml", &format!("{overlay}{endpoint}"));
    let text = format!("{TRY}try secure curl -sS http://127.0.0.1:3128/secure/hello.txt\n");
    fixer(&world, "command", &json!({"argv": [script(&world, "tls.sh", &text)], "endpoints": ["secure"]}));
    for (authority, words) in [(Some("tls/authority.pem"), "hello over TLS"), (None, "was not reached: ")] {
        let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
        if let Some(authority) = authority {
            command.env("SSL_CERT_FILE", world.dir.path().join(authority));
        }
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        let report = report(&output);
        assert!(said(&report, "secure").contains(words), "{words}: {report}");
        let told = output["warnings"].to_string();
        assert_eq!(told.contains("host_not_reached"), authority.is_none(), "{told}");
        assert!(authority.is_some() || told.to_lowercase().contains("certificate"), "{told}");
    }
    world.finish().await;
}

/// Every event of a kind, its data.
fn events(world: &World, output: &Value, kind: &str) -> Vec<Value> {
    let lines = journal(world, output);
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["kind"] == kind).map(|event| event["data"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reaches_the_hosts_of_its_list_and_no_others() {
    if let Some(why) = skipped() {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new(0).await;
    let allowed = authority(&world);
    // Another host of the machine's, which nobody listed.
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = other.local_addr().unwrap();
    let text = format!(
        "{TRY}\
         try listed curl -sS -o /dev/null -w '%{{http_code}}' http://{allowed}/\n\
         try tunnel curl -sS -p -o /dev/null -w '%{{http_code}}' http://{allowed}/\n\
         try other curl -sS http://{other}/\n\
         try other-tunnel curl -sS -p http://{other}/\n\
         try named curl -sS https://example.org/\n\
         try spelled curl -sS --noproxy '' -x $http_proxy http://2130706433:{}/\n\
         try past-the-proxy bash -c 'exec 3<>/dev/tcp/127.0.0.1/{} && echo REACHED'\n\
         try names bash -c 'exec 3<>/dev/udp/1.1.1.1/53 && echo hi >&3 && echo REACHED'\n",
        other.port(),
        allowed.rsplit(':').next().unwrap(),
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "out.sh", &text)], "network": [allowed]}));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let report = report(&output);
    assert!(said(&report, "listed").contains("200") || said(&report, "listed").contains("404"), "{report}");
    assert_eq!(said(&report, "tunnel")[8..], said(&report, "listed")[8..], "{report}");
    assert!(said(&report, "other").contains("is not among the hosts"), "{report}");
    assert!(
        said(&report, "other").contains("runner.agentd.program.network of the agent \"fixer\""),
        "{report}"
    );
    for name in ["other-tunnel", "named"] {
        assert!(said(&report, name).contains("403"), "{report}");
    }
    assert!(said(&report, "spelled").contains("is not among the hosts"), "{report}");
    assert!(!report.contains("REACHED"), "{report}");
    let asked = events(&world, &output, "network_asked");
    let hosts = asked[0]["hosts"].as_array().unwrap();
    let (host, port) = allowed.split_once(':').unwrap();
    let reached = hosts.iter().find(|asked| asked["refused"].is_null()).unwrap();
    assert_eq!(
        (reached["host"].as_str(), &reached["port"]),
        (Some(host), &json!(port.parse::<u16>().unwrap()))
    );
    assert_eq!(reached["times"], 2);
    let refused: Vec<_> = hosts.iter().filter(|asked| asked["refused"].is_string()).collect();
    assert!(refused.iter().any(|asked| asked["host"] == "example.org" && asked["port"] == 443), "{hosts:?}");
    let warnings = output["warnings"].to_string();
    assert!(warnings.contains("host_not_reached") && warnings.contains("example.org:443"), "{warnings}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_works_with_a_key_that_it_never_holds() {
    if let Some(why) = skipped() {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::of(1, |scenario| {
        scenario.model.replies = serde_json::from_value(json!([{"text": "hello from the model"}])).unwrap();
    })
    .await;
    let request = r#"{"model":"recorded-model","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    let text = format!(
        "{TRY}\
         env | grep -i -E 'anthropic|proxy'\n\
         try model curl -sS -H \"x-api-key: $ANTHROPIC_API_KEY\" -H 'anthropic-version: 2023-06-01' \
         -H 'content-type: application/json' -d '{request}' $ANTHROPIC_BASE_URL/v1/messages\n\
         try aside curl -sS --path-as-is $ANTHROPIC_BASE_URL/../../repos/demo/shop\n\
         try unknown curl -sS http://127.0.0.1:3128/other/v1/messages\n\
         try by-itself curl -sS --noproxy '' -x $http_proxy http://127.0.0.1:3128/other/v1/messages\n\
         try tunnelled curl -sS --noproxy '' -p -x $http_proxy http://127.0.0.1:3128/other/v1/messages\n\
         try directly curl -sS http://{}/\n\
         cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'\n",
        authority(&world)
    );
    let program = json!({"argv": [script(&world, "key.sh", &text)], "endpoints": ["anthropic"]});
    fixer(&world, "command", &program);
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let report = report(&output);
    assert!(said(&report, "model").contains("hello from the model"), "{report}");
    assert!(said(&report, "aside").contains("leaves the endpoint"), "{report}");
    for way in ["unknown", "by-itself", "tunnelled"] {
        assert!(said(&report, way).contains("there is no endpoint"), "{way}: {report}");
    }
    assert!(said(&report, "directly").contains("Failed to connect"), "{report}");
    assert!(report.contains("ANTHROPIC_API_KEY=held-by-agentd"), "{report}");
    let all = journal(&world, &output);
    for secret in ["a-key-of-the-simulator", "demo-token-of-the-simulator"] {
        assert!(!report.contains(secret) && !all.contains(secret), "{secret}: {report}");
    }
    let asked = events(&world, &output, "network_asked");
    assert!(
        asked[0]["hosts"].as_array().unwrap().iter().any(|asked| asked["endpoint"] == "anthropic"),
        "{asked:?}"
    );
    world.sim.shutdown().await;
}

/// A server that answers each request with the request, as pages for finding faults do.
fn echo() -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            let said = String::from_utf8_lossy(&head).to_string();
            // A request for /quiet says its first line alone.
            let said = if said.contains("/quiet") { said.lines().next().unwrap().to_owned() } else { said };
            let (header, said) = in_another_form(&said);
            let length = said.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n{header}\r\n{said}"
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    address
}

/// A header, and what is said: the key as the request's path asks for it.
fn in_another_form(said: &str) -> (String, String) {
    use base64::Engine as _;
    let key = said.split("Bearer ").nth(1).unwrap_or_default().split_whitespace().next().unwrap_or_default();
    let each = |form: &dyn Fn(u8) -> String| key.bytes().map(form).collect::<String>();
    let form = said.split("/as/").nth(1).and_then(|rest| rest.split_whitespace().next());
    let plain = |text: String| (String::new(), format!("form: {text}"));
    match form {
        Some("base64") => plain(base64::engine::general_purpose::STANDARD.encode(format!("x{key}"))),
        Some("hex") => plain(each(&|byte| format!("{byte:02x}"))),
        Some("json") => plain(each(&|byte| format!("\\u{byte:04x}"))),
        Some("percent") => plain(format!("%{:02X}{}", key.as_bytes()[0], &key[1..])),
        Some("name") => (format!("X-{key}: 1\r\n"), "form: name".to_owned()),
        Some("gzip") => ("Content-Encoding: gzip\r\n".to_owned(), format!("form: squeezed {key}")),
        Some("none") => ("Content-Encoding: identity\r\n".to_owned(), "form: of \\u0061 and %41".to_owned()),
        _ => (String::new(), said.to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_does_not_get_the_key_of_an_endpoint_that_repeats_what_it_is_sent() {
    if let Some(why) = skipped() {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::of(1, |_| {}).await;
    let endpoint = format!(
        "[sandbox.endpoints.echo]\nurl = \"http://{}/private\"\nheaders = {{ authorization = \"Bearer ${{ECHO_KEY}}\" }}\n",
        echo()
    );
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}{endpoint}"));
    let here = "http://127.0.0.1:3128/echo";
    let text = format!(
        "{TRY}\
         try quiet curl -sS {here}/quiet/a%2Fb\n\
         try echo curl -sS {here}/echo\n\
         for form in base64 hex json percent name gzip none; do try as-$form curl -sSi {here}/as/$form; done\n\
         try trace curl -sS -X TRACE {here}/quiet\n\
         try aside curl -sS --path-as-is {here}/..%2fquiet\n"
    );
    let program = json!({"argv": [script(&world, "echo.sh", &text)], "endpoints": ["echo"]});
    fixer(&world, "command", &program);
    let mut run = world.command_in(&["run", "--issue", "7", "--agent", "fixer", "--json"]);
    run.env("ECHO_KEY", "zyxwvutsrqponmlk");
    let output = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = report(&output);
    assert!(said(&report, "quiet").contains("GET /private/quiet/a%2Fb"), "{report}");
    assert!(!report.contains("zyxwvutsrqponmlk") && !said(&report, "echo").contains("Bearer z"), "{report}");
    for form in ["base64", "hex", "json", "percent"] {
        let came = said(&report, &format!("as-{form}"));
        assert!(came.contains("curl: ("), "{form}: {came}");
        for part in ["eXh3dn", "7a7978", "\\u007a", "%7A"] {
            assert!(!came.contains(part), "{form}: {came}");
        }
    }
    assert!(said(&report, "as-name").contains("form: name"), "{report}");
    let gzip = said(&report, "as-gzip");
    assert!(gzip.contains("502") && gzip.contains("is compressed") && !gzip.contains("squeezed"), "{gzip}");
    assert!(said(&report, "as-none").contains("form: of \\u0061 and %41"), "{report}");
    assert!(said(&report, "trace").contains("endpoints take GET"), "{report}");
    assert!(said(&report, "aside").contains("leaves the endpoint"), "{report}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_have_the_hosts_of_the_definition_and_verify_says_what_was_refused() {
    if let Some(why) = skipped() {
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new(0).await;
    let allowed = authority(&world);
    fixer(&world, "command", &json!({"argv": ["true"]}));
    let agent = std::fs::read_to_string(world.shop().join(".agent/fixer/agent.json")).unwrap();
    let boundaries = format!(
        "\"permissionMode\":\"acceptEdits\",\"sandbox\":{{\"network\":{{\"mode\":\"custom\",\"trustedDomains\":[\"{allowed}\"]}}}}"
    );
    let agent = agent.replace("\"permissionMode\":\"acceptEdits\"", &boundaries);
    assert!(agent.contains("trustedDomains"));
    world.write("shop/.agent/fixer/agent.json", &agent);
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let commands = format!(
        "[[\"curl\", \"-sS\", \"-o\", \"/dev/null\", \"http://{allowed}/\"], [\"curl\", \"-sSf\", \"http://forge.example/\"]]"
    );
    world.write("overlay.toml", &overlay.replace("[[\"sh\", \"tests/run.sh\"]]", &commands));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let verified = events(&world, &output, "verified");
    assert_eq!(
        (&verified[0]["exit_code"], &verified[1]["exit_code"]),
        (&json!(0), &json!(22)),
        "{verified:?}"
    );
    let warnings = output["warnings"].to_string();
    assert!(warnings.contains("forge.example:80") && warnings.contains("trustedDomains"), "{warnings}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_cannot_be_held_are_refused_before_anything_is_made() {
    let world = World::new(0).await;
    for (program, words) in [
        (json!({"argv": ["true"], "network": ["https://example.org/x"]}), "is not a host"),
        (json!({"argv": ["true"], "endpoints": ["nobody"]}), "no [providers.nobody]"),
        (json!({"argv": ["true"], "network": ["example.org"], "sandbox": "off"}), "need the sandbox"),
    ] {
        fixer(&world, "command", &program);
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!(code, Some(4), "{output:#}");
        assert!(output.to_string().contains(words), "{words}: {output:#}");
    }
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}
