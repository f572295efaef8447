//! What an agent's worktree may not do: run a program, or publish what is not its own.
