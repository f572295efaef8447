//! `agentd cluster account`: the servers' configuration of the cluster's account, with the least rights that each user needs.

use std::path::Path;

use nkeys::{KeyPair, KeyPairType};
use serde_json::json;

use super::args::AccountArgs;
use crate::cli::cluster_access::{configured, names, node};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::config::Config;
use crate::domain::cluster::names::{LONGEST_NODE_NAME, is_name};
use crate::domain::cluster::rights::{Role, User, account};
use crate::sys::files;

/// Writes it to stdout, and the seeds of new keys into files.
pub fn run(context: &Context, args: &AccountArgs) -> Result<(), CommandError> {
    let config = configured(context)?;
    let wanted = wanted(args, &config);
    let mut users = Vec::new();
    for (role, text) in &wanted {
        let (name, key) = text.split_once('=').map_or((text.as_str(), None), |(name, key)| (name, Some(key)));
        if !is_name(&name.replace('.', "-"), LONGEST_NODE_NAME) {
            return Err(CommandError::invalid(format!(
                "\"{name}\" is no name: a-z, 0-9, ., _ and - make one"
            )));
        }
        if users.iter().any(|user: &User| user.name == name) {
            return Err(CommandError::invalid(format!("\"{name}\" stands here twice")));
        }
        if let Some(key) = key {
            public(name, key)?;
        }
        users.push(User { role: *role, name: name.to_owned(), key: key.unwrap_or_default().to_owned() });
    }
    let keys = args.keys.as_ref().map(|folder| context.env.working_dir().join(folder));
    let missing: Vec<&str> =
        users.iter().filter(|user| user.key.is_empty()).map(|user| user.name.as_str()).collect();
    if let (None, false) = (&keys, missing.is_empty()) {
        let what = format!("without a key: {}", missing.join(", "));
        return Err(CommandError::invalid(what)
            .hint("pass --keys DIR to make keys, or name the public part of one: --node NAME=U…"));
    }
    let (mut made, mut there) = (Vec::new(), Vec::new());
    for user in users.iter_mut().filter(|user| user.key.is_empty()) {
        let Some(folder) = &keys else { continue };
        let (key, file, is_new) = make(folder, &user.name)?;
        user.key = key;
        if !is_new {
            there.push(file.clone());
        }
        made.push(file);
    }
    let text = account(&names(&config)?, &users);
    if context.output.json() {
        let users: Vec<_> = users
            .iter()
            .map(|user| json!({ "role": user.role.as_str(), "name": user.name, "key": user.key }))
            .collect();
        return context.output.document(&json!({ "configuration": text, "users": users, "seeds": made }));
    }
    for file in &made {
        context
            .output
            .note(format!("a seed is in {file}: on its host it is the value of cluster.nkey's variable"));
    }
    if !there.is_empty() {
        context.output.note(format!(
            "these were there and are used again, which is right for the same cluster alone: {}; give each cluster a folder of its own",
            there.join(", ")
        ));
    }
    context.output.note(
        "the servers' configuration takes it by: include \"FILE\"; where it has a block `accounts` already, put the account into that, \
         since only the last one counts",
    );
    context.output.result(&text)
}

/// The users that are asked for; without any, this node and one of each other role.
fn wanted(args: &AccountArgs, config: &Config) -> Vec<(Role, String)> {
    let of = |role, names: &[String]| names.iter().map(move |name| (role, name.clone())).collect::<Vec<_>>();
    let mut wanted = of(Role::Keeper, &args.keepers);
    wanted.extend(of(Role::Node, &args.nodes));
    wanted.extend(of(Role::Operator, &args.operators));
    wanted.extend(of(Role::Reader, &args.readers));
    if wanted.is_empty() {
        let names = ["keeper".to_owned(), node(config), "operator".to_owned(), "reader".to_owned()];
        wanted = Role::ALL.into_iter().zip(names).collect();
    }
    wanted
}

fn public(name: &str, key: &str) -> Result<(), CommandError> {
    let wrong = |what: &str| {
        CommandError::invalid(format!("the key of \"{name}\" {what}"))
            .hint("a user's public key begins with U")
    };
    // A seed is never told again.
    if key.starts_with('S') {
        return Err(wrong("is a seed, which is secret; give its public part"));
    }
    match KeyPair::from_public_key(key) {
        Ok(pair) if pair.key_pair_type() == KeyPairType::User => Ok(()),
        Ok(_) => Err(wrong("is not a user's")),
        Err(error) => Err(wrong(&format!("cannot be read: {error}"))),
    }
}

/// A key: its public part, the file with its seed, and whether it is new. A seed that is there already is used.
fn make(folder: &Path, name: &str) -> Result<(String, String, bool), CommandError> {
    let path = folder.join(format!("{name}.nkey"));
    let told = |what: &str| CommandError::failed(format!("{}: {what}", path.display()));
    if let Some(seed) = files::read_plain(&path, 1024) {
        let seed = String::from_utf8_lossy(&seed).trim().to_owned();
        let pair = KeyPair::from_seed(&seed).map_err(|error| told(&format!("is no seed: {error}")))?;
        return Ok((pair.public_key(), path.display().to_string(), false));
    }
    files::create_private_dir(folder).map_err(|error| told(&error.words()))?;
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(|error| told(&error.to_string()))?;
    files::write_private(&path, format!("{seed}\n").as_bytes()).map_err(|error| told(&error.words()))?;
    Ok((pair.public_key(), path.display().to_string(), true))
}
