//! Which descriptors of the program mean an rsocket. No locks, since any call may be made in a signal
//! handler.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

/// Descriptors that can mean one; greater ones mean what they say.
const MOST: usize = 1 << 16;

/// By the program's descriptor: one more than that of the rsocket, or 0.
static MEANT: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// By that of the rsocket: how many descriptors of the program mean it.
static COUNT: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// By the descriptor of an epoll set: whether an rsocket is in it.
static SETS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

fn place(table: &'static [AtomicI32; MOST], fd: c_int) -> Option<&'static AtomicI32> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// The rsocket that the program means.
pub(crate) fn find(fd: c_int) -> Option<c_int> {
    if is_inside() {
        return None;
    }
    let found = place(&MEANT, fd)?.load(Ordering::Acquire);
    (found > 0).then(|| found - 1)
}

/// From now on `fd` means an rsocket. Where there is no place for it, it does not.
pub(crate) fn set(fd: c_int, rsocket: c_int) -> bool {
    let (Some(meant), Some(count)) = (place(&MEANT, fd), place(&COUNT, rsocket)) else {
        return false;
    };
    count.fetch_add(1, Ordering::AcqRel);
    meant.store(rsocket + 1, Ordering::Release);
    true
}

/// `fd` means nothing any more. The rsocket, if it was the last that meant it.
pub(crate) fn take(fd: c_int) -> Option<c_int> {
    let meant = place(&MEANT, fd)?.swap(0, Ordering::AcqRel);
    if meant == 0 {
        return None;
    }
    let rsocket = meant - 1;
    let left = place(&COUNT, rsocket)?.fetch_sub(1, Ordering::AcqRel);
    (left == 1).then_some(rsocket)
}

/// There is an rsocket in an epoll set.
pub(crate) fn mark_set(set: c_int) {
    if let Some(place) = place(&SETS, set) {
        place.store(1, Ordering::Release);
    }
}

/// Whether there is one.
pub(crate) fn is_marked(set: c_int) -> bool {
    !is_inside() && place(&SETS, set).is_some_and(|place| place.load(Ordering::Acquire) != 0)
}

/// The descriptor is closed.
pub(crate) fn unmark_set(set: c_int) {
    if let Some(place) = place(&SETS, set) {
        place.store(0, Ordering::Release);
    }
}

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a call of rsockets: what is called from there is the kernel's.
pub(crate) fn is_inside() -> bool {
    INSIDE.with(Cell::get) > 0
}

/// This thread is in a call of rsockets, as long as this exists.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new() -> Self {
        INSIDE.with(|inside| inside.set(inside.get() + 1));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(inside.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_closes() {
        assert_eq!(find(1000), None);
        assert!(set(1000, 2000));
        assert!(set(1001, 2000));
        assert_eq!((find(1000), find(1001)), (Some(2000), Some(2000)));
        let inside = Inside::new();
        assert_eq!(find(1000), None);
        drop(inside);
        assert_eq!(take(1000), None);
        assert_eq!(take(1000), None);
        assert_eq!(take(1001), Some(2000));
        assert_eq!(find(1001), None);
    }

    #[test]
    fn descriptors_without_a_place_mean_what_they_say() {
        assert!(!set(1 << 20, 5));
        assert!(!set(5, -1));
        assert_eq!((find(-1), find(1 << 20)), (None, None));
        assert_eq!(take(-1), None);
    }

    #[test]
    fn sets_are_marked() {
        mark_set(3000);
        assert!(is_marked(3000) && !is_marked(3001));
        unmark_set(3000);
        assert!(!is_marked(3000));
    }
}
