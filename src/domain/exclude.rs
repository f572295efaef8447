//! Files that nobody wrote. What tools leave behind is never committed, even if the repository does not ignore it
//! (D100).

/// Patterns as in `.gitignore`, grouped by subject. They do not cover a folder in which the repository has files of its
/// own.
pub const BUILT_IN: &[(&str, &[&str])] = &[
    ("byte code", &["__pycache__/", "*.py[cod]", "*$py.class", "*.class", "*.o", "*.beam", "*.elc"]),
    (
        "dependencies",
        &[
            "node_modules/",
            "bower_components/",
            ".pnpm-store/",
            ".venv/",
            "venv/",
            ".eggs/",
            "*.egg-info/",
            ".bundle/",
            "Pods/",
        ],
    ),
    (
        "build folders",
        &[
            "target/",
            "build/",
            "dist/",
            "_build/",
            "cmake-build-*/",
            ".build/",
            ".gradle/",
            ".next/",
            ".nuxt/",
            ".svelte-kit/",
            ".dart_tool/",
        ],
    ),
    (
        "caches",
        &[
            ".cache/",
            ".parcel-cache/",
            ".turbo/",
            ".pytest_cache/",
            ".mypy_cache/",
            ".ruff_cache/",
            ".tox/",
            ".nox/",
            ".hypothesis/",
            ".ipynb_checkpoints/",
            ".coverage",
            ".coverage.*",
            "htmlcov/",
            ".nyc_output/",
            ".eslintcache",
            ".stylelintcache",
            ".sass-cache/",
            ".phpunit.cache/",
            ".phpunit.result.cache",
            "*.tsbuildinfo",
            ".terraform/",
            ".direnv/",
            "npm-debug.log*",
            "yarn-debug.log*",
            "yarn-error.log*",
        ],
    ),
    ("editors", &[".idea/", ".vs/", "*.iml", "*.sw[op]", "*~", ".#*", "\\#*#"]),
    (
        "systems",
        &[
            ".DS_Store",
            "._*",
            "Thumbs.db",
            "ehthumbs.db",
            "desktop.ini",
            ".nfs*",
            ".fuse_hidden*",
            ".Trash-*/",
        ],
    ),
];

/// Whether one of the built-in patterns covers a folder of this name.
pub fn is_built_in_folder(name: &str) -> bool {
    let patterns = BUILT_IN.iter().flat_map(|(_, patterns)| *patterns);
    patterns.filter_map(|pattern| pattern.strip_suffix('/')).any(|pattern| match pattern.split_once('*') {
        Some((before, after)) => {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        }
        None => name == pattern,
    })
}

/// Whether a text names a file: its path, or its own name where that has an extension.
pub fn names(text: &str, path: &str) -> bool {
    let own = path.rsplit('/').next().unwrap_or(path);
    stands_in(text, path) || (own.trim_start_matches('.').contains('.') && stands_in(text, own))
}

/// Whether a word stands in a text and is not a part of a longer one.
fn stands_in(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let before = text[..at].strip_suffix("./").unwrap_or(&text[..at]);
            let mut after = text[at + word.len()..].chars();
            let ends = match after.next() {
                Some('.') => after.next().is_none_or(|c| !part(c)),
                next => next.is_none_or(|c| !part(c)),
            };
            ends && before.chars().next_back().is_none_or(|c| !part(c) && c != '.')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_known_by_their_names() {
        for name in ["__pycache__", "cmake-build-debug", "shop.egg-info", "target"] {
            assert!(is_built_in_folder(name), "{name}");
        }
        for name in ["src", "targets", "cmake", ".DS_Store", "egg-info"] {
            assert!(!is_built_in_folder(name), "{name}");
        }
    }

    #[test]
    fn a_text_names_a_file_by_its_path_or_its_own_name() {
        for text in
            ["Adds `assets/logo.png`.", "see ./assets/logo.png", "logo.png is new", "- assets/logo.png."]
        {
            assert!(names(text, "assets/logo.png"), "{text}");
        }
        for text in
            ["Adds biglogo.png", "assets/logo.png.bak", "the logo", "other/assets/logo.png.d", "x-logo.png"]
        {
            assert!(!names(text, "assets/logo.png"), "{text}");
        }
        assert!(!names("a file of data", "out/data"), "a plain word is no name");
        assert!(names("in out/data now", "out/data"));
    }
}
