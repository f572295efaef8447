//! What may not be changed in a run's record without being found.
