//! Asynchronous events and completion events, as queues behind descriptors that can be waited on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::port::sys;

/// A queue whose descriptor is readable while something is in it.
pub(crate) struct FdQueue<T> {
    queue: Mutex<VecDeque<T>>,
    fd: File,
}

impl<T> FdQueue<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::new(VecDeque::new()),
            fd: File::from(sys::event()?),
        })
    }

    pub(crate) fn push(&self, item: T) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        // It fails only when the counter would overflow: then it is readable anyway.
        let _ = (&self.fd).write(&1u64.to_ne_bytes());
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let item = queue.pop_front();
        if queue.is_empty() {
            let _ = (&self.fd).read(&mut [0; 8]);
        }
        item
    }

    /// Takes all items out that are `wanted`, in their order.
    pub(crate) fn take(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, rest) = queue.drain(..).partition(|item| wanted(item));
        *queue = rest;
        if queue.is_empty() {
            let _ = (&self.fd).read(&mut [0; 8]);
        }
        let taken: VecDeque<T> = taken;
        taken.into()
    }

    /// Takes the oldest item, waiting for one up to `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<T> {
        let end = std::time::Instant::now() + timeout;
        loop {
            if let Some(item) = self.pop() {
                return Some(item);
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return None;
            }
            sys::wait_readable(&[self.fd.as_fd()], left);
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asynchronous events of a device.
pub(crate) type EventQueue = FdQueue<hirail_rnic::event::AsyncEvent>;
