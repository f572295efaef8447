//! Kinds of projects: how each is recognised, how its worktree is set up, and what "tests pass" means. One row for each
//! kind.

use std::path::Path;

use crate::sys::files;

/// Most bytes of a file that are looked into.
const LONGEST: u64 = 256 * 1024;

/// Something that a kind's repositories have.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// A file in the root.
    File(&'static str),
    /// A file in the root whose name ends so.
    Ending(&'static str),
    /// A file in the root that has this text.
    Text(&'static str, &'static str),
    /// A file in the root that does not have this text.
    Without(&'static str, &'static str),
    /// No such file or folder in the root.
    No(&'static str),
    /// A file in the root with a line that begins so.
    Line(&'static str, &'static str),
    /// A rule for this target in the file that make reads.
    Target(&'static str),
}

type Argv = &'static [&'static str];

/// A kind of project.
#[derive(Debug)]
pub(in crate::cli) struct Kind {
    /// What people call it.
    pub name: &'static str,
    /// Of one family the first kind that fits is meant.
    family: &'static str,
    signs: &'static [Sign],
    /// Commands that make a new worktree ready.
    pub setup: &'static [Argv],
    /// Commands that all pass.
    pub verify: &'static [Argv],
    /// What these leave in a worktree, as lines of `.gitignore`.
    pub ignore: &'static [&'static str],
}

use Sign::{Ending, File, Line, No, Target, Text, Without};

/// The first of them that is there is the one that make reads.
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];

const NODE: &[&str] = &["node_modules/"];
const PYTHON: &[&str] = &[".venv/", "__pycache__/", "*.egg-info/", ".pytest_cache/"];
const VENV: Argv = &["python3", "-m", "venv", ".venv"];
const PYTEST: Argv = &[".venv/bin/python", "-m", "pytest"];
const UNITTEST: Argv = &[".venv/bin/python", "-m", "unittest"];
const NO_TEST: Sign = Without("package.json", "no test specified");
const HAS_TEST: Sign = Text("package.json", "\"test\"");

/// All kinds; of two families that fit the earlier is proposed.
#[rustfmt::skip]
pub(in crate::cli) const KINDS: &[Kind] = &[
    Kind { name: "pnpm workspace", family: "node", signs: &[File("pnpm-lock.yaml"), File("pnpm-workspace.yaml"), File("package.json")],
        setup: &[&["pnpm", "install", "--frozen-lockfile"]], verify: &[&["pnpm", "-r", "test"]], ignore: NODE },
    Kind { name: "pnpm", family: "node", signs: &[File("pnpm-lock.yaml"), HAS_TEST, NO_TEST],
        setup: &[&["pnpm", "install", "--frozen-lockfile"]], verify: &[&["pnpm", "test"]], ignore: NODE },
    Kind { name: "Yarn", family: "node", signs: &[File("yarn.lock"), HAS_TEST, NO_TEST],
        setup: &[&["yarn", "install", "--frozen-lockfile"]], verify: &[&["yarn", "test"]], ignore: NODE },
    Kind { name: "Bun", family: "node", signs: &[File("bun.lock"), File("package.json")],
        setup: &[&["bun", "install", "--frozen-lockfile"]], verify: &[&["bun", "test"]], ignore: NODE },
    Kind { name: "Bun (older lock file)", family: "node", signs: &[File("bun.lockb"), File("package.json")],
        setup: &[&["bun", "install", "--frozen-lockfile"]], verify: &[&["bun", "test"]], ignore: NODE },
    Kind { name: "npm workspaces", family: "node", signs: &[File("package-lock.json"), Text("package.json", "\"workspaces\"")],
        setup: &[&["npm", "ci"]], verify: &[&["npm", "test", "--workspaces", "--if-present"]], ignore: NODE },
    Kind { name: "npm", family: "node", signs: &[File("package-lock.json"), HAS_TEST, NO_TEST],
        setup: &[&["npm", "ci"]], verify: &[&["npm", "test"]], ignore: NODE },
    Kind { name: "npm without a lock file", family: "node", signs: &[HAS_TEST, NO_TEST],
        setup: &[&["npm", "install", "--no-package-lock"]], verify: &[&["npm", "test"]], ignore: NODE },
    Kind { name: "Deno", family: "deno", signs: &[File("deno.json")],
        setup: &[], verify: &[&["deno", "test"]], ignore: &[] },
    Kind { name: "uv", family: "python", signs: &[File("uv.lock")],
        setup: &[&["uv", "sync", "--frozen"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "Poetry", family: "python", signs: &[File("poetry.lock")],
        setup: &[&["env", "POETRY_VIRTUALENVS_IN_PROJECT=true", "poetry", "install", "--no-interaction"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "tox", family: "python", signs: &[File("tox.ini")],
        setup: &[&["tox", "run", "--notest"]], verify: &[&["tox", "run", "--skip-pkg-install"]], ignore: &[".tox/", "__pycache__/", "*.egg-info/"] },
    Kind { name: "pip requirements with pytest", family: "python", signs: &[Text("requirements.txt", "pytest")],
        setup: &[VENV, &[".venv/bin/pip", "install", "-r", "requirements.txt"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "pip requirements for development", family: "python", signs: &[Text("requirements-dev.txt", "pytest")],
        setup: &[VENV, &[".venv/bin/pip", "install", "-r", "requirements-dev.txt"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "pip requirements", family: "python", signs: &[File("requirements.txt")],
        setup: &[VENV, &[".venv/bin/pip", "install", "-r", "requirements.txt"]], verify: &[UNITTEST], ignore: PYTHON },
    Kind { name: "pyproject with pytest", family: "python", signs: &[Text("pyproject.toml", "pytest")],
        setup: &[VENV, &[".venv/bin/pip", "install", "-e", ".", "pytest"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "Python without dependencies", family: "python", signs: &[File("pyproject.toml")],
        setup: &[], verify: &[&["python3", "-m", "unittest"]], ignore: &["__pycache__/"] },
    Kind { name: "setup.py", family: "python", signs: &[File("setup.py")],
        setup: &[VENV, &[".venv/bin/pip", "install", "-e", ".", "pytest"]], verify: &[PYTEST], ignore: PYTHON },
    Kind { name: "Go", family: "go", signs: &[File("go.mod")],
        setup: &[], verify: &[&["go", "test", "./..."]], ignore: &[] },
    Kind { name: "Cargo workspace", family: "cargo", signs: &[Line("Cargo.toml", "[workspace"), File("Cargo.lock")],
        setup: &[&["cargo", "fetch", "--locked"]], verify: &[&["cargo", "test", "--workspace"]], ignore: &["target/"] },
    Kind { name: "Cargo", family: "cargo", signs: &[File("Cargo.toml"), File("Cargo.lock")],
        setup: &[&["cargo", "fetch", "--locked"]], verify: &[&["cargo", "test"]], ignore: &["target/"] },
    Kind { name: "Cargo without a lock file", family: "cargo", signs: &[File("Cargo.toml")],
        setup: &[], verify: &[&["cargo", "test"]], ignore: &["target/", "Cargo.lock"] },
    Kind { name: "Maven", family: "jvm", signs: &[File("pom.xml")],
        setup: &[&["mvn", "-B", "-q", "-Dmaven.repo.local=.m2/repository", "-Dmaven.test.failure.ignore=true", "test"]],
        verify: &[&["mvn", "-B", "-q", "-o", "-Dmaven.repo.local=.m2/repository", "test"]], ignore: &["target/", ".m2/"] },
    Kind { name: "Gradle wrapper", family: "jvm", signs: &[File("gradlew")],
        setup: &[&["./gradlew", "-g", ".gradle-home", "--no-daemon", "testClasses"]],
        verify: &[&["./gradlew", "-g", ".gradle-home", "--no-daemon", "test"]], ignore: &[".gradle/", ".gradle-home/", "build/"] },
    Kind { name: "Gradle", family: "jvm", signs: &[Ending(".gradle"), No("gradlew")],
        setup: &[&["gradle", "-g", ".gradle-home", "--no-daemon", "testClasses"]],
        verify: &[&["gradle", "-g", ".gradle-home", "--no-daemon", "test"]], ignore: &[".gradle/", ".gradle-home/", "build/"] },
    Kind { name: ".NET solution", family: "dotnet", signs: &[Ending(".sln")],
        setup: &[&["dotnet", "restore", "--packages", ".nuget/packages"]], verify: &[&["dotnet", "test", "--no-restore"]], ignore: &["bin/", "obj/", ".nuget/"] },
    Kind { name: ".NET project", family: "dotnet", signs: &[Ending("proj"), No("pom.xml")],
        setup: &[&["dotnet", "restore", "--packages", ".nuget/packages"]], verify: &[&["dotnet", "test", "--no-restore"]], ignore: &["bin/", "obj/", ".nuget/"] },
    Kind { name: "Composer", family: "php", signs: &[Text("composer.json", "\"test\"")],
        setup: &[&["composer", "install", "--no-interaction"]], verify: &[&["composer", "test"]], ignore: &["/vendor/"] },
    Kind { name: "Composer with PHPUnit", family: "php", signs: &[Text("composer.json", "phpunit")],
        setup: &[&["composer", "install", "--no-interaction"]], verify: &[&["vendor/bin/phpunit"]], ignore: &["/vendor/"] },
    Kind { name: "Mix", family: "elixir", signs: &[File("mix.exs")],
        setup: &[&["mix", "deps.get"]], verify: &[&["mix", "test"]], ignore: &["_build/", "deps/"] },
    Kind { name: "Bundler with RSpec", family: "ruby", signs: &[Text("Gemfile", "rspec")],
        setup: &[&["env", "BUNDLE_PATH=vendor/bundle", "bundle", "install"]],
        verify: &[&["env", "BUNDLE_PATH=vendor/bundle", "bundle", "exec", "rspec"]], ignore: &["vendor/bundle/", ".bundle/"] },
    Kind { name: "Bundler", family: "ruby", signs: &[File("Gemfile")],
        setup: &[&["env", "BUNDLE_PATH=vendor/bundle", "bundle", "install"]],
        verify: &[&["env", "BUNDLE_PATH=vendor/bundle", "bundle", "exec", "rake", "test"]], ignore: &["vendor/bundle/", ".bundle/"] },
    Kind { name: "CMake", family: "cmake", signs: &[File("CMakeLists.txt")],
        setup: &[], verify: &[&["cmake", "-S", ".", "-B", "build"], &["cmake", "--build", "build"], &["ctest", "--test-dir", "build", "--output-on-failure"]], ignore: &["build/"] },
    Kind { name: "just", family: "just", signs: &[Line("justfile", "test")],
        setup: &[], verify: &[&["just", "test"]], ignore: &[] },
    Kind { name: "Make", family: "make", signs: &[Target("test")],
        setup: &[], verify: &[&["make", "test"]], ignore: &[] },
    Kind { name: "Make with check", family: "make", signs: &[Target("check")],
        setup: &[], verify: &[&["make", "check"]], ignore: &[] },
];

impl Sign {
    fn is_in(self, root: &Path) -> bool {
        let text = |file: &str| {
            let bytes = files::read_plain(&root.join(file), LONGEST)?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        match self {
            File(name) => root.join(name).is_file(),
            No(name) => !root.join(name).exists(),
            Text(file, words) => text(file).is_some_and(|text| text.contains(words)),
            Without(file, words) => text(file).is_some_and(|text| !text.contains(words)),
            Line(file, start) => {
                text(file).is_some_and(|text| text.lines().any(|line| line.starts_with(start)))
            }
            Target(name) => MAKEFILES.iter().find_map(|file| text(file)).is_some_and(|text| {
                let targets =
                    text.lines().filter_map(|line| line.split_once(':')).map(|(targets, _)| targets);
                targets.flat_map(str::split_whitespace).any(|target| target == name)
            }),
            Ending(end) => std::fs::read_dir(root)
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().ends_with(end) && entry.path().is_file()),
        }
    }
}

/// The kinds that fit a repository, one of each family, the proposed one first.
pub(in crate::cli) fn fitting(root: &Path) -> Vec<&'static Kind> {
    let mut found: Vec<&'static Kind> = Vec::new();
    for kind in KINDS {
        let known = found.iter().any(|other| other.family == kind.family);
        if !known && kind.signs.iter().all(|sign| sign.is_in(root)) {
            found.push(kind);
        }
    }
    found
}

/// A command line for people.
pub(in crate::cli) fn line(argv: &[&str]) -> String {
    argv.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/init.md`.
    fn table() -> String {
        let lines = |argvs: &[Argv]| match argvs {
            [] => "–".to_owned(),
            some => some.iter().map(|argv| format!("`{}`", line(argv))).collect::<Vec<_>>().join(", then "),
        };
        let rows = KINDS
            .iter()
            .map(|kind| format!("| {} | {} | {} |\n", kind.name, lines(kind.setup), lines(kind.verify)));
        format!(
            "| kind | `worktree.setup` | `verify.commands` |\n|---|---|---|\n{}",
            rows.collect::<String>()
        )
    }

    #[test]
    fn the_table_of_kinds_in_the_documentation_is_the_one_in_the_program() {
        let page = include_str!("../../../docs/init.md");
        assert!(page.contains(&table()), "write this into docs/init.md:\n{}", table());
    }
}
