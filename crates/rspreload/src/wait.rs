//! The calls that wait for several descriptors.

use core::ffi::c_int;
use core::slice;

use libc::{
    FD_ISSET, FD_SET, FD_ZERO, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval,
};

use crate::function::{next, rsockets};
use crate::table::{self, Inside};

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(polls: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: so many of the caller's.
    unsafe {
        if polls.is_null() || count == 0 {
            return next::poll(polls, count, timeout);
        }
        let all = slice::from_raw_parts_mut(polls, count as usize);
        if !all.iter().any(|poll| table::find(poll.fd).is_some()) {
            return next::poll(polls, count, timeout);
        }
        let mut meant: Vec<pollfd> = all
            .iter()
            .map(|poll| pollfd {
                fd: table::find(poll.fd).unwrap_or(poll.fd),
                ..*poll
            })
            .collect();
        let _inside = Inside::new();
        let ready = rsockets::rpoll(meant.as_mut_ptr(), count, timeout);
        for (poll, meant) in all.iter_mut().zip(&meant) {
            poll.revents = meant.revents;
        }
        ready
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    polls: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: it does not come back.
        unsafe { libc::abort() };
    }
    // SAFETY: the caller's arguments.
    unsafe { poll(polls, count, timeout) }
}

/// Milliseconds, rounded up.
///
/// # Safety
/// The time is NULL, or the caller's.
unsafe fn milliseconds(time: *const timespec) -> c_int {
    // SAFETY: as required of the caller.
    unsafe { time.as_ref() }.map_or(-1, |time| {
        let whole = time.tv_sec.saturating_mul(1000);
        let part = (time.tv_nsec + 999_999) / 1_000_000;
        whole.saturating_add(part).try_into().unwrap_or(c_int::MAX)
    })
}

/// Calls that wait with another mask of signals. With rsockets it is set before and after.
///
/// # Safety
/// The mask is NULL, or the caller's.
unsafe fn masked(mask: *const sigset_t, job: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as required of the caller, and a place on the stack.
    unsafe {
        if mask.is_null() {
            return job();
        }
        let mut before: sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before);
        let done = job();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        done
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    polls: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: so many of the caller's.
    unsafe {
        let is_meant = !polls.is_null()
            && slice::from_raw_parts(polls, count as usize)
                .iter()
                .any(|poll| table::find(poll.fd).is_some());
        if !is_meant {
            return next::ppoll(polls, count, time, mask);
        }
        masked(mask, || poll(polls, count, milliseconds(time)))
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    exceptions: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: sets and a time of the caller's, or NULL.
    unsafe {
        let has = |set: *mut fd_set, fd| !set.is_null() && FD_ISSET(fd, set);
        let wanted = |fd: c_int| {
            let mut events = 0;
            for (set, event) in [
                (reads, libc::POLLIN),
                (writes, libc::POLLOUT),
                (exceptions, libc::POLLPRI),
            ] {
                if has(set, fd) {
                    events |= event;
                }
            }
            events
        };
        let count = count.clamp(0, libc::FD_SETSIZE as c_int);
        let is_meant = (0..count).any(|fd| wanted(fd) != 0 && table::find(fd).is_some());
        if !is_meant {
            return next::select(count, reads, writes, exceptions, timeout);
        }
        let mut polls: Vec<pollfd> = (0..count)
            .filter(|fd| wanted(*fd) != 0)
            .map(|fd| pollfd {
                fd,
                events: wanted(fd),
                revents: 0,
            })
            .collect();
        let time = timeout.as_ref().map(|time| timespec {
            tv_sec: time.tv_sec,
            tv_nsec: time.tv_usec * 1000,
        });
        let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let ready = poll(
            polls.as_mut_ptr(),
            polls.len() as nfds_t,
            milliseconds(time),
        );
        if ready < 0 {
            return ready;
        }
        let mut found = 0;
        let hung = libc::POLLHUP | libc::POLLERR;
        for (set, asked, told) in [
            (reads, libc::POLLIN, libc::POLLIN | hung),
            (writes, libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
            (exceptions, libc::POLLPRI, libc::POLLPRI),
        ] {
            if set.is_null() {
                continue;
            }
            FD_ZERO(set);
            for poll in &polls {
                if poll.events & asked != 0 && poll.revents & told != 0 {
                    FD_SET(poll.fd, set);
                    found += 1;
                }
            }
        }
        found
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match table::find(fd) {
            Some(rsocket) => {
                table::mark_set(set);
                let _inside = Inside::new();
                rsockets::repoll_ctl(set, operation, rsocket, event)
            }
            None => next::epoll_ctl(set, operation, fd, event),
        }
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !table::is_marked(set) {
            return next::epoll_wait(set, to, most, timeout);
        }
        let _inside = Inside::new();
        rsockets::repoll_wait(set, to, most, timeout)
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !table::is_marked(set) {
            return next::epoll_pwait(set, to, most, timeout, mask);
        }
        masked(mask, || epoll_wait(set, to, most, timeout))
    }
}
