//! The `agentd` program: everything is in the library, the roof is `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd::cli::main()
}
