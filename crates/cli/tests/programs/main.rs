//! Programs that we did not write run on hirail as their distribution built them, by `hirail run`:
//! their exit status, and what they received. Those that check no data themselves are recorded, and
//! the recording must show RoCE with good ICRCs.
//!
//! One module for each family of programs. Its test runs them, collects a [`Row`](table::Row) for
//! each, and gives the rows to [`table::check`], which fails where a program failed, and compares the
//! rows with the family's section of `docs/programs.md` (`UPDATE_EXPECT=1` writes it anew).
//!
//! - [`process`]: a program that is started by `hirail run`, with a deadline for all that it does;
//! - [`ready`]: when a server can be asked;
//! - [`pair`]: a server and its client;
//! - [`fetched`]: what no distribution has, from the registries of its languages;
//! - [`recording`]: what a recording of packets shows.
//!
//! Programs spin while they wait, so a test holds [`process::alone`] while it runs any.

mod check;
mod crates;
mod fetched;
mod fio;
mod libfabric;
mod mpi;
mod nccl;
mod pair;
mod perftest;
mod process;
mod pyverbs;
mod qperf;
mod rdma_cm;
mod ready;
mod recording;
mod rsockets;
mod table;
mod ucx;
mod utils;
mod view;
mod watched;
