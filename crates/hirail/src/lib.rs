//! A software RNIC in user space: RDMA over Converged Ethernet (RoCE v2) with no card, no kernel
//! module and no root. Wire-compatible with real cards and with the kernel's rxe.

pub mod config;
pub mod devices;
pub mod exchange;
pub mod fork;
#[cfg(feature = "tokio")]
pub mod future;
pub mod memory;
pub mod port;
pub mod stat;

mod error;
mod runtime;
mod verbs;

pub use error::Error;
pub use hirail_rnic::cq::{Arm, CqId, WcPayload};
pub use hirail_rnic::event::AsyncEvent;
pub use hirail_rnic::mr::{Access, BindMw, MwType};
pub use hirail_rnic::qp::attr::{AddressVector, AttrMask, QpAttr};
pub use hirail_rnic::srq::SrqId;
pub use hirail_rnic::{GidEntry, Limits, RecoveryKind, RoceVersion, SendFlags, SendOp, VerbError};
pub use hirail_vocab::{
    AsyncEventKind, Counter, CounterSnapshot, QpState, QpType, WcOpcode, WcStatus,
};
pub use hirail_wire::{
    AckTimeout, Feth, FlushRange, Gid, Lkey, PathMtu, Psn, QKey, Qpn, Rkey, RnrTimer,
};
pub use runtime::memory::{Faults, MemoryNetwork};
pub use runtime::raw::{FlowControl, RawOptions, RoceVersions, Watermarks};
pub use verbs::builder::QpBuilder;
pub use verbs::connect::{ConnectOptions, QpEndpoint};
pub use verbs::context::Context;
pub use verbs::cq::{CompletionChannel, Cq};
pub use verbs::mr::{Mr, MrSlice, RemoteMemory};
pub use verbs::mw::Mw;
pub use verbs::pd::Pd;
pub use verbs::qp::Qp;
pub use verbs::srq::Srq;
pub use verbs::wc::Wc;
#[doc(hidden)]
pub use verbs::work::SendWr as Send;
pub use verbs::work::{Destination, Path, SendWr};
pub use verbs::xrc::Xrcd;
