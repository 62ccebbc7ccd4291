//! Traces: one rule of the connection manager each. Messages are named as they go over the wire, so
//! a test reads like a capture.

mod attributes;
mod captures;
mod closing;
mod connecting;
mod datagrams;
mod duplicates;
mod failing;
mod growth;
mod meeting;
mod pair;
