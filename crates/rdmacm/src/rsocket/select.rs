//! `rselect`: the same as `rpoll`, with sets of bits.

use core::ffi::c_int;
use std::time::Duration;

use libc::{FD_ISSET, FD_SET, FD_SETSIZE, FD_ZERO, fd_set, pollfd, timeval};

use super::poll;
use super::wait::Patience;
use crate::entry;
use crate::errno::Errno;

/// `rselect`.
pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    exceptions: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    entry::value(|| {
        if !(0..=FD_SETSIZE as c_int).contains(&count) {
            return Err(Errno::INVALID);
        }
        let sets = [
            (
                reads,
                libc::POLLIN,
                libc::POLLIN | libc::POLLHUP | libc::POLLERR,
            ),
            (writes, libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
            (exceptions, libc::POLLPRI, libc::POLLPRI),
        ];
        // SAFETY: sets and a time of the caller's, or NULL.
        unsafe {
            let has = |set: *mut fd_set, fd| !set.is_null() && FD_ISSET(fd, set);
            let patience = Patience::within(timeout.as_ref().map(patience).transpose()?);
            let mut polls: Vec<_> = (0..count)
                .filter(|fd| sets.iter().any(|(set, ..)| has(*set, *fd)))
                .map(|fd| {
                    let wanted = sets.iter().filter(|(set, ..)| has(*set, fd));
                    pollfd {
                        fd,
                        events: wanted.fold(0, |events, (_, asked, _)| events | asked),
                        revents: 0,
                    }
                })
                .collect();
            poll::wait(&mut polls, patience)?;
            if polls.iter().any(|poll| poll.revents & libc::POLLNVAL != 0) {
                return Err(Errno(libc::EBADF));
            }
            let mut found = 0;
            for (set, asked, told) in sets.iter().filter(|(set, ..)| !set.is_null()) {
                FD_ZERO(*set);
                for poll in &polls {
                    if poll.events & asked != 0 && poll.revents & told != 0 {
                        FD_SET(poll.fd, *set);
                        found += 1;
                    }
                }
            }
            Ok(found)
        }
    })
}

fn patience(time: &timeval) -> Result<Duration, Errno> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVALID)?;
    let micros = u64::try_from(time.tv_usec).map_err(|_| Errno::INVALID)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}
