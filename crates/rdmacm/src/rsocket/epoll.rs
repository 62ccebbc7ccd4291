//! `repoll_create`, `repoll_ctl`, `repoll_wait`: an epoll set of sockets and other descriptors.
//!
//! A set is an epoll set of the kernel in which the other descriptors are, and any epoll set can be
//! used. Events of sockets are levels, as those of `rpoll`; with `EPOLLET` they are told when
//! something came, when a call had to be refused since, or when they are others than before, and with
//! `EPOLLONESHOT` once.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use libc::epoll_event;

use super::config::Config;
use super::poll::{self, Edges};
use super::table::{self, Socket};
use super::wait::{Patience, Sleeper};
use crate::entry::{self, lock};
use crate::errno::Errno;

/// A socket in a set.
struct Member {
    socket: Weak<Socket>,
    interest: epoll_event,
    /// What was told, and what had happened until then, where only news is.
    told: (u32, Edges),
}

/// The sockets of a set, by their descriptors.
type Members = Arc<Mutex<BTreeMap<c_int, Member>>>;

static SETS: RwLock<BTreeMap<c_int, Members>> = RwLock::new(BTreeMap::new());

/// The sockets of a set, where there are any.
fn known(set: c_int) -> Option<Members> {
    let sets = SETS.read().unwrap_or_else(PoisonError::into_inner);
    sets.get(&set).cloned()
}

/// The sockets of a set.
fn members(set: c_int) -> Members {
    known(set).unwrap_or_else(|| {
        let mut sets = SETS.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sets.entry(set).or_default())
    })
}

/// `repoll_create`: a descriptor, to be closed like any other.
pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    entry::value(|| {
        // SAFETY: no preconditions.
        let set = unsafe { libc::epoll_create1(flags) };
        if set < 0 {
            return Err(Errno::last());
        }
        // One of that number is closed.
        let mut sets = SETS.write().unwrap_or_else(PoisonError::into_inner);
        sets.insert(set, Members::default());
        Ok(set)
    })
}

/// `repoll_ctl`.
pub(crate) unsafe extern "C" fn repoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    interest: *mut epoll_event,
) -> c_int {
    entry::number(|| {
        let members = members(set);
        let mut members = lock(&members);
        let Some(socket) = table::find(fd) else {
            // One that was closed left the set.
            if members.remove(&fd).is_some() && operation == libc::EPOLL_CTL_DEL {
                return Ok(());
            }
            // SAFETY: the caller's.
            return match unsafe { libc::epoll_ctl(set, operation, fd, interest) } {
                0 => Ok(()),
                _ => Err(Errno::last()),
            };
        };
        // SAFETY: the caller's, where there is one.
        let interest = unsafe { interest.as_ref().copied() };
        let is_member = members.get(&fd).is_some_and(|member| member.is(&socket));
        match (operation, is_member) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => {
                return Err(Errno(libc::ENOENT));
            }
            (libc::EPOLL_CTL_DEL, true) => {
                members.remove(&fd);
            }
            (libc::EPOLL_CTL_ADD, false) | (libc::EPOLL_CTL_MOD, true) => {
                let member = Member {
                    socket: Arc::downgrade(&socket),
                    interest: interest.ok_or(Errno(libc::EFAULT))?,
                    told: (0, Edges::default()),
                };
                members.insert(fd, member);
            }
            _ => return Err(Errno::INVALID),
        }
        // Who waits for the set looks again.
        socket.waiters.wake();
        Ok(())
    })
}

impl Member {
    fn is(&self, socket: &Arc<Socket>) -> bool {
        core::ptr::eq(self.socket.as_ptr(), Arc::as_ptr(socket))
    }

    /// What is to be told now.
    fn ready(&mut self) -> Option<epoll_event> {
        let wanted = self.interest.events;
        if wanted & !MODES == 0 {
            return None;
        }
        let socket = self.socket.upgrade()?;
        // Both have the same numbers.
        let found = poll::ready(&socket, (wanted & 0xffff) as i16);
        let found = u32::from(found.cast_unsigned());
        if wanted & libc::EPOLLET as u32 != 0 {
            let now = (found, poll::edges(&socket));
            if std::mem::replace(&mut self.told, now) == now {
                return None;
            }
        }
        if found == 0 {
            return None;
        }
        if wanted & libc::EPOLLONESHOT as u32 != 0 {
            self.interest.events = wanted & MODES;
        }
        Some(epoll_event {
            events: found,
            u64: self.interest.u64,
        })
    }
}

/// Flags that say how, not what.
const MODES: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

/// Looks at the sockets and at the kernel's set.
fn look(
    set: c_int,
    members: &Members,
    to: &mut Vec<epoll_event>,
    most: usize,
) -> Result<(), Errno> {
    let mut members = lock(members);
    members.retain(|fd, member| {
        let known = table::find(*fd);
        known.is_some_and(|socket| member.is(&socket))
    });
    for member in members.values_mut() {
        if to.len() == most {
            return Ok(());
        }
        to.extend(member.ready());
    }
    let room = most - to.len();
    let mut others = vec![epoll_event { events: 0, u64: 0 }; room];
    if room > 0 {
        // SAFETY: so many places.
        let found = unsafe { libc::epoll_wait(set, others.as_mut_ptr(), room as c_int, 0) };
        others.truncate(usize::try_from(found).map_err(|_| Errno::last())?);
        to.extend(others);
    }
    Ok(())
}

/// `repoll_wait`.
pub(crate) unsafe extern "C" fn repoll_wait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    entry::value(|| {
        let members = members(set);
        let most = usize::try_from(most).map_err(|_| Errno::INVALID)?;
        if most == 0 || to.is_null() {
            return Err(Errno::INVALID);
        }
        let found = wait(set, &members, most, Patience::milliseconds(timeout))?;
        // SAFETY: so many places of the caller's.
        unsafe { core::ptr::copy_nonoverlapping(found.as_ptr(), to, found.len()) };
        Ok(found.len() as c_int)
    })
}

fn wait(
    set: c_int,
    members: &Members,
    most: usize,
    patience: Patience,
) -> Result<Vec<epoll_event>, Errno> {
    let config = Config::get();
    let mut found = Vec::new();
    loop {
        look(set, members, &mut found, most)?;
        if !found.is_empty() || matches!(patience, Patience::None) {
            return Ok(found);
        }
        let sockets: Vec<_> = {
            let members = lock(members);
            members
                .values()
                .filter_map(|member| member.socket.upgrade())
                .collect()
        };
        let sleeper = Sleeper::new(sockets.iter().map(|socket| &socket.waiters).collect())?;
        for socket in &sockets {
            poll::arm(socket)?;
        }
        look(set, members, &mut found, most)?;
        let Some(time) = patience.left(config.turn) else {
            return Ok(found);
        };
        if !found.is_empty() {
            return Ok(found);
        }
        let fds = sockets.iter().map(|socket| socket.fd()).chain([set]);
        let mut polls = fds
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        sleeper.sleep(&mut polls, time)?;
    }
}
