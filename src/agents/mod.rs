//! External agent programs driven as backends of a step.
