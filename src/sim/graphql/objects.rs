//! The objects of the GraphQL API over the simulated state: what each field of each type is.

use chrono::TimeDelta;
use serde_json::{Map, Value, json};

use crate::sim::bare;
use crate::sim::call::Call;
use crate::sim::rest::pulls;
use crate::sim::rest::shapes::{option_id, time};
use crate::sim::world::{FieldContent, Issue, ProjectItem, Repository, World};

/// Something fields can be asked of.
#[derive(Debug, Clone)]
pub enum Node {
    /// The root of queries.
    Query,
    /// The root of mutations.
    Mutation,
    /// What a mutation returns: the type's name and the pull request.
    Payload(&'static str, Box<Self>, Value),
    /// What is left of the limit.
    RateLimit,
    /// An account by login.
    User(String),
    /// An App's account by login.
    Bot(String),
    /// A revision of a body: repository, issue, place.
    Edit(usize, u64, usize),
    /// A change of a title: repository, issue, place among the events.
    Rename(usize, u64, usize),
    /// A repository by index.
    Repository(usize),
    /// A branch: repository and name.
    Branch(usize, String),
    /// A commit id.
    Commit(String),
    /// A label: repository and name.
    Label(usize, String),
    /// An issue: repository and number.
    Issue(usize, u64),
    /// A pull request: repository and number.
    Pull(usize, u64),
    /// A comment: repository, issue, place.
    Comment(usize, u64, usize),
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
    fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

type Resolved = Result<Found, Problem>;
type Arguments = Map<String, Value>;

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
            Self::Commit(_) => "GitObject",
            Self::Label(..) => "Label",
            Self::Issue(..) => "Issue",
            Self::Pull(..) => "PullRequest",
            Self::Comment(..) => "IssueComment",
            Self::Item(..) => "ProjectV2Item",
            Self::Project(..) => "ProjectV2",
            Self::PageInfo(..) => "PageInfo",
        }
    }
}

fn leaf(value: impl Into<Value>) -> Resolved {
    Ok(Found::Leaf(value.into()))
}

fn some(node: Option<Node>) -> Resolved {
    Ok(node.map_or(Found::Nothing, Found::Node))
}

/// A field of an object.
pub fn resolve(world: &mut World, call: &Call, node: &Node, field: &str, arguments: &Arguments) -> Resolved {
    match node {
        Node::Query => query(world, call, field, arguments),
        Node::Mutation => mutation(world, call, field, arguments),
        Node::Payload(_, pull, mutation_id) => match field {
            "pullRequest" => Ok(Found::Node((**pull).clone())),
            _ => Ok(Found::Leaf(mutation_id.clone())),
        },
        Node::RateLimit => rate_limit(world, call, field),
        Node::Edit(repo, number, place) => edit(world, (*repo, *number, *place), field),
        Node::Rename(repo, number, place) => rename(world, (*repo, *number, *place), field),
        Node::User(login) | Node::Bot(login) => {
            let user = world.user(login);
            match field {
                "id" => leaf(format!("U_{}", user.id)),
                "databaseId" => leaf(user.id),
                "name" => Ok(Found::Leaf(json!(user.name))),
                "url" => leaf(format!("{}/{login}", call.html)),
                // GraphQL leaves an App's suffix out.
                _ => leaf(user.login.trim_end_matches("[bot]")),
            }
        }
        Node::Repository(repo) => repository(world, call, *repo, field, arguments),
        Node::Branch(repo, name) => match field {
            "id" => leaf(format!("REF_{name}")),
            "prefix" => leaf("refs/heads/"),
            "target" => some(bare::head(&world.repositories[*repo].git_dir, name).map(Node::Commit)),
            _ => leaf(name.clone()),
        },
        Node::Commit(id) => leaf(id.clone()),
        Node::Label(repo, name) => {
            let Some(label) = world.repositories[*repo].label(name) else { return Ok(Found::Nothing) };
            match field {
                "id" => leaf(format!("LA_{}", label.id)),
                "color" => leaf(label.color.clone()),
                "description" => Ok(Found::Leaf(json!(label.description))),
                _ => leaf(label.name.clone()),
            }
        }
        Node::Issue(repo, number) | Node::Pull(repo, number) => {
            issue(world, call, (*repo, *number), field, arguments)
        }
        Node::Comment(repo, number, place) => comment(world, call, (*repo, *number, *place), field),
        Node::Item(repo, number, place) => item(world, (*repo, *number, *place), field, arguments),
        Node::Project(..) | Node::Value(..) | Node::Field(..) => on_card(world, call, node, field),
        Node::Connection(_, page, total) => connection(node, page, *total, field),
        Node::Edge(_, place, inner) => match field {
            "cursor" => leaf(cursor(*place)),
            _ => Ok(Found::Node((**inner).clone())),
        },
        Node::PageInfo(start, end, total) => match field {
            "hasNextPage" => leaf(end < total),
            "hasPreviousPage" => leaf(*start > 0),
            "startCursor" if end > start => leaf(cursor(*start)),
            "endCursor" if end > start => leaf(cursor(end - 1)),
            _ => Ok(Found::Nothing),
        },
    }
}

/// An account; GitHub's `null` for one that is gone.
fn actor(login: &str) -> Resolved {
    some(match login {
        "" => None,
        login if login.ends_with("[bot]") => Some(Node::Bot(login.to_owned())),
        login => Some(Node::User(login.to_owned())),
    })
}

fn edit(world: &World, (repo, number, place): (usize, u64, usize), field: &str) -> Resolved {
    let edit = &world.repositories[repo].issues[&number].edits[place];
    match field {
        "id" => leaf(format!("UCE_{}", edit.id)),
        "createdAt" | "updatedAt" | "editedAt" => leaf(time(edit.at)),
        "editor" => actor(&edit.editor),
        "deletedAt" if edit.body.is_none() => leaf(time(edit.at)),
        "diff" => Ok(Found::Leaf(json!(edit.body))),
        _ => Ok(Found::Nothing),
    }
}

fn rename(world: &World, (repo, number, place): (usize, u64, usize), field: &str) -> Resolved {
    let event = &world.repositories[repo].issues[&number].events[place];
    let (from, to) = event.rename.clone().unwrap_or_default();
    match field {
        "id" => leaf(format!("RTE_{}", event.id)),
        "createdAt" => leaf(time(event.at)),
        "actor" => actor(&event.actor),
        "previousTitle" => leaf(from),
        _ => leaf(to),
    }
}

fn comment(world: &World, call: &Call, (repo, number, place): (usize, u64, usize), field: &str) -> Resolved {
    let comment = &world.repositories[repo].issues[&number].comments[place];
    match field {
        "id" => leaf(format!("IC_{}", comment.id)),
        "databaseId" => leaf(comment.id),
        "author" => Ok(Found::Node(Node::User(comment.author.clone()))),
        "createdAt" => leaf(time(comment.created_at)),
        "updatedAt" => leaf(time(comment.updated_at)),
        "url" => leaf(format!("{}#issuecomment-{}", url(world, call, repo, number), comment.id)),
        _ => leaf(comment.body.clone()),
    }
}

/// A card's project, or one of its values, or that value's field.
fn on_card(world: &World, call: &Call, node: &Node, field: &str) -> Resolved {
    match node {
        Node::Project(repo, number, place) => {
            let owner = &world.repositories[*repo].owner;
            let item = &world.repositories[*repo].issues[number].projects[*place];
            match field {
                "id" => leaf(format!("PVT_{}", item.number)),
                "databaseId" | "number" => leaf(item.number),
                "closed" => leaf(false),
                "url" => leaf(format!("{}/users/{owner}/projects/{}", call.html, item.number)),
                _ => leaf(item.title.clone()),
            }
        }
        Node::Value(_, repo, number, place, inner) => {
            let value = &world.repositories[*repo].issues[number].projects[*place].fields[*inner];
            match (field, &value.value) {
                ("id", _) => leaf(format!("PVTFV_{}", value.id)),
                ("databaseId", _) => leaf(value.id),
                ("field", content) => {
                    let kind = match content {
                        FieldContent::SingleSelect(_) => "ProjectV2SingleSelectField",
                        _ => "ProjectV2Field",
                    };
                    Ok(Found::Node(Node::Field(kind, *repo, *number, *place, *inner)))
                }
                ("optionId", FieldContent::SingleSelect(name)) => leaf(format!("{:08x}", option_id(name))),
                (
                    _,
                    FieldContent::Text(text) | FieldContent::SingleSelect(text) | FieldContent::Date(text),
                ) => leaf(text.clone()),
                (_, FieldContent::Number(number)) => leaf(*number),
            }
        }
        Node::Field(_, repo, number, place, inner) => {
            let value = &world.repositories[*repo].issues[number].projects[*place].fields[*inner];
            match field {
                "id" => leaf(format!("PVTF_{}", value.id)),
                "databaseId" => leaf(value.id),
                "dataType" => leaf(match value.value {
                    FieldContent::Text(_) => "TEXT",
                    FieldContent::SingleSelect(_) => "SINGLE_SELECT",
                    FieldContent::Number(_) => "NUMBER",
                    FieldContent::Date(_) => "DATE",
                }),
                _ => leaf(value.name.clone()),
            }
        }
        _ => Ok(Found::Nothing),
    }
}

fn query(world: &mut World, call: &Call, field: &str, arguments: &Arguments) -> Resolved {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    match field {
        "viewer" => some(call.token.as_ref().map(|token| Node::User(token.login.clone()))),
        "rateLimit" => Ok(Found::Node(Node::RateLimit)),
        "repository" => {
            let (owner, name) = (text("owner"), text("name"));
            let found = call.repository(world, owner, name).map_err(|_| {
                let message = format!("Could not resolve to a Repository with the name '{owner}/{name}'.");
                Problem::new("NOT_FOUND", message)
            })?;
            pulls::refresh(world, found);
            Ok(Found::Node(Node::Repository(found)))
        }
        _ => {
            let id = text("id");
            let found = by_id(world, call, id);
            found.map(Found::Node).ok_or_else(|| {
                Problem::new(
                    "NOT_FOUND",
                    format!("Could not resolve to a node with the global id of '{id}'."),
                )
            })
        }
    }
}

/// An issue, pull request or repository by its node id, where the caller sees it.
fn by_id(world: &World, call: &Call, id: &str) -> Option<Node> {
    let (kind, number) = id.split_once('_')?;
    let number: u64 = number.parse().ok()?;
    for (index, repo) in world.repositories.iter().enumerate() {
        if call.repository(world, &repo.owner, &repo.name).is_err() {
            continue;
        }
        if kind == "R" && repo.id == number {
            return Some(Node::Repository(index));
        }
        let edit_of = |issue: &Issue| issue.edits.iter().position(|edit| kind == "UCE" && edit.id == number);
        let mut issues = repo.issues.values();
        if let Some((issue, place)) = issues.find_map(|issue| Some((issue.number, edit_of(issue)?))) {
            return Some(Node::Edit(index, issue, place));
        }
        if let Some(issue) = repo.issues.values().find(|issue| issue.id == number) {
            return match (kind, &issue.pull) {
                ("PR", Some(_)) => Some(Node::Pull(index, issue.number)),
                ("I", None) => Some(Node::Issue(index, issue.number)),
                _ => None,
            };
        }
    }
    None
}

fn mutation(world: &mut World, call: &Call, field: &str, arguments: &Arguments) -> Resolved {
    let input = arguments.get("input").cloned().unwrap_or_default();
    let id = input["pullRequestId"].as_str().unwrap_or_default();
    let Some(node @ Node::Pull(repo, number)) = by_id(world, call, id) else {
        return Err(Problem::new(
            "NOT_FOUND",
            format!("Could not resolve to a node with the global id of '{id}'."),
        ));
    };
    if call.needs(world, &world.repositories[repo], "pull_requests", "write").is_err() {
        let login = call.token.as_ref().map_or("", |token| token.login.as_str());
        let message = format!("{login} does not have the correct permissions to execute `{field}`");
        return Err(Problem::new("FORBIDDEN", message));
    }
    let (draft, payload) = match field {
        "markPullRequestReadyForReview" => (false, "MarkPullRequestReadyForReviewPayload"),
        _ => (true, "ConvertPullRequestToDraftPayload"),
    };
    let at = world.now();
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        if !issue.open {
            return Err(Problem::new("UNPROCESSABLE", "Pull request is closed"));
        }
        issue.updated_at = at;
        if let Some(pull) = &mut issue.pull {
            pull.draft = draft;
        }
    }
    Ok(Found::Node(Node::Payload(payload, Box::new(node), input["clientMutationId"].clone())))
}

fn rate_limit(world: &World, call: &Call, field: &str) -> Resolved {
    let login = call.token.as_ref().map(|token| token.login.clone()).unwrap_or_default();
    let used = world.limits.used.get(&(login, "graphql".to_owned())).copied().unwrap_or(0);
    match field {
        "limit" => leaf(world.limits.per_hour),
        "cost" => leaf(1),
        "remaining" => leaf(world.limits.per_hour.saturating_sub(used)),
        "used" => leaf(used),
        _ => leaf(time(world.limits.window + TimeDelta::hours(1))),
    }
}

fn url(world: &World, call: &Call, repo: usize, number: u64) -> String {
    let repo = &world.repositories[repo];
    let kind = if repo.issues[&number].pull.is_some() { "pull" } else { "issues" };
    format!("{}/{}/{kind}/{number}", call.html, repo.full_name())
}

fn repository(world: &mut World, call: &Call, index: usize, field: &str, arguments: &Arguments) -> Resolved {
    let repo = &world.repositories[index];
    let words = |name: &str| -> Option<Vec<String>> {
        let list = arguments.get(name)?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let number = arguments.get("number").and_then(Value::as_u64).unwrap_or(0);
    let issue = repo.issues.get(&number).filter(|issue| !issue.deleted);
    match field {
        "id" => leaf(format!("R_{}", repo.id)),
        "databaseId" => leaf(repo.id),
        "name" => leaf(repo.name.clone()),
        "nameWithOwner" => leaf(repo.full_name()),
        "owner" => Ok(Found::Node(Node::User(repo.owner.clone()))),
        "url" => leaf(format!("{}/{}", call.html, repo.full_name())),
        "isPrivate" => leaf(repo.private),
        "isArchived" => leaf(repo.archived),
        "defaultBranchRef" => branch(repo, index, &repo.default_branch),
        "ref" => {
            let name = arguments.get("qualifiedName").and_then(Value::as_str).unwrap_or_default();
            branch(repo, index, name.strip_prefix("refs/heads/").unwrap_or(name))
        }
        "issue" => match issue.filter(|issue| issue.pull.is_none()) {
            Some(_) => Ok(Found::Node(Node::Issue(index, number))),
            None => Err(Problem::new(
                "NOT_FOUND",
                format!("Could not resolve to an Issue with the number of {number}."),
            )),
        },
        "pullRequest" => match issue.filter(|issue| issue.pull.is_some()) {
            Some(_) => Ok(Found::Node(Node::Pull(index, number))),
            None => Err(Problem::new(
                "NOT_FOUND",
                format!("Could not resolve to a PullRequest with the number of {number}."),
            )),
        },
        "labels" => {
            let nodes = repo.labels.iter().map(|label| Node::Label(index, label.name.clone())).collect();
            page("LabelConnection", "labels", nodes, arguments)
        }
        _ => {
            let pulls = field == "pullRequests";
            let (labels, states) = (words("labels"), words("states"));
            let text = |name: &str| arguments.get(name).and_then(Value::as_str);
            let mut found: Vec<&Issue> = repo
                .issues
                .values()
                .filter(|issue| issue.pull.is_some() == pulls && !issue.deleted)
                .filter(|issue| {
                    states.as_ref().is_none_or(|states| states.iter().any(|one| one == state(issue)))
                })
                .filter(|issue| {
                    labels.as_ref().is_none_or(|labels| labels.iter().any(|one| issue.labels.contains(one)))
                })
                .filter(|issue| {
                    text("headRefName").is_none_or(|name| issue.pull.as_ref().is_some_and(|p| p.head == name))
                })
                .filter(|issue| {
                    text("baseRefName").is_none_or(|name| issue.pull.as_ref().is_some_and(|p| p.base == name))
                })
                .collect();
            let order = arguments.get("orderBy");
            match order.and_then(|order| order["field"].as_str()) {
                Some("UPDATED_AT") => found.sort_by_key(|issue| (issue.updated_at, issue.number)),
                Some("COMMENTS") => found.sort_by_key(|issue| (issue.comments.len(), issue.number)),
                _ => {}
            }
            if order.is_some_and(|order| order["direction"] == "DESC") {
                found.reverse();
            }
            let (name, node): (_, fn(usize, u64) -> Node) =
                if pulls { ("PullRequestConnection", Node::Pull) } else { ("IssueConnection", Node::Issue) };
            page(name, field, found.iter().map(|issue| node(index, issue.number)).collect(), arguments)
        }
    }
}

fn branch(repo: &Repository, index: usize, name: &str) -> Resolved {
    some(bare::head(&repo.git_dir, name).map(|_| Node::Branch(index, name.to_owned())))
}

fn state(issue: &Issue) -> &'static str {
    match &issue.pull {
        Some(pull) if pull.merged_at.is_some() => "MERGED",
        _ if issue.open => "OPEN",
        _ => "CLOSED",
    }
}

fn issue(
    world: &mut World,
    call: &Call,
    (repo, number): (usize, u64),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let found = &world.repositories[repo].issues[&number];
    if let Some(pull) = &found.pull {
        match field {
            "id" => return leaf(format!("PR_{}", found.id)),
            "merged" => return leaf(pull.merged_at.is_some()),
            "isDraft" => return leaf(pull.draft),
            "headRefName" => return leaf(pull.head.clone()),
            "headRefOid" => return leaf(pull.head_sha.clone()),
            "baseRefName" => return leaf(pull.base.clone()),
            "baseRefOid" => return leaf(pull.base_sha.clone()),
            "mergedAt" => return Ok(Found::Leaf(json!(pull.merged_at.map(time)))),
            _ => {}
        }
    }
    let others =
        |numbers: &[u64]| numbers.iter().map(|number| Node::Issue(repo, *number)).collect::<Vec<_>>();
    match field {
        "id" => leaf(format!("I_{}", found.id)),
        "databaseId" => leaf(found.id),
        "number" => leaf(found.number),
        "title" => leaf(found.title.clone()),
        "body" => leaf(found.body.clone().unwrap_or_default()),
        "state" => leaf(state(found)),
        "closed" => leaf(!found.open),
        "locked" => leaf(found.locked),
        "url" => leaf(url(world, call, repo, number)),
        "author" => Ok(Found::Node(Node::User(found.author.clone()))),
        "repository" => Ok(Found::Node(Node::Repository(repo))),
        "createdAt" => leaf(time(found.created_at)),
        "updatedAt" => leaf(time(found.updated_at)),
        "closedAt" => Ok(Found::Leaf(json!(found.closed_at.map(time)))),
        "lastEditedAt" => Ok(Found::Leaf(json!(found.edits.last().map(|edit| time(edit.at))))),
        "includesCreatedEdit" => leaf(!found.edits.is_empty()),
        "editor" => found.edits.last().map_or(Ok(Found::Nothing), |edit| actor(&edit.editor)),
        // The newest first.
        "userContentEdits" => {
            let nodes = (0..found.edits.len()).rev().map(|place| Node::Edit(repo, number, place)).collect();
            page("UserContentEditConnection", field, nodes, arguments)
        }
        "timelineItems" => {
            let renamed = found.events.iter().enumerate().filter(|(_, event)| event.kind == "renamed");
            let nodes = renamed.map(|(place, _)| Node::Rename(repo, number, place)).collect();
            page("IssueTimelineItemsConnection", field, nodes, arguments)
        }
        "labels" => {
            let nodes = found.labels.iter().map(|name| Node::Label(repo, name.clone())).collect();
            page("LabelConnection", field, nodes, arguments)
        }
        "comments" => {
            let nodes = (0..found.comments.len()).map(|place| Node::Comment(repo, number, place)).collect();
            page("IssueCommentConnection", field, nodes, arguments)
        }
        "blockedBy" => page("IssueConnection", field, others(&found.blocked_by), arguments),
        "subIssues" => page("IssueConnection", field, others(&found.sub_issues), arguments),
        "parent" => {
            let mut all = world.repositories[repo].issues.values();
            some(
                all.find(|other| other.sub_issues.contains(&number))
                    .map(|other| Node::Issue(repo, other.number)),
            )
        }
        _ => {
            let narrowed = call.token.as_ref().and_then(|token| token.permissions.as_ref());
            let projects = ["projects", "organization_projects", "repository_projects"];
            if narrowed.is_some_and(|granted| !projects.iter().any(|name| granted.contains_key(*name))) {
                let app = call.token.as_ref().is_some_and(|token| token.installation.is_some());
                let by = if app { "integration" } else { "personal access token" };
                return Err(Problem::new("FORBIDDEN", format!("Resource not accessible by {by}")));
            }
            let archived = arguments.get("includeArchived") != Some(&Value::Bool(false));
            let shown = |item: &ProjectItem| archived || !item.archived;
            let items = found.projects.iter().enumerate().filter(|(_, item)| shown(item));
            let nodes = items.map(|(place, _)| Node::Item(repo, number, place)).collect();
            page("ProjectV2ItemConnection", field, nodes, arguments)
        }
    }
}

fn item(
    world: &World,
    (repo, number, place): (usize, u64, usize),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let issue = &world.repositories[repo].issues[&number];
    let item = &issue.projects[place];
    let value = |inner: usize| {
        let kind = match item.fields[inner].value {
            FieldContent::Text(_) => "ProjectV2ItemFieldTextValue",
            FieldContent::SingleSelect(_) => "ProjectV2ItemFieldSingleSelectValue",
            FieldContent::Number(_) => "ProjectV2ItemFieldNumberValue",
            FieldContent::Date(_) => "ProjectV2ItemFieldDateValue",
        };
        Node::Value(kind, repo, number, place, inner)
    };
    match field {
        "id" => leaf(format!("PVTI_{}", item.id)),
        "databaseId" => leaf(item.id),
        "type" => leaf(if issue.pull.is_some() { "PULL_REQUEST" } else { "ISSUE" }),
        "isArchived" => leaf(item.archived),
        "project" => Ok(Found::Node(Node::Project(repo, number, place))),
        "content" if issue.pull.is_some() => Ok(Found::Node(Node::Pull(repo, number))),
        "content" => Ok(Found::Node(Node::Issue(repo, number))),
        "fieldValueByName" => {
            let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
            let found = item.fields.iter().position(|field| field.name == name);
            some(found.map(value))
        }
        _ => {
            let nodes = (0..item.fields.len()).map(value).collect();
            page("ProjectV2ItemFieldValueConnection", field, nodes, arguments)
        }
    }
}

fn cursor(place: usize) -> String {
    format!("cursor:{place}")
}

/// One page of a list, by GitHub's rules: `first` or `last` is needed, and no more than 100.
fn page(name: &'static str, field: &str, nodes: Vec<Node>, arguments: &Arguments) -> Resolved {
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

fn connection(node: &Node, page: &[(usize, Node)], total: usize, field: &str) -> Resolved {
    match field {
        "totalCount" => leaf(total),
        "nodes" => Ok(Found::Nodes(page.iter().map(|(_, node)| node.clone()).collect())),
        "edges" => {
            let name = match node.type_name() {
                "LabelConnection" => "LabelEdge",
                "IssueConnection" => "IssueEdge",
                "PullRequestConnection" => "PullRequestEdge",
                "IssueCommentConnection" => "IssueCommentEdge",
                "UserContentEditConnection" => "UserContentEditEdge",
                "IssueTimelineItemsConnection" => "IssueTimelineItemsEdge",
                "ProjectV2ItemConnection" => "ProjectV2ItemEdge",
                _ => "ProjectV2ItemFieldValueEdge",
            };
            let edges = page.iter().map(|(place, inner)| Node::Edge(name, *place, Box::new(inner.clone())));
            Ok(Found::Nodes(edges.collect()))
        }
        _ => {
            let start = page.first().map_or(0, |(place, _)| *place);
            let end = page.last().map_or(start, |(place, _)| place + 1);
            Ok(Found::Node(Node::PageInfo(start, end, total)))
        }
    }
}
