//! Many issues over time: poll, sweep, schedule, supervise, recover, reload.
