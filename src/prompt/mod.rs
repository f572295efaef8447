//! C3L prompts: addresses, frontmatter and single-pass `uv-` substitution.
