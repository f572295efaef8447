//! What fields are asked of, what they give, and pages of lists.

use serde_json::{Map, Value};

use crate::sim::call::Call;
use crate::sim::world::{TextPlace, World};

/// Something fields can be asked of.
#[derive(Debug, Clone)]
pub enum Node {
    /// The root of queries.
    Query,
    /// The root of mutations.
    Mutation,
    /// What a mutation returns: the type's name, what was changed, and the caller's id.
    Payload(&'static str, Box<Self>, Value),
    /// What is left of the limit.
    RateLimit,
    /// An account by login.
    User(String),
    /// An App's account by login.
    Bot(String),
    /// A revision of a text: repository, text, place.
    Edit(usize, TextPlace, usize),
    /// A change of a title: repository, issue, place among the events.
    Rename(usize, u64, usize),
    /// A repository by index.
    Repository(usize),
    /// A branch: repository and name.
    Branch(usize, String),
    /// A commit: repository and id.
    Commit(usize, String),
    /// What is said of a commit: repository and commit id.
    Rollup(usize, String),
    /// A check run: repository and id.
    CheckRun(usize, u64),
    /// A commit status: repository and id.
    Status(usize, u64),
    /// The suite of a check run: repository and the check run's id.
    Suite(usize, u64),
    /// The workflow run that the suite of a check run is of.
    WorkflowRun(usize, u64),
    /// The workflow of that.
    Workflow(usize, u64),
    /// A label: repository and name.
    Label(usize, String),
    /// An issue: repository and number.
    Issue(usize, u64),
    /// A pull request: repository and number.
    Pull(usize, u64),
    /// A comment or review: repository and place.
    Text(usize, TextPlace),
    /// A thread: repository, pull request, place.
    Thread(usize, u64, usize),
    /// A card: repository, issue, place.
    Item(usize, u64, usize),
    /// The project of a card.
    Project(usize, u64, usize),
    /// A value on a card: the type's name, repository, issue, card, place.
    Value(&'static str, usize, u64, usize, usize),
    /// The field of such a value, with the field's type.
    Field(&'static str, usize, u64, usize, usize),
    /// A page of a list: the connection's type, its nodes with their places, how many there are in all, and before and after it.
    Connection(&'static str, Vec<(usize, Self)>, usize),
    /// An entry of a list with its place.
    Edge(&'static str, usize, Box<Self>),
    /// Where a page stands: first place, place after the last, total.
    PageInfo(usize, usize, usize),
}

/// A field's value.
#[derive(Debug)]
pub enum Found {
    /// A scalar, an enum's value, or a list of them.
    Leaf(Value),
    /// An object.
    Node(Node),
    /// A list of objects.
    Nodes(Vec<Node>),
    /// Null.
    Nothing,
}

/// Why a field has no value.
#[derive(Debug)]
pub struct Problem {
    /// GitHub's `type`.
    pub kind: &'static str,
    /// GitHub's words.
    pub message: String,
}

impl Problem {
    /// A problem in GitHub's words.
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// What a field gives.
pub type Resolved = Result<Found, Problem>;
/// A field's arguments by name.
pub type Arguments = Map<String, Value>;

impl Node {
    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Mutation => "Mutation",
            Self::Payload(name, ..)
            | Self::Connection(name, ..)
            | Self::Edge(name, ..)
            | Self::Value(name, ..)
            | Self::Field(name, ..) => name,
            Self::RateLimit => "RateLimit",
            Self::User(_) => "User",
            Self::Bot(_) => "Bot",
            Self::Edit(..) => "UserContentEdit",
            Self::Rename(..) => "RenamedTitleEvent",
            Self::Repository(_) => "Repository",
            Self::Branch(..) => "Ref",
            Self::Commit(..) => "Commit",
            Self::Rollup(..) => "StatusCheckRollup",
            Self::CheckRun(..) => "CheckRun",
            Self::Status(..) => "StatusContext",
            Self::Suite(..) => "CheckSuite",
            Self::WorkflowRun(..) => "WorkflowRun",
            Self::Workflow(..) => "Workflow",
            Self::Label(..) => "Label",
            Self::Issue(..) => "Issue",
            Self::Pull(..) => "PullRequest",
            Self::Text(_, TextPlace::Comment(..)) => "IssueComment",
            Self::Text(_, TextPlace::Review(..)) => "PullRequestReview",
            Self::Text(_, TextPlace::Thread(..)) => "PullRequestReviewComment",
            // A body is of its issue.
            Self::Text(_, TextPlace::Body(_)) => "Issue",
            Self::Thread(..) => "PullRequestReviewThread",
            Self::Item(..) => "ProjectV2Item",
            Self::Project(..) => "ProjectV2",
            Self::PageInfo(..) => "PageInfo",
        }
    }
}

/// A scalar.
pub fn leaf(value: impl Into<Value>) -> Resolved {
    Ok(Found::Leaf(value.into()))
}

/// An object, or null.
pub fn some(node: Option<Node>) -> Resolved {
    Ok(node.map_or(Found::Nothing, Found::Node))
}

/// An account; GitHub's `null` for one that is gone.
pub fn actor(login: &str) -> Resolved {
    some(match login {
        "" => None,
        login if login.ends_with("[bot]") => Some(Node::Bot(login.to_owned())),
        login => Some(Node::User(login.to_owned())),
    })
}

/// The address of an issue or pull request for people.
pub fn url(world: &World, call: &Call, repo: usize, number: u64) -> String {
    let repo = &world.repositories[repo];
    let kind = if repo.issues[&number].pull.is_some() { "pull" } else { "issues" };
    format!("{}/{}/{kind}/{number}", call.html, repo.full_name())
}

/// What names a place in a list.
pub fn cursor(place: usize) -> String {
    format!("cursor:{place}")
}

/// One page of a list, by GitHub's rules: `first` or `last` is needed, and no more than 100.
pub fn page(name: &'static str, field: &str, nodes: Vec<Node>, arguments: &Arguments) -> Resolved {
    let number = |name: &str| arguments.get(name).and_then(Value::as_u64);
    let place = |name: &str| -> Option<usize> {
        arguments.get(name).and_then(Value::as_str)?.strip_prefix("cursor:")?.parse().ok()
    };
    let total = nodes.len();
    let start = place("after").map_or(0, |place| place + 1);
    let end = place("before").unwrap_or(total).min(total);
    let mut kept: Vec<(usize, Node)> =
        nodes.into_iter().enumerate().filter(|(place, _)| *place >= start && *place < end).collect();
    let (Some(size), forward) = (number("first").or(number("last")), number("first").is_some()) else {
        let message = format!(
            "You must provide a `first` or `last` value to properly paginate the `{field}` connection."
        );
        return Err(Problem::new("MISSING_PAGINATION_BOUNDARIES", message));
    };
    if size > 100 {
        let side = if forward { "first" } else { "last" };
        let message = format!(
            "Requesting {size} records on the `{field}` connection exceeds the `{side}` limit of 100 records."
        );
        return Err(Problem::new("EXCESSIVE_PAGINATION", message));
    }
    let size = usize::try_from(size).unwrap_or(100);
    if forward {
        kept.truncate(size);
    } else {
        kept.drain(..kept.len().saturating_sub(size));
    }
    Ok(Found::Node(Node::Connection(name, kept, total)))
}
