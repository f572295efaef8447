//! The command line: arguments, output, errors with hints, exit codes.
