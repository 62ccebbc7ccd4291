//! Options of sockets: `rsetsockopt`, `rgetsockopt`, `rfcntl`.

use core::ffi::{c_int, c_long, c_void};
use core::ptr;
use std::time::Duration;

use libc::{linger, socklen_t, timeval};

use super::protocol;
use super::stream::{Phase, State};
use super::table::{self, Kind, Socket};
use super::{datagram, service};
use crate::entry;
use crate::errno::Errno;

/// The level of what only RDMA has, and the names there.
mod rdma {
    pub(super) const LEVEL: i32 = 0x10000;
    pub(super) const SEND_QUEUE: i32 = 0;
    pub(super) const RECV_QUEUE: i32 = 1;
    pub(super) const INLINE: i32 = 2;
    pub(super) const MAPPINGS: i32 = 3;
    pub(super) const ROUTE: i32 = 4;
}

/// Sizes of queues and buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) send_buffer: usize,
    pub(super) recv_buffer: usize,
    pub(super) send_queue: u16,
    pub(super) recv_queue: u16,
    pub(super) inline: u16,
    /// Buffers that the peer may map.
    pub(super) mappings: u16,
}

impl Sizes {
    pub(super) const DEFAULT: Self = Self {
        send_buffer: 1 << 17,
        recv_buffer: 1 << 17,
        send_queue: 384,
        recv_queue: 384,
        inline: 64,
        mappings: 0,
    };

    /// The least buffer, in which a few pieces fit.
    const LEAST_BUFFER: usize = 4096;
    /// A half must be told in 32 bits.
    const MOST_BUFFER: usize = 1 << 30;
    /// Requests that fit into a queue. More than half of the range of message numbers could not be
    /// told from fewer.
    const QUEUE: (u16, u16) = (16, 0x7ffe);

    pub(super) fn set_send_buffer(&mut self, bytes: usize) {
        self.send_buffer = bytes.clamp(Self::LEAST_BUFFER, Self::MOST_BUFFER);
    }

    /// It has two halves.
    pub(super) fn set_recv_buffer(&mut self, bytes: usize) {
        self.recv_buffer = bytes.clamp(Self::LEAST_BUFFER, Self::MOST_BUFFER) & !1;
    }

    /// What can be had of what is wanted.
    pub(super) fn clamped(self) -> Self {
        let (least, most) = Self::QUEUE;
        Self {
            send_queue: self.send_queue.clamp(least, most),
            recv_queue: self.recv_queue.clamp(least, most),
            inline: self.inline.min(MOST_INLINE),
            ..self
        }
    }
}

/// Bytes that fit into a request.
const MOST_INLINE: u16 = 1024;

/// What a program has set.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) sizes: Sizes,
    pub(super) reuses_address: bool,
    pub(super) keeps_alive: bool,
    /// Seconds.
    pub(super) keepalive_time: u32,
    pub(super) receive_timeout: Option<Duration>,
    pub(super) send_timeout: Option<Duration>,
    pub(super) linger: Option<Duration>,
    no_delay: bool,
    oob_inline: bool,
    only_v6: bool,
    route: Vec<u8>,
}

impl Settings {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            reuses_address: false,
            keeps_alive: false,
            keepalive_time: 7200,
            receive_timeout: None,
            send_timeout: None,
            linger: None,
            no_delay: false,
            oob_inline: false,
            only_v6: false,
            route: Vec::new(),
        }
    }

    /// What connections have of their listener's.
    pub(super) fn inherited(&self) -> Self {
        Self {
            no_delay: self.no_delay,
            keeps_alive: self.keeps_alive,
            keepalive_time: self.keepalive_time,
            linger: self.linger,
            ..Self::new(self.sizes.clamped())
        }
    }
}

/// A value that a program gives.
///
/// # Safety
/// That many bytes are there.
unsafe fn value<T: Copy>(from: *const c_void, length: socklen_t) -> Result<T, Errno> {
    if from.is_null() || (length as usize) < size_of::<T>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller, and any bits are numbers.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

fn duration(time: timeval) -> Result<Option<Duration>, Errno> {
    const DOMAIN: Errno = Errno(libc::EDOM);
    let seconds = u64::try_from(time.tv_sec).map_err(|_| DOMAIN)?;
    let micros = u32::try_from(time.tv_usec).map_err(|_| DOMAIN)?;
    if micros >= 1_000_000 {
        return Err(DOMAIN);
    }
    let time = Duration::new(seconds, micros * 1000);
    Ok((!time.is_zero()).then_some(time))
}

const UNSUPPORTED: Errno = Errno(libc::ENOTSUP);

/// `rsetsockopt`.
pub(crate) unsafe extern "C" fn rsetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    length: socklen_t,
) -> c_int {
    entry::number(|| {
        let socket = table::get(fd)?;
        match &socket.kind {
            Kind::Stream(stream) => {
                // SAFETY: a value of the caller's.
                unsafe { set(&mut stream.lock(), level, name, from, length) }
            }
            Kind::Datagram(one) if level == rdma::LEVEL => {
                // SAFETY: as above.
                datagram::with_sizes(one, |sizes| unsafe {
                    set_size(sizes, name, value(from, length)?)
                })
            }
            Kind::Datagram(one) => {
                if level == libc::SOL_SOCKET {
                    // SAFETY: as above.
                    let size = || unsafe { value::<c_int>(from, length) };
                    datagram::with_sizes(one, |sizes| set_buffer(sizes, name, size))?;
                }
                // SAFETY: the kernel reads the value.
                let done =
                    unsafe { libc::setsockopt(datagram::fd(one), level, name, from, length) };
                if done == 0 {
                    Ok(())
                } else {
                    Err(Errno::last())
                }
            }
        }
    })
}

/// Buffers are twice as large as a program says, as the kernel's are.
fn set_buffer(
    sizes: &mut Sizes,
    name: c_int,
    size: impl FnOnce() -> Result<c_int, Errno>,
) -> Result<(), Errno> {
    let set = match name {
        libc::SO_SNDBUF => Sizes::set_send_buffer,
        libc::SO_RCVBUF => Sizes::set_recv_buffer,
        _ => return Ok(()),
    };
    set(sizes, (size()?.cast_unsigned() as usize) << 1);
    Ok(())
}

fn set_size(sizes: &mut Sizes, name: c_int, value: c_int) -> Result<(), Errno> {
    let size = u16::try_from(value.max(0)).unwrap_or(u16::MAX);
    match name {
        rdma::SEND_QUEUE => sizes.send_queue = size,
        rdma::RECV_QUEUE => sizes.recv_queue = size,
        rdma::INLINE => sizes.inline = size,
        rdma::MAPPINGS => sizes.mappings = protocol::sayable(size),
        _ => return Err(UNSUPPORTED),
    }
    *sizes = sizes.clamped();
    Ok(())
}

/// # Safety
/// That many bytes are there.
unsafe fn set(
    state: &mut State,
    level: c_int,
    name: c_int,
    from: *const c_void,
    length: socklen_t,
) -> Result<(), Errno> {
    let is_early = matches!(state.phase, Phase::Fresh | Phase::Listening);
    let settings = &mut state.settings;
    // SAFETY: as required of the caller.
    let number = || unsafe { value::<c_int>(from, length) };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
            settings.reuses_address = number()? != 0;
            if let Some(handle) = &state.handle {
                handle.id().state().options.shares_address = settings.reuses_address;
            }
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {
            // Afterwards it has no effect, and is no mistake.
            if is_early {
                set_buffer(&mut settings.sizes, name, number)?;
            }
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            settings.keeps_alive = number()? != 0;
            if settings.keeps_alive {
                service::keep_alive();
            }
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            // SAFETY: as required of the caller.
            let linger = unsafe { value::<linger>(from, length)? };
            let seconds = linger.l_linger.max(0).cast_unsigned();
            settings.linger = (linger.l_onoff != 0).then(|| Duration::from_secs(seconds.into()));
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            // SAFETY: as required of the caller.
            let time = duration(unsafe { value(from, length)? })?;
            match name {
                libc::SO_RCVTIMEO => settings.receive_timeout = time,
                _ => settings.send_timeout = time,
            }
        }
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => settings.oob_inline = number()? != 0,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => settings.no_delay = number()? != 0,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            let seconds = u32::try_from(number()?).map_err(|_| Errno::INVALID)?;
            if seconds == 0 {
                return Err(Errno::INVALID);
            }
            settings.keepalive_time = seconds;
        }
        // The transport knows better.
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG) => {}
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => settings.only_v6 = number()? != 0,
        (rdma::LEVEL, _) if !is_early => return Err(Errno::INVALID),
        (rdma::LEVEL, rdma::ROUTE) => {
            if from.is_null() {
                return Err(Errno::INVALID);
            }
            // SAFETY: as required of the caller.
            let bytes = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), length as usize) };
            settings.route = bytes.to_vec();
        }
        (rdma::LEVEL, name) => set_size(&mut settings.sizes, name, number()?)?,
        _ => return Err(UNSUPPORTED),
    }
    Ok(())
}

/// `rgetsockopt`.
pub(crate) unsafe extern "C" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    entry::number(|| {
        let socket = table::get(fd)?;
        if to.is_null() || length.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let found = match &socket.kind {
            Kind::Stream(stream) => get(&socket, &mut stream.lock(), level, name)?,
            Kind::Datagram(one) if level == rdma::LEVEL => {
                number(size_of_name(&datagram::sizes(one), name)?)
            }
            Kind::Datagram(one) => {
                // SAFETY: the kernel writes where the caller says.
                let done = unsafe { libc::getsockopt(datagram::fd(one), level, name, to, length) };
                return if done == 0 {
                    Ok(())
                } else {
                    Err(Errno::last())
                };
            }
        };
        // SAFETY: places of the caller's.
        unsafe {
            let room = (*length as usize).min(found.len());
            ptr::copy_nonoverlapping(found.as_ptr(), to.cast(), room);
            *length = room as socklen_t;
        }
        Ok(())
    })
}

fn number(value: c_int) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// The bytes of a structure of numbers.
fn bytes<T: Copy>(value: &T) -> Vec<u8> {
    // SAFETY: the structures of the kernel that are given have no padding here.
    unsafe { core::slice::from_raw_parts(ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
        .to_vec()
}

fn time(duration: Option<Duration>) -> Vec<u8> {
    let duration = duration.unwrap_or_default();
    bytes(&timeval {
        tv_sec: duration.as_secs().cast_signed(),
        tv_usec: duration.subsec_micros().into(),
    })
}

fn size_of_name(sizes: &Sizes, name: c_int) -> Result<c_int, Errno> {
    Ok(match name {
        rdma::SEND_QUEUE => sizes.send_queue.into(),
        rdma::RECV_QUEUE => sizes.recv_queue.into(),
        rdma::INLINE => sizes.inline.into(),
        rdma::MAPPINGS => sizes.mappings.into(),
        _ => return Err(UNSUPPORTED),
    })
}

fn get(socket: &Socket, state: &mut State, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
    let settings = &state.settings;
    let size = |bytes: usize| number(bytes as c_int);
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            // Where what was received comes first, the error is still to be told.
            state.look(socket);
            number(state.error.take().map_or(0, |errno| errno.0))
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => number(libc::SOCK_STREAM),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => number(socket.family),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => number(libc::IPPROTO_TCP),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => number((state.phase == Phase::Listening).into()),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => number(settings.reuses_address.into()),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => number(settings.keeps_alive.into()),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => number(settings.oob_inline.into()),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => size(settings.sizes.recv_buffer),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => size(settings.sizes.send_buffer),
        (libc::SOL_SOCKET, libc::SO_LINGER) => bytes(&linger {
            l_onoff: settings.linger.is_some().into(),
            l_linger: settings.linger.map_or(0, |time| time.as_secs() as c_int),
        }),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => time(settings.receive_timeout),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => time(settings.send_timeout),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => number(settings.no_delay.into()),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => number(settings.keepalive_time.cast_signed()),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => number(1),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => number(max_segment(state)),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => number(settings.only_v6.into()),
        (rdma::LEVEL, rdma::ROUTE) => settings.route.clone(),
        (rdma::LEVEL, name) => number(size_of_name(&settings.sizes, name)?),
        _ => return Err(UNSUPPORTED),
    })
}

/// Payload of a packet.
fn max_segment(state: &State) -> c_int {
    /// Where there is no connection yet.
    const COMMON: c_int = 2048;
    let Some(handle) = &state.handle else {
        return COMMON;
    };
    let id = handle.id();
    let device = id.state().device;
    device.map_or(COMMON, |device| 128 << device.mtu())
}

/// `rfcntl`. The last argument is there where the command has one.
pub(crate) unsafe extern "C" fn rfcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    entry::value(|| {
        let socket = table::get(fd)?;
        match command {
            libc::F_GETFL => Ok(socket.flags()),
            libc::F_SETFL => {
                socket.set_flags(argument as c_int);
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                // SAFETY: a descriptor of ours.
                let done = unsafe { libc::fcntl(socket.fd(), command, argument) };
                if done < 0 {
                    Err(Errno::last())
                } else {
                    Ok(done)
                }
            }
            _ => Err(UNSUPPORTED),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_what_can_be_had() {
        let mut sizes = Sizes::DEFAULT;
        sizes.set_recv_buffer(0);
        assert_eq!(sizes.recv_buffer, 4096);
        sizes.set_recv_buffer(8191);
        assert_eq!(sizes.recv_buffer, 8190);
        sizes.set_recv_buffer(usize::MAX);
        assert_eq!(sizes.recv_buffer, 1 << 30);
        set_size(&mut sizes, rdma::SEND_QUEUE, 1).unwrap();
        set_size(&mut sizes, rdma::RECV_QUEUE, 1_000_000).unwrap();
        set_size(&mut sizes, rdma::INLINE, 100_000).unwrap();
        assert_eq!((sizes.send_queue, sizes.recv_queue), (16, 0x7ffe));
        assert_eq!(sizes.inline, 1024);
        assert_eq!(set_size(&mut sizes, 99, 1), Err(UNSUPPORTED));
    }

    #[test]
    fn times_are_checked() {
        let time = |tv_sec, tv_usec| duration(timeval { tv_sec, tv_usec });
        assert_eq!(time(0, 0), Ok(None));
        assert_eq!(time(1, 5), Ok(Some(Duration::from_micros(1_000_005))));
        assert_eq!(time(-1, 0), Err(Errno(libc::EDOM)));
        assert_eq!(time(0, 1_000_000), Err(Errno(libc::EDOM)));
    }
}
