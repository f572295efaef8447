//! Several nodes that share their work: the model of their protocols.

mod model;
