//! REST tools: HTTP requests that the configuration declares and a model fills in (`[rest.tools.NAME]`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::{Value, json};

use super::rest_template::{JsonTemplate, Template};
use crate::config;
use crate::config::error::ConfigError;
use crate::config::tools_file::HttpMethod;
use crate::domain::message::ToolSpec;
use crate::domain::percent::percent_encoded;
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::engine::tool_schema::closed_schema;
use crate::sys::tls;

/// Longest part of an answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Longest part of a refusal that the model hears, in characters.
const MAX_REFUSAL: usize = 1000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why the declared tools cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// A placeholder that cannot be resolved.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A text that is not what it has to be: exit 4.
    #[error("rest.tools.{tool}.{key}: {message}")]
    Invalid {
        /// The tool's name.
        tool: String,
        /// The key below it.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// `parameters` is no JSON Schema of an object: exit 5 (A-043).
    #[error("rest.tools.{tool}.parameters: not a JSON Schema of an object: {message}")]
    Schema {
        /// The tool's name.
        tool: String,
        /// What is wrong.
        message: String,
    },
}

/// The declared tools, offered as `rest__NAME`, by name. Resolves their placeholders; `${parameters.x}` stays for the call.
pub fn rest_tools(declared: &BTreeMap<String, config::RestTool>) -> Result<Vec<Arc<dyn Tool>>, RestError> {
    if declared.is_empty() {
        return Ok(Vec::new());
    }
    let client = client().map_err(|error| RestError::Invalid {
        tool: "*".to_owned(),
        key: "url".to_owned(),
        message: format!("no HTTP client: {error}"),
    })?;
    declared
        .iter()
        .map(|(name, tool)| Ok(Arc::new(RestTool::new(name, tool, client.clone())?) as Arc<dyn Tool>))
        .collect()
}

fn client() -> reqwest::Result<Client> {
    tls::http_client()
        .user_agent(concat!("agentd/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // Headers with credentials go to the declared host alone.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// Asks the host of a declared tool for its root, without credentials: any answer will do. Gives the host and port, and
/// whether it answers; `None` where the address is none.
pub async fn answers(tool: &config::RestTool) -> Option<(String, bool)> {
    let start = Template::parse(&tool.url.resolve().ok()?).ok()?;
    let mut url = Url::parse(start.fixed_start()).ok()?;
    let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    url.set_path("/");
    url.set_query(None);
    let _ = (url.set_username(""), url.set_password(None));
    let asked = client().ok()?.head(url).timeout(CONNECT_TIMEOUT).send().await;
    Some((host, asked.is_ok()))
}

/// One declared request.
#[derive(Debug)]
struct RestTool {
    spec: ToolSpec,
    queue: Option<String>,
    client: Client,
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Option<Body>,
    timeout: Option<Duration>,
}

#[derive(Debug)]
enum Body {
    Json(JsonTemplate),
    /// `application/x-www-form-urlencoded`.
    Form(Template),
    Text(Template),
}

impl RestTool {
    fn new(name: &str, tool: &config::RestTool, client: Client) -> Result<Self, RestError> {
        let invalid = |key: &str, message: String| RestError::Invalid {
            tool: name.to_owned(),
            key: key.to_owned(),
            message,
        };
        let offered = format!("rest__{name}");
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if offered.len() > 64 || !offered.chars().all(plain) {
            let message = "a tool's name has letters, digits, `_` and `-`, and at most 58 of them".to_owned();
            return Err(invalid("", message));
        }
        let url = Template::parse(&tool.url.resolve()?).map_err(|message| invalid("url", message))?;
        check_host(&url).map_err(|message| invalid("url", message))?;
        let mut headers = Vec::new();
        for (header, value) in &tool.headers {
            let key = format!("headers.{header}");
            let header = HeaderName::from_bytes(header.as_bytes())
                .map_err(|_| invalid(&key, "not a header's name".to_owned()))?;
            let value = Template::parse(&value.resolve()?).map_err(|message| invalid(&key, message))?;
            headers.push((header, value));
        }
        let content_type = headers
            .iter()
            .find(|(header, _)| header == CONTENT_TYPE)
            .map(|(_, value)| value.fixed_start().to_ascii_lowercase());
        let body = match &tool.body {
            Some(text) => Some(
                Body::parse(&text.resolve()?, content_type.as_deref())
                    .map_err(|message| invalid("body", message))?,
            ),
            None => None,
        };
        let parameters = closed_schema(&tool.parameters)
            .map_err(|message| RestError::Schema { tool: name.to_owned(), message })?;
        let named = [("url".to_owned(), url.arguments().collect::<Vec<_>>())]
            .into_iter()
            .chain(
                headers.iter().map(|(name, value)| (format!("headers.{name}"), value.arguments().collect())),
            )
            .chain(body.iter().map(|body| ("body".to_owned(), body.arguments())));
        for (key, arguments) in named {
            for argument in arguments {
                let first = argument.split('.').next().unwrap_or_default();
                if parameters["properties"].get(first).is_none() {
                    let message = format!("names `parameters.{first}`, which `parameters` does not declare");
                    return Err(invalid(&key, message));
                }
            }
        }
        let declared = parameters["properties"].as_object().into_iter().flat_map(serde_json::Map::keys);
        if let Some(bare) = declared.into_iter().find(|name| url.has_text(&format!("{{{name}}}"))) {
            let message =
                format!("has `{{{bare}}}`; the place of an argument is written `${{parameters.{bare}}}`");
            return Err(invalid("url", message));
        }
        Ok(Self {
            spec: ToolSpec { name: offered, description: tool.description.clone(), parameters },
            queue: tool.queue.clone(),
            client,
            method: match tool.method {
                HttpMethod::Get => Method::GET,
                HttpMethod::Post => Method::POST,
                HttpMethod::Put => Method::PUT,
                HttpMethod::Patch => Method::PATCH,
                HttpMethod::Delete => Method::DELETE,
            },
            url,
            headers,
            body,
            timeout: tool.timeout,
        })
    }

    async fn send(&self, arguments: &Value, limits: CallLimits) -> Result<ToolOutput, ToolError> {
        let limit = self.timeout.map_or(limits.timeout, |own| own.min(limits.timeout));
        let sent = async {
            let response = self.request(arguments)?.send().await.map_err(failed)?;
            answer(response).await
        };
        tokio::time::timeout(limit, sent).await.unwrap_or(Err(ToolError::Timeout))
    }

    fn request(&self, arguments: &Value) -> Result<reqwest::RequestBuilder, ToolError> {
        let text = self.url.fill(arguments, percent_encoded);
        if has_dot_segment(&text) {
            return Err(unfit("an argument in the address's path must not be `.` or `..`"));
        }
        let url = Url::parse(&text).map_err(|error| unfit(&format!("the address is not a URL: {error}")))?;
        let mut request = self.client.request(self.method.clone(), url);
        for (name, value) in &self.headers {
            let value = HeaderValue::from_str(&value.fill(arguments, str::to_owned)).map_err(|_| {
                unfit(&format!("an argument in the header {name} has a line break or control character"))
            })?;
            request = request.header(name, value);
        }
        Ok(match &self.body {
            None => request,
            Some(Body::Json(template)) => {
                let body = template.fill(arguments).unwrap_or(Value::Null).to_string();
                let typed = self.headers.iter().any(|(name, _)| name == CONTENT_TYPE);
                let request = if typed { request } else { request.header(CONTENT_TYPE, "application/json") };
                request.body(body)
            }
            Some(Body::Form(template)) => request.body(template.fill(arguments, percent_encoded)),
            Some(Body::Text(template)) => request.body(template.fill(arguments, str::to_owned)),
        })
    }
}

impl Tool for RestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn source(&self) -> &str {
        "rest"
    }

    fn risk(&self) -> Risk {
        Risk::Network
    }

    fn only_reads(&self) -> bool {
        [Method::GET, Method::HEAD].contains(&self.method)
    }

    fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    fn bound_parameters(&self) -> &[BoundParameter] {
        &[BoundParameter::UserId, BoundParameter::Issue]
    }

    fn call<'a>(&'a self, _permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        Box::pin(self.send(arguments, limits))
    }
}

impl Body {
    fn parse(text: &str, content_type: Option<&str>) -> Result<Self, String> {
        if content_type.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
            return Ok(Self::Form(Template::parse(text)?));
        }
        if content_type.is_some_and(|kind| !kind.contains("json")) {
            return Ok(Self::Text(Template::parse(text)?));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| {
            format!(
                "not JSON ({error}); quote the places of arguments, \"${{parameters.x}}\" alone keeps its type, \
                 or name another content-type in headers"
            )
        })?;
        Ok(Self::Json(JsonTemplate::parse(&value)?))
    }

    fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Json(template) => template.arguments(),
            Self::Form(template) | Self::Text(template) => template.arguments().collect(),
        }
    }
}

/// An argument may stand in the path, the query or the fragment; where a request goes is the configuration's word.
fn check_host(url: &Template) -> Result<(), String> {
    let start = url.fixed_start();
    let parsed =
        Url::parse(start).map_err(|error| format!("does not begin with a fixed address: {error}"))?;
    let scheme = matches!(parsed.scheme(), "http" | "https");
    let ended = start.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?', '#']));
    match (scheme, ended || url.arguments().next().is_none()) {
        (false, _) => Err("is not an http or https address".to_owned()),
        (_, false) => Err("has an argument in its host; arguments may stand after the host only".to_owned()),
        _ => Ok(()),
    }
}

/// Whether URL parsers would take a segment of the path for a step up.
fn has_dot_segment(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

fn unfit(message: &str) -> ToolError {
    ToolError::ForModel { error_type: "Validation".into(), message: message.to_owned() }
}

fn failed(error: reqwest::Error) -> ToolError {
    if error.is_timeout() && !error.is_connect() {
        return ToolError::Timeout;
    }
    let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
    // The address may hold credentials, so it is not said.
    ToolError::for_model(format!("the service {what}"))
}

async fn answer(mut response: Response) -> Result<ToolOutput, ToolError> {
    let status = response.status();
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let mut bytes = Vec::new();
    let mut cut = false;
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        let room = MAX_ANSWER - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            cut = true;
            break;
        }
    }
    let mut text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
        Err(error) => format!("[{kind}, {} bytes]", error.as_bytes().len()),
    };
    if !status.is_success() {
        let location = response.headers().get(LOCATION).is_some() && status.is_redirection();
        return Err(refused(status, location, &text));
    }
    if cut {
        text.push_str(&format!("\n[cut after {MAX_ANSWER} bytes]"));
    }
    Ok(ToolOutput { text, exit_code: None, facts: Some(json!({ "http_status": status.as_u16() })) })
}

fn refused(status: StatusCode, redirected: bool, text: &str) -> ToolError {
    let error_type = match status.as_u16() {
        401 | 403 => "UnauthorizedAccess",
        404 | 410 => "ResourceNotFound",
        400 | 422 => "Validation",
        _ => "ToolExecutionError",
    };
    let mut message = format!("HTTP {}", status.as_u16());
    if redirected {
        message.push_str(": it redirects, and redirects are not followed");
    } else if !text.trim().is_empty() {
        let start: String = text.trim().chars().take(MAX_REFUSAL).collect();
        message = format!("{message}: {start}");
    }
    ToolError::ForModel { error_type: error_type.into(), message }
}

#[cfg(test)]
mod tests {

    use axum::Router;
    use axum::body::{Body as AxumBody, Bytes};
    use axum::http::{HeaderMap, Method as AxumMethod, Response as AxumResponse, Uri};

    use super::*;
    use crate::config::{Config, Env, Request};

    /// Says what it was asked; paths have their own answers.
    async fn echo(method: AxumMethod, uri: Uri, headers: HeaderMap, body: Bytes) -> AxumResponse<AxumBody> {
        let answer = |status: u16, body: AxumBody| {
            AxumResponse::builder()
                .status(status)
                .header("location", "http://127.0.0.1:9/")
                .body(body)
                .unwrap()
        };
        match uri.path() {
            "/missing" => return answer(404, AxumBody::from("no such thing")),
            "/moved" => return answer(302, AxumBody::empty()),
            "/long" => return answer(200, AxumBody::from("é".repeat(MAX_ANSWER))),
            "/binary" => return answer(200, AxumBody::from(vec![0xff, 0xfe])),
            "/slow" => tokio::time::sleep(Duration::from_secs(30)).await,
            _ => {}
        }
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let told = json!({
            "method": method.as_str(), "uri": uri.to_string(), "key": header("x-key"), "type": header("content-type"),
            "body": String::from_utf8(body.to_vec()).unwrap(),
        });
        answer(200, AxumBody::from(told.to_string()))
    }

    async fn server() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(echo)).await });
        base
    }

    /// The tools of a configuration file, with `KEY` in the environment.
    fn declared(toml: &str) -> Result<Vec<RestTool>, RestError> {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(folder.path().join("agentd.toml")).unwrap();
        std::io::Write::write_all(&mut file, toml.as_bytes()).unwrap();
        let env = Env::new(folder.path(), [("KEY", "sentinel key")]);
        let request = Request {
            explicit: None,
            base: folder.path(),
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        let config = Config::load(request).unwrap();
        let offered = rest_tools(&config.rest_tools)?;
        assert_eq!(offered.len(), config.rest_tools.len());
        config.rest_tools.iter().map(|(name, tool)| RestTool::new(name, tool, client())).collect()
    }

    fn client() -> Client {
        Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap()
    }

    fn one(rest: &str) -> Result<RestTool, RestError> {
        declared(&format!("[rest.tools.t]\ndescription = \"d\"\n{rest}")).map(|mut tools| tools.remove(0))
    }

    const LIMITS: CallLimits = CallLimits { timeout: Duration::from_secs(10), max_inline_bytes: 12_288 };

    async fn told(tool: &RestTool, arguments: Value) -> Result<Value, ToolError> {
        let output = tool.send(&arguments, LIMITS).await?;
        assert_eq!(output.facts, Some(json!({ "http_status": 200 })));
        Ok(serde_json::from_str(&output.text).unwrap())
    }

    #[test]
    fn d78_only_a_request_that_reads_is_known_to_read() {
        for (method, reads) in [("GET", true), ("POST", false), ("PUT", false), ("DELETE", false)] {
            let tool = one(&format!("method = \"{method}\"\nurl = \"http://127.0.0.1:9/\"")).unwrap();
            assert_eq!(tool.only_reads(), reads, "{method}");
        }
    }

    #[tokio::test]
    async fn a_093_arguments_go_into_address_headers_and_body_at_call_time() {
        let base = server().await;
        let tool = one(&format!(
            r#"
method = "POST"
url = "{base}/items/${{parameters.id}}?q=${{parameters.q}}&k=${{KEY}}"
body = '{{ "n": "${{parameters.n}}", "text": "It is ${{parameters.q}}", "none": "${{parameters.none}}" }}'
headers = {{ "x-key" = "Key ${{KEY}} for ${{parameters.id}}" }}
[rest.tools.t.parameters.properties]
id = {{ type = "string" }}
q = {{ type = "string" }}
n = {{ type = "integer" }}
none = {{ type = "string" }}
"#
        ))
        .unwrap();
        assert_eq!(tool.spec().name, "rest__t");
        assert_eq!(tool.spec().parameters["additionalProperties"], false);
        assert_eq!((tool.source(), tool.risk()), ("rest", Risk::Network));
        let asked = told(&tool, json!({ "id": "a/../b", "q": "x&y=${KEY} \"z\"", "n": 7 })).await.unwrap();
        assert_eq!(asked["method"], "POST");
        assert_eq!(asked["uri"], "/items/a%2F..%2Fb?q=x%26y%3D%24%7BKEY%7D%20%22z%22&k=sentinel%20key");
        assert_eq!(asked["key"], "Key sentinel key for a/../b");
        assert_eq!(asked["type"], "application/json");
        let body: Value = serde_json::from_str(asked["body"].as_str().unwrap()).unwrap();
        assert_eq!(body, json!({ "n": 7, "text": "It is x&y=${KEY} \"z\"" }));
    }

    #[tokio::test]
    async fn an_argument_cannot_climb_the_path_or_split_a_header() {
        let base = server().await;
        let tool = one(&format!(
            "url = \"{base}/items/${{parameters.id}}/x\"\nheaders = {{ x-key = \"${{parameters.id}}\" }}\nparameters = {{ properties = {{ id = {{}} }} }}"
        ))
        .unwrap();
        for bad in ["..", ".", "a\r\nx: y"] {
            let error = told(&tool, json!({ "id": bad })).await.unwrap_err();
            assert!(
                matches!(&error, ToolError::ForModel { error_type, .. } if error_type == "Validation"),
                "{error:?}"
            );
        }
        assert_eq!(told(&tool, json!({ "id": "..." })).await.unwrap()["uri"], "/items/.../x");
    }

    #[tokio::test]
    async fn forms_and_texts_have_their_own_encoding() {
        let base = server().await;
        let with = |kind: &str| {
            one(&format!(
                "method = \"PUT\"\nurl = \"{base}/\"\nbody = \"a=${{parameters.a}}\"\nheaders = {{ content-type = \"{kind}\" }}\nparameters = {{ properties = {{ a = {{}} }} }}"
            ))
        };
        let form = with("application/x-www-form-urlencoded").unwrap();
        assert_eq!(told(&form, json!({ "a": "x y&z" })).await.unwrap()["body"], "a=x%20y%26z");
        let text = with("text/plain").unwrap();
        assert_eq!(told(&text, json!({ "a": "x y&z" })).await.unwrap()["body"], "a=x y&z");
        assert!(with("application/json").unwrap_err().to_string().contains("rest.tools.t.body: not JSON"));
    }

    #[tokio::test]
    async fn refusals_have_a_class_and_answers_a_limit() {
        let base = server().await;
        let tool = one(&format!(
            "url = \"{base}/${{parameters.what}}\"\ntimeout = \"300ms\"\nparameters = {{ properties = {{ what = {{}} }} }}"
        ))
        .unwrap();
        let ask = async |what: &str| tool.send(&json!({ "what": what }), LIMITS).await;
        let missing = ToolError::ForModel {
            error_type: "ResourceNotFound".into(),
            message: "HTTP 404: no such thing".into(),
        };
        assert_eq!(ask("missing").await.unwrap_err(), missing);
        assert!(ask("moved").await.unwrap_err().to_string().contains("redirects are not followed"));
        assert_eq!(ask("slow").await.unwrap_err(), ToolError::Timeout);
        assert_eq!(ask("binary").await.unwrap().text, "[, 2 bytes]");
        let patient = RestTool { timeout: None, ..tool };
        let long = patient.send(&json!({ "what": "long" }), LIMITS).await.unwrap().text;
        assert!(long.ends_with("\n[cut after 8388608 bytes]"), "{}", long.len());
        let gone = RestTool { url: Template::parse("http://127.0.0.1:9/?k=sentinel").unwrap(), ..patient };
        let error = gone.send(&json!({}), LIMITS).await.unwrap_err();
        assert_eq!(error, ToolError::for_model("the service cannot be reached"));
    }

    #[test]
    fn a_declaration_that_cannot_work_is_named_by_its_key() {
        let cases = [
            ("url = \"ftp://h/\"", "rest.tools.t.url: is not an http"),
            ("url = \"https://${parameters.h}/x\"", "rest.tools.t.url: "),
            ("url = \"https://h.${parameters.h}/x\"", "rest.tools.t.url: has an argument in its host"),
            ("url = \"https://h/${parameters.id\"", "has no closing brace"),
            ("url = \"https://h/${parameters.id}\"", "rest.tools.t.url: names `parameters.id`"),
            (
                "url = \"https://h/users/{id}\"\nparameters = { properties = { id = {} } }",
                "rest.tools.t.url: has `{id}`; the place of an argument is written `${parameters.id}`",
            ),
            (
                "url = \"https://h/\"\nparameters = { type = 42 }",
                "rest.tools.t.parameters: not a JSON Schema",
            ),
            ("url = \"https://h/${NOT_SET}\"", "NOT_SET"),
        ];
        for (declaration, expected) in cases {
            let error = one(declaration).unwrap_err().to_string();
            assert!(error.contains(expected), "{declaration}: {error}");
        }
    }
}
