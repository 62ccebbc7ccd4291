//! Socket addresses, and the GIDs that stand for them.

use core::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::Errno;

/// Reads what a program gives.
///
/// # Errors
/// It is neither IPv4 nor IPv6.
///
/// # Safety
/// The address is as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, Errno> {
    // SAFETY: as required of the caller; nothing need be aligned.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into());
                Ok((ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

/// Writes an address the way that programs read it.
pub(crate) fn write(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: zeros are an address of no family; both kinds fit and are aligned.
    unsafe {
        let mut storage: sockaddr_storage = mem::zeroed();
        match address {
            SocketAddr::V4(v4) => {
                let to = &mut *(&raw mut storage).cast::<sockaddr_in>();
                to.sin_family = libc::AF_INET as libc::sa_family_t;
                to.sin_port = v4.port().to_be();
                to.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
            SocketAddr::V6(v6) => {
                let to = &mut *(&raw mut storage).cast::<sockaddr_in6>();
                to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                to.sin6_port = v6.port().to_be();
                to.sin6_addr.s6_addr = v6.ip().octets();
                to.sin6_scope_id = v6.scope_id();
            }
        }
        storage
    }
}

/// The GID that stands for an IP address.
pub(crate) fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The IP address that a GID stands for.
pub(crate) fn ip(gid: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(gid);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// The address from which the host would send to `to`. Nothing is sent.
pub(crate) fn source_for(to: SocketAddr) -> Result<IpAddr, Errno> {
    let any: IpAddr = if to.is_ipv4() {
        IpAddr::V4(0.into())
    } else {
        IpAddr::V6(0.into())
    };
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = to;
    if to.port() == 0 {
        to.set_port(1);
    }
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["192.0.2.7:18515", "[2001:db8::7]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = write(address);
            // SAFETY: an address as long as its family says.
            let read = unsafe { read((&raw const storage).cast()) };
            assert_eq!(read, Ok(address));
            assert_eq!(ip(gid(address.ip())), address.ip());
        }
        let mut storage = write("192.0.2.7:1".parse().unwrap());
        storage.ss_family = 27;
        // SAFETY: its family is read first.
        let refused = unsafe { read((&raw const storage).cast()) };
        assert_eq!(refused, Err(Errno(libc::EAFNOSUPPORT)));
    }

    #[test]
    fn the_loopback_is_reached_from_itself() {
        for ip in ["127.0.0.1", "127.0.0.9"] {
            let to = SocketAddr::new(ip.parse().unwrap(), 0);
            assert!(source_for(to).unwrap().is_loopback());
        }
    }
}
