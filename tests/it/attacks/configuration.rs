//! What a repository's own files may not do: widen what its operator allowed.
