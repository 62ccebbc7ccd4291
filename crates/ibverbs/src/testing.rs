//! What tests of several modules begin with: the loopback's device, open, and a domain on it.

use std::ptr;

use crate::{abi, context, device, pd};

/// An open device and a domain, closed with the value.
pub(crate) struct Opened {
    pub(crate) context: *mut abi::Context,
    pub(crate) pd: *mut abi::Pd,
}

impl Opened {
    pub(crate) fn new() -> Self {
        // SAFETY: the list is freed after its last use; devices stay.
        unsafe {
            let mut count = 0;
            let list = device::get_device_list(&raw mut count);
            let context = context::open_device(*list.add(count as usize - 1));
            device::free_device_list(list);
            assert!(!context.is_null());
            let pd = pd::alloc_pd(context);
            assert_ne!(pd, ptr::null_mut());
            Self { context, pd }
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: both are open, and tests have given up what they made in them.
        unsafe {
            assert_eq!(pd::dealloc_pd(self.pd), 0);
            assert_eq!(context::close_device(self.context), 0);
        }
    }
}
