//! GitHub over REST and GraphQL, through octocrab.
