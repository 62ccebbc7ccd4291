//! The words of RoCE, declared once: counters, congestion-control parameters, status and event
//! codes, under the names and numbers that operators and the verbs know, with unit and meaning.

#![forbid(unsafe_code)]

mod cc;
mod counter;
mod event;
mod names;
mod qp;
mod status;

pub use cc::{CcOutOfRange, CcParam, CcSide};
pub use counter::{Counter, CounterSnapshot, Counters, DropReason, Unit};
pub use event::AsyncEventKind;
pub use qp::{QpState, QpType};
pub use status::{WcOpcode, WcStatus};
