//! The simulator: a GitHub, a git remote and a scripted model on loopback.
