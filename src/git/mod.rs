//! Local git through git2, network git through the git program.
