//! The verbs API end to end, over the link in memory.

mod datagrams;
mod drops;
mod errors;
mod memory;
mod operations;
mod queues;
mod side;
mod states;
mod threads;
mod windows;
mod xrc;
