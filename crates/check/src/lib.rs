//! What is wrong with how a program uses the verbs.
//!
//! A [`Ledger`] is told facts: an object was made, a work request posted, a completion polled, a
//! request of a peer turned away. What breaks a rule of the verbs becomes a finding, with the places
//! in the program that brought it about. Nothing here does I/O, knows C or looks at memory: whoever
//! has the facts hands in a [`Memory`] to look at, and takes the findings out with
//! [`Ledger::take`].
//!
//! ```
//! use hirail_check::{Kind, Ledger};
//! use hirail_vocab::FindingCode;
//!
//! let mut ledger = Ledger::default();
//! let (opened, made, closed) = (ledger.site(&[1]), ledger.site(&[2]), ledger.site(&[3]));
//! ledger.device_opened(0, "hirail_lo", 4096, false, opened);
//! ledger.made(0, Kind::Pd, 0x1000, "PD", made);
//! ledger.device_closed(0, closed);
//! let found = ledger.take();
//! assert_eq!(found[0].code, FindingCode::LeakedObjects);
//! assert_eq!(found[0].object, "1 PD");
//! ```
//!
//! | module | |
//! | --- | --- |
//! | `ledger` | what is known, and the facts that change it |
//! | `keys` | registered memory, what was registered once, and what is wrong with a key |
//! | `objects` | what exists, made where; what is left at the end |
//! | `queues` | queue pairs, shared receive queues, and what is posted to them |
//! | `finding` | findings, each told once and then counted |
//! | `record` | findings on their way from a process to who reports them |

#![forbid(unsafe_code)]

mod finding;
mod keys;
mod ledger;
mod objects;
mod queues;
pub mod record;
mod site;

pub use finding::{Finding, Trace};
pub use keys::{Region, Rights, Sge};
pub use ledger::{Completion, Deny, Ledger, Memory, Peer};
pub use objects::Kind;
pub use queues::{Op, QpInit, Remote, Send, Transport};
pub use site::Site;
