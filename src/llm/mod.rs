//! Model providers: the wires behind `engine::Model`.
