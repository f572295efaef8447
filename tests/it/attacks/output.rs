//! What a model writes and may not be published.
