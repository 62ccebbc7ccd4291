//! A software RNIC in user space: RDMA over Converged Ethernet (RoCE v2) with no card, no kernel
//! module and no root. Wire-compatible with real cards and with the kernel's rxe.

pub mod config;
pub mod devices;
pub mod fork;
pub mod memory;
pub mod port;
pub mod stat;

mod error;
mod runtime;
mod verbs;

pub use error::Error;
pub use hirail_rnic::cq::{Arm, WcPayload};
pub use hirail_rnic::mr::Access;
pub use hirail_rnic::qp::attr::{AddressVector, AttrMask, QpAttr};
pub use hirail_rnic::{RecoveryKind, SendFlags, SendOp};
pub use hirail_vocab::{QpState, QpType, WcOpcode, WcStatus};
pub use runtime::memory::{Faults, MemoryNetwork};
pub use runtime::raw::{FlowControl, RawOptions, RoceVersions, Watermarks};
pub use verbs::context::Context;
pub use verbs::cq::{CompletionChannel, Cq, Wc};
pub use verbs::mr::{Mr, MrSlice, RemoteMemory};
pub use verbs::pd::Pd;
pub use verbs::qp::{ConnectOptions, Qp, QpBuilder, QpEndpoint, Send};
pub use verbs::srq::Srq;
pub use verbs::work::Destination;
