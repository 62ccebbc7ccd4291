//! The verbs API end to end, over the link in memory; what depends on the link over
//! UDP too.

mod counting;
mod datagrams;
mod drops;
mod errors;
mod memory;
mod misfortune;
mod operations;
mod progress;
mod queues;
mod side;
mod states;
mod threads;
mod udp;
mod windows;
mod xrc;
