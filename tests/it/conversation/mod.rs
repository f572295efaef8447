//! What people write on GitHub, and what agentd makes of it: from outside, against the simulator.

mod briefing;
mod checks;
