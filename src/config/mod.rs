//! agentd.toml: layers, placeholders, and one resolved value that knows the source of each key.
