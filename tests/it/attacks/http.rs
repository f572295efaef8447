//! What strangers may not do to the daemon's port.
