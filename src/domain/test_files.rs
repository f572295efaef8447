//! Which files look like tests, by what tests are usually called.

/// Folders that have nothing but tests, in lower case.
const FOLDERS: [&str; 5] = ["test", "tests", "__tests__", "spec", "specs"];
/// How the names of such files end, before the language's ending; in lower case.
const ENDS: [&str; 8] = ["_test", "_tests", "_spec", "-test", "-spec", ".test", ".tests", ".spec"];
/// How they end where words begin with a capital letter.
const CAPITAL_ENDS: [&str; 4] = ["Test", "Tests", "TestCase", "Spec"];
/// Endings of files that are code.
const CODE: [&str; 43] = [
    "py", "go", "rs", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "java", "kt",
    "kts", "scala", "groovy", "cs", "fs", "vb", "php", "rb", "ex", "exs", "erl", "dart", "swift", "c", "cc",
    "cpp", "cxx", "m", "mm", "lua", "pl", "sh", "r", "jl", "hs", "clj", "cljs", "ml",
];
/// Endings that only tests have.
const TESTS: [&str; 3] = ["bats", "t", "feature"];

/// Whether a path looks like that of a test.
pub fn is_test(path: &str) -> bool {
    let mut folders: Vec<&str> = path.split('/').collect();
    let name = folders.pop().unwrap_or_default();
    let holds_tests = |folder: &&str| {
        let folder = folder.to_ascii_lowercase();
        FOLDERS.contains(&folder.as_str()) || folder.ends_with(".tests")
    };
    if folders.iter().any(holds_tests) {
        return true;
    }
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    let ending = ending.to_ascii_lowercase();
    let lower = stem.to_ascii_lowercase();
    let named = lower.starts_with("test_")
        || FOLDERS.contains(&lower.as_str())
        || ENDS.iter().any(|end| lower.ends_with(end))
        || CAPITAL_ENDS.iter().any(|end| stem.ends_with(end));
    TESTS.contains(&ending.as_str()) || (named && CODE.contains(&ending.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_known_by_their_usual_names() {
        for path in [
            "test_a.py",
            "pkg/cart_test.go",
            "src/a.test.ts",
            "src/a.spec.js",
            "src/main/FooTest.java",
            "FooTests.cs",
            "spec/models/a.rb",
            "app/a_spec.rb",
            "web/__tests__/a.js",
            "Tests/Unit/a.swift",
            "Shop.Tests/Cart.cs",
            "tests/data/in.json",
            "check.bats",
            "test.sh",
            "src/tests.rs",
        ] {
            assert!(is_test(path), "{path}");
        }
        for path in
            ["src/a.py", "latest.js", "contest.py", "docs/load_test.md", "test", "attest/a.rs", "a.t.x"]
        {
            assert!(!is_test(path), "{path}");
        }
    }
}
