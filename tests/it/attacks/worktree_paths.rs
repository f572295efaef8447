//! What a path that a model names may not reach.
