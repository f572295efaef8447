//! The `agentd` program. Everything is in the library; its top layer is `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd::cli::main()
}
