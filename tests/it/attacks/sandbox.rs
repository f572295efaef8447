//! What a program in the sandbox may not reach.
