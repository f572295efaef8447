//! What each role of a cluster may send and hear, by subjects in full: inside of a token `*` is no wildcard.
//!
//! Nobody but the keeper makes or extends streams, and nobody deletes or purges them.

use super::names::{Names, StreamKind, token};
use crate::domain::words::words;

words! {
    /// What a user of a cluster is for.
    pub enum Role {
        /// Makes and extends the streams: `agentd cluster doctor --create`.
        Keeper = "keeper",
        /// A daemon, or a command that runs issues.
        Node = "node",
        /// Reads everything, drains nodes, moves runs, and asks the nodes for what people may decide.
        Operator = "operator",
        /// Reads everything.
        Reader = "reader",
    }
}

impl Role {
    /// Whose a key of it is, in words.
    pub fn owner(self) -> &'static str {
        match self {
            Self::Keeper => "a keeper's",
            Self::Node => "a node's",
            Self::Operator => "an operator's",
            Self::Reader => "a reader's",
        }
    }

    /// What a key of it may, and what it may not, in words.
    pub fn may(self) -> &'static str {
        match self {
            Self::Keeper => {
                "it may make and extend the streams (`agentd cluster doctor --create`), and may not read what is in them"
            }
            Self::Node => "it may do what a daemon and `agentd run` do",
            Self::Operator => {
                "it may read everything, drain nodes, move runs and ask the nodes for what people decide; a daemon and \
                 `agentd run` need a node's"
            }
            Self::Reader => {
                "it may read everything, and change and ask nothing; a daemon and `agentd run` need a node's"
            }
        }
    }

    /// The role that a key is meant for: the first of these of which it may something that the later ones may not. So a node's key that
    /// lacks a right is still a node's. `None` = it may nothing of all that.
    pub fn of(names: &Names, user: &str, mut may: impl FnMut(&str) -> bool) -> Option<Self> {
        let by_most = [Self::Node, Self::Operator, Self::Reader, Self::Keeper];
        by_most.into_iter().find(|role| marks(names, *role, user).iter().any(|subject| may(subject)))
    }
}

/// The subjects that a role may send to, and the ones behind it in [`Role::of`] may not.
fn marks(names: &Names, role: Role, user: &str) -> Vec<String> {
    let of = |role| rights(names, role, user).publish;
    match role {
        Role::Node => {
            let less = of(Role::Operator);
            of(role).into_iter().filter(|subject| !less.contains(subject)).collect()
        }
        Role::Operator => names.subjects(StreamKind::Ctl),
        Role::Reader => vec![format!("$JS.API.STREAM.MSG.GET.{}", names.stream(StreamKind::Cells))],
        Role::Keeper => vec![format!("$JS.API.STREAM.UPDATE.{}", names.stream(StreamKind::Cells))],
    }
}

/// The subjects that a user may send to and hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// What it may send to.
    pub publish: Vec<String>,
    /// What it may hear.
    pub subscribe: Vec<String>,
}

/// The rights of a user; `user` is the node's name, or that of the person's login, and names where its answers come.
pub fn rights(names: &Names, role: Role, user: &str) -> Rights {
    let mut publish = vec!["$JS.API.INFO".to_owned()];
    for kind in StreamKind::ALL {
        let stream = names.stream(kind);
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        if role == Role::Keeper {
            publish.extend(["CREATE", "UPDATE"].map(|api| format!("$JS.API.STREAM.{api}.{stream}")));
            continue;
        }
        publish.push(format!("$JS.API.STREAM.MSG.GET.{stream}"));
        // To read many messages, and to hear of new ones; each reader's consumer is its own and goes with it.
        // Without a name of its own the subject ends with the stream.
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}.>"));
        publish.push(format!("$JS.API.CONSUMER.DELETE.{stream}.*"));
        publish.push(format!("$JS.FC.{stream}.>"));
    }
    let c = names.cluster();
    let mut subscribe = vec![format!("{}.>", inbox(user))];
    match role {
        Role::Keeper | Role::Reader => {}
        Role::Operator => publish.extend(names.subjects(StreamKind::Ctl)),
        Role::Node => {
            for kind in
                [StreamKind::Cells, StreamKind::Log, StreamKind::Runs, StreamKind::Ctl, StreamKind::Blobs]
            {
                publish.extend(names.subjects(kind));
            }
            publish.push(format!("agentd.{c}.status.{}", token(user)));
            publish.push(names.wake());
            subscribe.push(names.wake());
        }
    }
    Rights { publish, subscribe }
}

/// Where answers to a user come. Nobody else may hear them.
pub fn inbox(user: &str) -> String {
    format!("_INBOX_{}", token(user))
}

/// A user of the account: its role, its name, and the public part of its nkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What it is for.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Begins with `U`.
    pub key: String,
}

/// The server's configuration of the cluster's account, for `include` in it.
pub fn account(names: &Names, users: &[User]) -> String {
    let list = |subjects: &[String]| {
        let lines: Vec<String> =
            subjects.iter().map(|subject| format!("            \"{subject}\"\n")).collect();
        format!("{{ allow: [\n{}          ] }}", lines.concat())
    };
    let mut text = format!(
        "# The account of the agentd cluster \"{}\". Nothing is imported or exported: another account sees none of it.\n\
         # A server's configuration has one block `accounts`: where there is one already, put what is in this one's braces there.\n\
         accounts {{\n  AGENTD_{} {{\n    jetstream: enabled\n    users: [\n",
        names.cluster(),
        names.cluster().to_ascii_uppercase()
    );
    for user in users {
        let rights = rights(names, user.role, &user.name);
        text.push_str(&format!(
            "      # {} {}\n      {{\n        nkey: {}\n        permissions: {{\n          publish: {}\n          subscribe: {}\n        }}\n      }}\n",
            user.role,
            user.name,
            user.key,
            list(&rights.publish),
            list(&rights.subscribe)
        ));
    }
    text.push_str("    ]\n  }\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_the_role_of_which_it_may_something_that_lesser_ones_may_not() {
        let names = Names::of("main").unwrap();
        let of = |rights: &Rights| {
            Role::of(&names, "h1", |subject| rights.publish.iter().any(|one| one == subject))
        };
        for role in Role::ALL {
            assert_eq!(of(&rights(&names, role, "h1")), Some(role));
        }
        let mut lacking = rights(&names, Role::Node, "h1");
        lacking.publish.retain(|subject| !subject.contains(".cell."));
        assert_eq!(of(&lacking), Some(Role::Node), "a node's key without one of its rights");
        assert_eq!(of(&Rights { publish: vec!["$JS.API.INFO".into()], subscribe: Vec::new() }), None);
    }

    #[test]
    fn only_the_keeper_makes_streams_and_nobody_takes_them_away() {
        let names = Names::of("main").unwrap();
        for role in Role::ALL {
            let rights = rights(&names, role, "h1");
            let makes = rights.publish.iter().any(|subject| subject.contains("STREAM.CREATE"));
            assert_eq!(makes, role == Role::Keeper, "{role}");
            for subject in &rights.publish {
                let gone = ["STREAM.DELETE", "STREAM.PURGE", "MSG.DELETE", "ACCOUNT"];
                assert!(!gone.iter().any(|api| subject.contains(api)), "{role} {subject}");
                // A star that is no token of its own would stand for itself.
                let whole = subject.split('.').all(|token| !token.contains('*') || token == "*");
                assert!(whole, "{role} {subject}");
            }
            let heard: &[&str] = match role {
                Role::Node => &["_INBOX_h1.>", "agentd.main.wake"],
                _ => &["_INBOX_h1.>"],
            };
            assert_eq!(rights.subscribe, heard, "{role}");
        }
        let writes =
            |role| rights(&names, role, "h1").publish.iter().any(|subject| subject.contains(".cell."));
        assert_eq!(Role::ALL.map(writes), [false, true, false, false]);
    }
}
