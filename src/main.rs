//! The `agentd` program: everything is in the library, the roof is `cli`.

fn main() {}
