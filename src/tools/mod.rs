//! The built-in worktree tools that a session may propose to call.
