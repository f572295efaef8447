//! Providers over real HTTP, as servers really answer: whole, streamed, odd, broken, silent.

mod anthropic;
mod faults;
mod gemini;
mod openai;
mod responses;
mod server;
mod simulated;
