//! When a server can be asked. To try it would use up what some servers wait for.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;

/// A port that nobody uses, of TCP or of rdma_cm.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Waits until somebody listens at the port of TCP, or says why not.
pub(crate) fn tcp(port: u16, server: &mut Process, deadline: Instant) -> Result<(), String> {
    let suffix = format!(":{port:04X}");
    wait(server, deadline, || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
            let sockets = fs::read_to_string(file).unwrap_or_default();
            sockets.lines().skip(1).any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().unwrap_or_default();
                let is_listening = words.nth(1) == Some("0A");
                is_listening && local.ends_with(&suffix)
            })
        })
    })
}

/// Waits until somebody has bound the port of UDP, or says why not.
pub(crate) fn udp(port: u16, server: &mut Process, deadline: Instant) -> Result<(), String> {
    let suffix = format!(":{port:04X}");
    wait(server, deadline, || {
        ["/proc/net/udp", "/proc/net/udp6"].iter().any(|file| {
            let sockets = fs::read_to_string(file).unwrap_or_default();
            let mut locals = sockets
                .lines()
                .skip(1)
                .filter_map(|line| line.split_whitespace().nth(1));
            locals.any(|local| local.ends_with(&suffix))
        })
    })
}

/// Waits until somebody listens at the port of rdma_cm, in whatever port space, or says why not. Who
/// does has a Unix socket that names the service id, whose last four digits are the port.
pub(crate) fn service(port: u16, server: &mut Process, deadline: Instant) -> Result<(), String> {
    let part = format!("{port:04x}/");
    wait(server, deadline, || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let mut services = sockets
            .lines()
            .filter_map(|line| line.split_once("/service/"));
        services.any(|(_, service)| service.get(12..17) == Some(&part))
    })
}

/// Waits until so many sockets of this host are members of the group, or says why not. The kernel
/// prints addresses as numbers of its own order.
pub(crate) fn members(
    group: Ipv4Addr,
    count: usize,
    member: &mut Process,
    deadline: Instant,
) -> Result<(), String> {
    let group = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    wait(member, deadline, || {
        let groups = fs::read_to_string("/proc/net/igmp").unwrap_or_default();
        let users = groups.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == group).then_some(words.next()?.parse::<usize>().ok()?)
        });
        users.sum::<usize>() >= count
    })
}

fn wait(
    server: &mut Process,
    deadline: Instant,
    is_ready: impl Fn() -> bool,
) -> Result<(), String> {
    while !is_ready() {
        if server.has_ended() || Instant::now() > deadline {
            return Err(format!("the server does not listen: {}", server.tail()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
