//! One request to the simulated GitHub, and the replies and errors it can get.

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::domain::percent::percent_encoded;
use crate::sim::world::{Repository, Token, World};

/// A request, taken apart.
#[derive(Debug)]
pub struct Call {
    /// Method in upper case.
    pub method: String,
    /// Decoded path segments below the API's root.
    pub path: Vec<String>,
    /// Decoded query.
    pub query: Vec<(String, String)>,
    /// Headers.
    pub headers: HeaderMap,
    /// Raw body.
    pub body: Vec<u8>,
    /// URL of the API's root as the caller knows it, without a slash at the end.
    pub api: String,
    /// URL for people, without a slash at the end.
    pub html: String,
    /// The caller, once recognised.
    pub token: Option<Token>,
}

/// What goes back.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers beyond the usual ones.
    pub headers: Vec<(String, String)>,
    /// JSON; `None` = no body.
    pub body: Option<Value>,
}

/// A reply, or the error that is one.
pub type Outcome = Result<Reply, Reply>;

impl Reply {
    /// 200 with JSON.
    pub fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: Some(body) }
    }

    /// 201 with JSON; `Location` is its `url`.
    pub fn created(body: Value) -> Self {
        let url = body.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { status: 201, headers: vec![("location".to_owned(), url)], body: Some(body) }
    }

    /// 204.
    pub fn no_content() -> Self {
        Self { status: 204, headers: Vec::new(), body: None }
    }

    /// An error as GitHub words it.
    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": status.to_string(),
        });
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    /// 404.
    pub fn not_found() -> Self {
        Self::error(404, "Not Found")
    }

    /// 422 with one entry in `errors`.
    pub fn invalid(resource: &str, field: &str, code: &str, message: Option<&str>) -> Self {
        let mut entry = json!({"resource": resource, "code": code, "field": field});
        if let (Some(message), Some(entry)) = (message, entry.as_object_mut()) {
            entry.insert("message".to_owned(), json!(message));
        }
        let mut reply = Self::error(422, "Validation Failed");
        if let Some(body) = reply.body.as_mut().and_then(Value::as_object_mut) {
            body.insert("errors".to_owned(), json!([entry]));
        }
        reply
    }
}

impl Call {
    /// A query parameter's value.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Refuses query parameters that this route does not have.
    pub fn takes_query(&self, world: &mut World, known: &[&str]) -> Result<(), Reply> {
        for (name, _) in &self.query {
            if !known.contains(&name.as_str()) {
                world.violation(format!(
                    "{} /{}: unknown query parameter `{name}` (known here: {})",
                    self.method,
                    self.path.join("/"),
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") },
                ));
                return Err(Reply::invalid("Query", name, "unknown", None));
            }
        }
        Ok(())
    }

    /// The body as an object; refuses fields that this route does not have.
    pub fn takes_body(&self, world: &mut World, known: &[&str]) -> Result<Map<String, Value>, Reply> {
        let refuse = |world: &mut World, text: String| {
            world.violation(format!("{} /{}: {text}", self.method, self.path.join("/")));
        };
        if self.body.is_empty() {
            return Ok(Map::new());
        }
        let object = match serde_json::from_slice(&self.body) {
            Ok(Value::Object(object)) => object,
            Ok(_) => {
                refuse(world, "the body is not a JSON object".to_owned());
                return Err(Reply::error(
                    422,
                    "Invalid request.\n\nFor 'links/0/schema', the body is not an object.",
                ));
            }
            Err(error) => {
                refuse(world, format!("the body is not JSON: {error}"));
                return Err(Reply::error(400, "Problems parsing JSON"));
            }
        };
        for name in object.keys() {
            if !known.contains(&name.as_str()) {
                refuse(world, format!("unknown body field `{name}` (known here: {})", known.join(", ")));
                return Err(Reply::invalid("Body", name, "unknown", None));
            }
        }
        Ok(object)
    }

    /// The login that acts; anonymous callers have none.
    pub fn login(&self) -> Result<&str, Reply> {
        self.token
            .as_ref()
            .map(|token| token.login.as_str())
            .ok_or_else(|| Reply::error(401, "Requires authentication"))
    }

    /// The repository's index, when the caller sees it.
    pub fn repository(&self, world: &World, owner: &str, name: &str) -> Result<usize, Reply> {
        let index = world.repository_index(owner, name).ok_or_else(Reply::not_found)?;
        let repo = &world.repositories[index];
        world.allows(self.token.as_ref(), repo, "metadata", "read").ok_or_else(Reply::not_found)?;
        Ok(index)
    }

    /// Refuses a caller without the permission, in GitHub's words.
    pub fn needs(
        &self,
        world: &World,
        repo: &Repository,
        permission: &str,
        level: &str,
    ) -> Result<(), Reply> {
        match world.allows(self.token.as_ref(), repo, permission, level) {
            Some(true) if level == "write" && repo.archived => {
                Err(Reply::error(403, "Repository was archived so is read-only."))
            }
            Some(true) => Ok(()),
            Some(false) => {
                self.login()?;
                let app = self.token.as_ref().is_some_and(|token| token.installation.is_some());
                let by = if app { "integration" } else { "personal access token" };
                let mut reply = Reply::error(403, &format!("Resource not accessible by {by}"));
                reply
                    .headers
                    .push(("x-accepted-github-permissions".to_owned(), format!("{permission}={level}")));
                Err(reply)
            }
            None => Err(Reply::not_found()),
        }
    }

    /// One page of a list, with the `Link` header where there is more than one page.
    pub fn page(&self, repo_id: Option<u64>, items: Vec<Value>) -> Outcome {
        let number = |name: &str, default: usize| match self.query(name) {
            None => Ok(default),
            Some(text) => text.parse::<usize>().map_err(|_| Reply::invalid("Query", name, "invalid", None)),
        };
        let per_page = number("per_page", 30)?.clamp(1, 100);
        let page = number("page", 1)?.max(1);
        let last = items.len().div_ceil(per_page).max(1);
        let total: Vec<Value> = items.into_iter().skip((page - 1) * per_page).take(per_page).collect();
        let mut reply = Reply::ok(Value::Array(total));
        let mut links = Vec::new();
        let mut link =
            |to: usize, rel: &str| links.push(format!("<{}>; rel=\"{rel}\"", self.page_url(repo_id, to)));
        if page > 1 {
            link(page.min(last + 1) - 1, "prev");
        }
        if page < last {
            link(page + 1, "next");
            link(last, "last");
        }
        if page > 1 {
            link(1, "first");
        }
        if !links.is_empty() {
            reply.headers.push(("link".to_owned(), links.join(", ")));
        }
        Ok(reply)
    }

    /// The URL of another page, by the repository's id as GitHub writes it, so that nobody builds such URLs.
    fn page_url(&self, repo_id: Option<u64>, page: usize) -> String {
        let path = match (repo_id, self.path.as_slice()) {
            (Some(id), [_, _, _, rest @ ..]) => format!("repositories/{id}/{}", rest.join("/")),
            _ => self.path.join("/"),
        };
        let mut query: Vec<String> = self
            .query
            .iter()
            .filter(|(name, _)| name != "page")
            .map(|(name, value)| format!("{}={}", percent_encoded(name), percent_encoded(value)))
            .collect();
        query.push(format!("page={page}"));
        format!("{}/{path}?{}", self.api, query.join("&"))
    }
}

/// Undoes percent-encoding.
pub fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Takes a query string apart.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}
