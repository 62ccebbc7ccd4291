//! The words of RoCE, declared once: counters, congestion-control parameters, status and event
//! codes, under the names and numbers that operators and the verbs know, with unit and meaning.
//!
//! ```
//! use hirail_vocab::{Counter, Counters, WcStatus, explain};
//!
//! let counters = Counters::new();
//! counters.add(Counter::PacketSeqErr, 1);
//! for (counter, value) in counters.snapshot().non_zero() {
//!     println!("{counter} {value} {}", counter.unit());
//! }
//!
//! assert_eq!(WcStatus::from_code(12), Some(WcStatus::RetryExcErr));
//! assert_eq!(explain("status 12").unwrap().word, "IBV_WC_RETRY_EXC_ERR");
//! ```

#![forbid(unsafe_code)]

mod cc;
mod counted;
mod counter;
mod event;
mod explain;
mod finding;
mod names;
mod qp;
mod status;
mod terms;

pub use cc::{CcOutOfRange, CcParam, CcSide};
pub use counted::LinkKind;
pub use counter::{Counter, CounterSnapshot, Counters, DropReason, Unit};
pub use event::AsyncEventKind;
pub use explain::{Explanation, Kind, explain, nearest_word, words};
pub use finding::{FindingCode, Severity};
pub use qp::{QpState, QpType};
pub use status::{WcOpcode, WcStatus};
