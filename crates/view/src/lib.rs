//! A library for `LD_PRELOAD` that shows hirail's devices to programs which look for files: calls of
//! the C library that name a place in `/sys/class/infiniband`, `/dev/infiniband` and the like are led
//! to the same place below the folder that this library was loaded from. `hirail run` fills it.
//!
//! It is the second choice: calls within the C library do not come by, nor do system calls that a
//! program makes itself. A mount namespace has neither gap.
//!
//! | module | |
//! | --- | --- |
//! | `place` | which paths are led where, and back |
//! | `next` | the function of the C library behind one of this library's |
//! | `calls` | the functions |
//!
//! Some of these functions are called in signal handlers (signal-safety(7)), so nothing here
//! allocates or takes a lock.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod next;
mod place;
