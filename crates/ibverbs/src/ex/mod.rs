//! The extended interfaces: objects that carry their functions, and calls that exist only in the
//! table in front of a context.

pub(crate) mod advise;
pub(crate) mod cq;
pub(crate) mod domain;
pub(crate) mod qp;
pub(crate) mod wr;
