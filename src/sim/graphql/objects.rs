//! The objects of the GraphQL API over the simulated state: what each field of each type is.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::mutations::{by_id, mutation};
use super::node::{Arguments, Found, Node, Problem, Resolved, actor, cursor, leaf, page, some, url};
use super::{remarks, rollup};
use crate::sim::bare;
use crate::sim::call::Call;
use crate::sim::rest::pulls;
use crate::sim::rest::shapes::{option_id, time};
use crate::sim::world::{FieldContent, HeadRepository, Issue, ProjectItem, Repository, TextPlace, World};

/// A field of an object.
pub fn resolve(world: &mut World, call: &Call, node: &Node, field: &str, arguments: &Arguments) -> Resolved {
    match node {
        Node::Query => query(world, call, field, arguments),
        Node::Mutation => mutation(world, call, field, arguments),
        Node::Payload(_, changed, mutation_id) => match field {
            "clientMutationId" => Ok(Found::Leaf(mutation_id.clone())),
            _ => Ok(Found::Node((**changed).clone())),
        },
        Node::RateLimit => rate_limit(world, call, field),
        Node::Edit(repo, text, place) => remarks::edit(world, (*repo, *text, *place), field),
        Node::Text(repo, place) => remarks::text(world, call, (*repo, *place), field, arguments),
        Node::Thread(repo, number, place) => {
            remarks::thread(world, call, (*repo, *number, *place), field, arguments)
        }
        Node::Rollup(repo, sha) => rollup::rollup(world, *repo, sha, field, arguments),
        Node::CheckRun(repo, id) | Node::Status(repo, id) => {
            rollup::check(world, call, (*repo, *id), field, arguments)
        }
        Node::Suite(repo, id) | Node::WorkflowRun(repo, id) | Node::Workflow(repo, id) => {
            rollup::workflow(world, node, (*repo, *id), field)
        }
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
            "target" => {
                some(bare::head(&world.repositories[*repo].git_dir, name).map(|id| Node::Commit(*repo, id)))
            }
            _ => leaf(name.clone()),
        },
        Node::Commit(repo, id) => match field {
            "statusCheckRollup" => some(rollup::of(world, *repo, id)),
            "id" => leaf(format!("C_{id}")),
            _ => leaf(id.clone()),
        },
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
        "nodes" => {
            let ids = arguments.get("ids").and_then(Value::as_array).cloned().unwrap_or_default();
            let found = ids.iter().filter_map(Value::as_str).filter_map(|id| by_id(world, call, id));
            Ok(Found::Nodes(found.collect()))
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
        "object" => {
            let oid = arguments.get("oid").or_else(|| arguments.get("expression")).and_then(Value::as_str);
            let found = oid.and_then(|oid| bare::resolve(&repo.git_dir, oid));
            some(found.map(|id| Node::Commit(index, id)))
        }
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
            "mergeable" if found.open => {
                let git_dir = &world.repositories[repo].git_dir;
                return leaf(match bare::conflict(git_dir, &pull.base_sha, &pull.head_sha) {
                    Some(true) => "CONFLICTING",
                    Some(false) => "MERGEABLE",
                    None => "UNKNOWN",
                });
            }
            "mergeable" => return leaf("UNKNOWN"),
            "isCrossRepository" => return leaf(pull.head_repository != HeadRepository::Here),
            "statusCheckRollup" => return some(rollup::of(world, repo, &pull.head_sha)),
            "reviewThreads" => {
                let nodes = (0..pull.threads.len()).map(|place| Node::Thread(repo, number, place)).collect();
                return page("PullRequestReviewThreadConnection", field, nodes, arguments);
            }
            "reviews" => {
                let place = |place| Node::Text(repo, TextPlace::Review(number, place));
                let nodes = (0..pull.reviews.len()).map(place).collect();
                return page("PullRequestReviewConnection", field, nodes, arguments);
            }
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
        "author" => actor(&found.author),
        "repository" => Ok(Found::Node(Node::Repository(repo))),
        "createdAt" => leaf(time(found.created_at)),
        "updatedAt" => leaf(time(found.updated_at)),
        "closedAt" => Ok(Found::Leaf(json!(found.closed_at.map(time)))),
        "lastEditedAt" => Ok(Found::Leaf(json!(found.edits.last().map(|edit| time(edit.at))))),
        "includesCreatedEdit" => leaf(!found.edits.is_empty()),
        "editor" => found.edits.last().map_or(Ok(Found::Nothing), |edit| actor(&edit.editor)),
        // The newest first.
        "userContentEdits" => {
            let edit = |place| Node::Edit(repo, TextPlace::Body(number), place);
            let nodes = (0..found.edits.len()).rev().map(edit).collect();
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
            let place = |place| Node::Text(repo, TextPlace::Comment(number, place));
            let nodes = (0..found.comments.len()).map(place).collect();
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

fn connection(node: &Node, page: &[(usize, Node)], total: usize, field: &str) -> Resolved {
    match field {
        "totalCount" => leaf(total),
        "nodes" => Ok(Found::Nodes(page.iter().map(|(_, node)| node.clone()).collect())),
        "edges" => {
            let name = edge(node.type_name());
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

/// The type of a connection's edges.
fn edge(connection: &str) -> &'static str {
    match connection {
        "LabelConnection" => "LabelEdge",
        "IssueConnection" => "IssueEdge",
        "PullRequestConnection" => "PullRequestEdge",
        "PullRequestReviewConnection" => "PullRequestReviewEdge",
        "PullRequestReviewThreadConnection" => "PullRequestReviewThreadEdge",
        "PullRequestReviewCommentConnection" => "PullRequestReviewCommentEdge",
        "StatusCheckRollupContextConnection" => "StatusCheckRollupContextEdge",
        "CheckAnnotationConnection" => "CheckAnnotationEdge",
        "IssueCommentConnection" => "IssueCommentEdge",
        "UserContentEditConnection" => "UserContentEditEdge",
        "IssueTimelineItemsConnection" => "IssueTimelineItemsEdge",
        "ProjectV2ItemConnection" => "ProjectV2ItemEdge",
        _ => "ProjectV2ItemFieldValueEdge",
    }
}
