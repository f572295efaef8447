//! The daemon's HTTP face: API, webhooks, status page.
