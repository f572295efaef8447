//! `list_files`: the files of the worktree that are not ignored.

use std::sync::Arc;

use globset::GlobBuilder;
use serde_json::{Value, json};

use super::arguments::{Arguments, invalid};
use super::files_below::visit;
use super::page::Page;
use super::{Allowed, BuiltIn, ToolWorld, blocking, path_error};
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::policy::Risk;
use crate::engine::tool::{ToolError, ToolOutput};
use crate::sys::worktree_path::{PathError, WorktreePath};

pub(super) fn tool(world: &Arc<ToolWorld>) -> BuiltIn {
    let most = world.page_lines;
    BuiltIn::new(
        world,
        Risk::Read,
        |world, arguments, allowed| Box::pin(list(world, arguments, allowed)),
        "list_files",
        format!(
            "Lists files of the worktree, those ignored by .gitignore left out, sorted, at most {most} at a time, one path a \
             line, all below the given directory. The first line of the result is JSON with lines_shown, lines_remaining \
             and has_more."
        ),
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Directory (or file), relative to the worktree; default ."},
                "glob": {"type": "string", "description": "Only paths that match, such as **/*.rs"},
                "from_line": {"type": "integer", "minimum": 1, "description": "First entry, default 1"},
                "max_lines": {"type": "integer", "minimum": 1, "maximum": most, "description": format!("Default {most}")}
            },
            "additionalProperties": false
        }),
    )
}

async fn list(world: Arc<ToolWorld>, arguments: Value, allowed: Allowed) -> Result<ToolOutput, ToolError> {
    let given = Arguments(&arguments);
    let start = existing(&world, given, &allowed.judged)?;
    let glob = glob(given)?;
    let mut page = Page::new(given, world.page_lines, allowed.limits)?;
    blocking(move || {
        let left_out = visit(&world, &start, &allowed.denied, |found| {
            if glob.as_ref().is_none_or(|glob| glob.is_match(&found.path)) {
                let kind = if found.link { " (symbolic link)" } else { "" };
                page.push(|_| String::new(), &format!("{}{kind}", found.path));
            }
            true
        });
        Ok(page.finish(&[("path", json!(start.relative()))], left_out, true))
    })
    .await
}

/// The place that `path` names, which must exist; the worktree's root where it is absent.
pub(super) fn existing(
    world: &ToolWorld,
    given: Arguments<'_>,
    judged: &JudgedPaths,
) -> Result<WorktreePath, ToolError> {
    let named = given.optional_text("path")?.unwrap_or(".");
    let start = world.resolve(named, judged)?;
    match start.absolute().as_path().symlink_metadata() {
        Ok(_) => Ok(start),
        Err(source) => Err(path_error(PathError::Io { named: start.relative(), source })),
    }
}

/// The `glob` of a call; `*` stays within a directory.
pub(super) fn glob(given: Arguments<'_>) -> Result<Option<globset::GlobMatcher>, ToolError> {
    let Some(text) = given.optional_text("glob")? else { return Ok(None) };
    // A bare `*.rs` means files of that name anywhere, as it does for git.
    let anywhere = if text.contains('/') { text.to_owned() } else { format!("**/{text}") };
    let built = GlobBuilder::new(&anywhere).literal_separator(true).build();
    built
        .map(|glob| Some(glob.compile_matcher()))
        .map_err(|error| invalid(format!("\"glob\": {}", error.kind())))
}

#[cfg(test)]
mod tests {
    use super::super::world_for_tests::world;
    use super::*;

    async fn paths(place: &super::super::world_for_tests::World, arguments: Value) -> Vec<String> {
        let text = place.call("list_files", arguments).await.unwrap().text;
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn ignored_files_and_git_are_left_out_and_the_directory_above_has_no_say() {
        let place = world();
        std::fs::File::create(place.dir.path().join(".gitignore")).unwrap();
        crate::sys::files::write_public(&place.dir.path().join(".gitignore"), b"*\n").unwrap();
        place.write(".gitignore", "*.log\n/out/\n");
        place.write("sub/.gitignore", "local\n");
        for path in ["a.rs", "b.log", "out/x", "sub/local", "sub/c.rs", "sub/d/e.rs", ".hidden", ".git"] {
            place.write(path, "x");
        }
        let all = ["*.hidden", ".gitignore", "a.rs", "sub/.gitignore", "sub/c.rs", "sub/d/e.rs"];
        assert_eq!(paths(&place, json!({})).await, [&[".gitignore", ".hidden"], &all[2..]].concat());
        assert_eq!(paths(&place, json!({"path": "sub"})).await, &all[3..]);
        assert_eq!(paths(&place, json!({"path": "sub", "glob": "*.rs"})).await, &all[4..]);
        assert_eq!(paths(&place, json!({"glob": "sub/*.rs"})).await, ["sub/c.rs"]);
        assert_eq!(paths(&place, json!({"path": "a.rs"})).await, ["a.rs"]);
        assert!(place.call("list_files", json!({"path": "nowhere"})).await.is_err());
    }

    #[tokio::test]
    async fn lists_are_paged_in_a_fixed_order() {
        let place = world();
        for n in 0..520 {
            place.write(&format!("f{n:03}"), "");
        }
        let second = place.call("list_files", json!({"from_line": 501})).await.unwrap();
        assert!(second.text.contains("\"lines_shown\":20,\"lines_remaining\":0"), "{}", second.text);
        assert!(second.text.ends_with("f519\n"));
    }
}
