//! One issue from label to pull request: seven rooms, walked in one direction.
