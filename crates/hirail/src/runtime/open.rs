//! From a device's name to a running RNIC: the interface, the configuration, the UDP port.

use std::net::IpAddr;
use std::sync::Arc;

use hirail_rnic::{DeviceConfig, GidEntry, RoceVersion, Span, WindowConfig};
use hirail_wire::Qpn;

use super::Rnic;
use super::faults::FaultyLink;
use super::gids::GidWatch;
use super::udp::{Segmentation, UdpLink};
use crate::config::{Auto, Config};
use crate::devices::{self, Kind, NetDevice};
use crate::error::Error;
use crate::port::{self, PortError, QpnBlock, Recorder, Transmitter, sys};
use crate::verbs::context::Context;

/// Bytes in flight to a destination at most, if its buffer holds them.
const WINDOW: u64 = 1 << 20;

/// Bytes in flight to a destination at the start.
const INITIAL_WINDOW: u64 = 256 << 10;

/// How long an ACK may wait in a conversation at most: some round trips between processes that poll,
/// and far below the Local CA ACK Delay that connections are told of.
const ACK_DELAY: Span = Span::from_us(100);

/// Line rate where the interface does not tell one.
const ASSUMED_RATE_BPS: u64 = 100_000_000_000;

/// Opens the device called `name`.
pub(crate) fn by_name(name: &str, config: &Config) -> Result<Context, Error> {
    let all = devices::list().map_err(Error::Interfaces)?;
    open(devices::by_name(&all, name)?, config)
}

/// Opens the device that has `address`.
pub(crate) fn by_address(address: IpAddr, config: &Config) -> Result<Context, Error> {
    let all = devices::list().map_err(Error::Interfaces)?;
    open(devices::by_address(&all, address)?, config)
}

fn open(device: &NetDevice, config: &Config) -> Result<Context, Error> {
    crate::fork::check()?;
    let recorder = match &config.pcap {
        None => None,
        Some(path) => Some(Arc::new(
            Recorder::open(path, config.port.udp_port).map_err(|error| Error::Capture {
                path: path.clone(),
                error,
            })?,
        )),
    };
    let (receiver, pool) = port::open(&config.port)?;
    let fast_paths = receiver.fast_paths();
    let block = receiver
        .blocks()
        .first()
        .copied()
        .ok_or(PortError::Crowded)?;
    let gids = GidWatch::new(device, |device| {
        let entries = device.gids.iter().map(|gid| GidEntry {
            gid: gid.gid,
            version: RoceVersion::V2,
        });
        entries.collect()
    });
    let gids = gids.map_err(Error::Interfaces)?;
    let mut engine = engine(
        device,
        gids.table().to_vec(),
        block,
        fast_paths.receive_buffer,
        config,
    )?;
    // A recording shows what a card would send.
    let is_local = device.kind == Kind::Loopback && fast_paths.segmentation && recorder.is_none();
    engine.equal_writes = config.equal_writes.or(is_local);
    let segmentation = match config.segmentation {
        Auto::On => Segmentation::Everywhere,
        Auto::Off => Segmentation::Nowhere,
        Auto::Auto if device.splits_in_software => Segmentation::Everywhere,
        Auto::Auto => Segmentation::InThisHost,
    };
    let transmitter = Transmitter::new(pool, &config.port);
    let has_equal_writes = engine.equal_writes;
    let link = UdpLink::new(
        receiver,
        transmitter,
        recorder,
        device,
        gids,
        segmentation,
        has_equal_writes,
    );
    let link = FaultyLink::around(Box::new(link), &config.faults);
    let rnic = Rnic::start(&device.name, engine, link, config.stat.as_deref())
        .map_err(Error::Descriptor)?;
    Ok(Context::new(&device.name, rnic, Some(fast_paths)))
}

/// How the engine of a port is made, whose receive buffer holds `buffer` bytes.
pub(super) fn engine(
    device: &NetDevice,
    gids: Vec<GidEntry>,
    block: QpnBlock,
    buffer: usize,
    config: &Config,
) -> Result<DeviceConfig, Error> {
    let qpns = block.qpns();

    let rate = config
        .line_rate_bps
        .or_else(|| device.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000))
        .unwrap_or(ASSUMED_RATE_BPS);
    let dcqcn = config
        .dcqcn_params
        .check(rate)
        .map_err(Error::CongestionControl)?;
    // The peer's buffer counts, which is likely made like ours; others send into it as well.
    let maximum = config
        .window
        .unwrap_or_else(|| WINDOW.min(buffer as u64 / 2));
    Ok(DeviceConfig {
        first_qpn: Qpn::new(qpns.start),
        qpns: qpns.end - qpns.start,
        qpn_rotation: sys::random() as u32,
        seed: u128::from(sys::random()) << 64 | u128::from(sys::random()),
        gids,
        port_mtu: device.path_mtu(),
        window: WindowConfig {
            initial: INITIAL_WINDOW.min(maximum),
            maximum,
            minimum: WindowConfig::default().minimum.min(maximum),
            ..WindowConfig::default()
        },
        ack_delay: ACK_DELAY,
        recovery: config.recovery,
        dcqcn: Arc::new(dcqcn),
        is_paced: config.dcqcn.or(device.kind != Kind::Loopback),
        ..DeviceConfig::default()
    })
}
