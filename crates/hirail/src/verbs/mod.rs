//! The verbs: objects that users hold. Each is a cheap handle that keeps what it depends on alive;
//! dropping the last one destroys the object.

pub(crate) mod builder;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod event;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod prefetch;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod wc;
pub(crate) mod work;
pub(crate) mod xrc;
