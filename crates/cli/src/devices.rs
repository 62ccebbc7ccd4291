//! `hirail devices`: what `ibv_devinfo` and `show_gids` show of a card, for the devices of this
//! host, and which fast paths of the kernel their UDP port uses.

use std::net::IpAddr;

use hirail::Faults;
use hirail::config::Config;
use hirail::devices::{self, Kind, NetDevice};
use hirail::port::{self, FastPaths, Steering};
use hirail_rnic::Limits;
use hirail_wire::Gid;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::outcome::{Error, Outcome};
use crate::output::{BAD, FAINT, GOOD, HEADING, Output};

/// Show the devices, their ports, GIDs and which fast paths are in use
#[derive(clap::Args)]
#[command(after_help = "\
Exit status is 1 when the UDP port cannot be used.

Examples:
  hirail devices
  hirail devices hirail0 --verbose
  hirail devices --json")]
pub(crate) struct Args {
    /// Only this one
    name: Option<String>,

    /// Limits as well
    #[arg(long, short)]
    verbose: bool,
}

/// A device as JSON.
#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    interface: &'a str,
    interface_index: u32,
    mac: String,
    node_guid: String,
    state: &'static str,
    kind: &'static str,
    interface_mtu: u32,
    active_mtu: u32,
    speed_mbps: Option<u32>,
    segments_ipv4: bool,
    gids: Vec<Value>,
    limits: Map<String, Value>,
}

pub(crate) fn run(args: &Args, config: &Config, out: &mut Output) -> Result<Outcome, Error> {
    let mut all = devices::list().map_err(hirail::Error::Interfaces)?;
    if let Some(name) = &args.name {
        all = vec![devices::by_name(&all, name)?.clone()];
    }
    let fast_paths = port::open(&config.port).map(|(receiver, _)| receiver.fast_paths());
    if out.is_json() {
        let port = match &fast_paths {
            Ok(paths) => port_json(config.port.udp_port, paths),
            Err(error) => json!({ "udp_port": config.port.udp_port, "error": error.to_string() }),
        };
        let devices: Vec<Json<'_>> = all.iter().map(json).collect();
        let faults = (!config.faults.is_perfect()).then(|| config.faults.to_string());
        out.json(&json!({ "devices": devices, "port": port, "faults": faults }))?;
    } else {
        for device in &all {
            print(device, args.verbose, out)?;
        }
        match &fast_paths {
            Ok(paths) => print_port(config.port.udp_port, paths, out)?,
            Err(error) => {
                let text = out.paint(BAD, format!("cannot be used: {error}"));
                writeln!(out, "UDP port {}: {text}", config.port.udp_port)?;
            }
        }
        let Faults { seed, .. } = config.faults;
        if !config.faults.is_perfect() {
            let text = format!("faults on purpose: {} of seed {seed}", config.faults);
            let text = out.paint(BAD, text);
            writeln!(out, "{text}")?;
        }
    }
    Ok(if fast_paths.is_ok() {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}

fn json(device: &NetDevice) -> Json<'_> {
    let gids = device.gids.iter().enumerate().map(|(index, entry)| {
        json!({
            "index": index,
            "gid": entry.gid.to_string(),
            "ip": entry.gid.to_ip(),
            "type": "RoCE v2",
            "link_local": entry.is_link_local,
        })
    });
    Json {
        name: &device.name,
        interface: &device.interface,
        interface_index: device.index,
        mac: mac(device.mac),
        node_guid: guid(device),
        state: state(device),
        kind: kind(device.kind),
        interface_mtu: device.mtu,
        active_mtu: device.path_mtu().bytes(),
        speed_mbps: device.speed_mbps,
        segments_ipv4: device.splits_in_software,
        gids: gids.collect(),
        limits: limits()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect(),
    }
}

fn port_json(udp_port: u16, paths: &FastPaths) -> Value {
    json!({
        "udp_port": udp_port,
        "steering": match paths.steering {
            Steering::Verified => "verified",
            Steering::Unverified => "unverified",
            Steering::Off => "off",
            Steering::Forwarded => "forwarded",
        },
        "segmentation": paths.segmentation,
        "coalescing": paths.coalescing,
        "ipv6": paths.ipv6,
        "receive_buffer": paths.receive_buffer,
    })
}

fn print(device: &NetDevice, verbose: bool, out: &mut Output) -> Result<(), Error> {
    let state = out.paint(if device.is_up { GOOD } else { BAD }, state(device));
    let name = out.paint(HEADING, &device.name);
    writeln!(
        out,
        "{name}  {}, {}, {state}",
        device.interface,
        kind(device.kind)
    )?;
    let mut line =
        |label: &str, value: &dyn std::fmt::Display| writeln!(out, "  {label:<14}{value}");
    line("node GUID", &guid(device))?;
    line(
        "active MTU",
        &format_args!("{}, interface {}", device.path_mtu().bytes(), device.mtu),
    )?;
    if let Some(speed) = device.speed_mbps {
        line("speed", &format_args!("{} Gb/s", f64::from(speed) / 1000.0))?;
    }
    let segmentation = if device.splits_in_software {
        "IPv4 and IPv6"
    } else {
        "IPv6, and IPv4 within this host"
    };
    line("segmentation", &segmentation)?;
    if device.gids.is_empty() {
        line("GIDs", &"none: the interface has no address")?;
    }
    for (index, entry) in device.gids.iter().enumerate() {
        let ip = match entry.gid.to_ip() {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(_) => String::new(),
        };
        let faint = out.paint(
            FAINT,
            if entry.is_link_local {
                "link-local"
            } else {
                ""
            },
        );
        let text = format!(
            "  GID {index:<10}{:<40}{ip:<16}RoCE v2  {faint}",
            full(entry.gid)
        );
        writeln!(out, "{}", text.trim_end())?;
    }
    if verbose {
        for (name, value) in limits() {
            writeln!(out, "  {name:<22}{value}")?;
        }
    }
    writeln!(out)
}

fn print_port(udp_port: u16, paths: &FastPaths, out: &mut Output) -> Result<(), Error> {
    let steering = match paths.steering {
        Steering::Verified => "the kernel picks the process (probed)",
        Steering::Unverified => "the kernel picks the process (no probe came back)",
        Steering::Off => "off: processes pass packets on to each other",
        Steering::Forwarded => "off: processes of another user pass packets on",
    };
    let or_off = |on: bool, text: &'static str| if on { text } else { "off" };
    let name = out.paint(HEADING, format!("UDP port {udp_port}"));
    writeln!(out, "{name}")?;
    for (label, value) in [
        ("steering", steering.to_owned()),
        (
            "segmentation",
            or_off(paths.segmentation, "UDP_SEGMENT").to_owned(),
        ),
        ("coalescing", or_off(paths.coalescing, "UDP_GRO").to_owned()),
        ("IPv6", or_off(paths.ipv6, "on").to_owned()),
        (
            "receive buffer",
            format!("{} KiB", paths.receive_buffer >> 10),
        ),
    ] {
        writeln!(out, "  {label:<16}{value}")?;
    }
    Ok(())
}

/// All eight groups of a GID, as `show_gids` writes them.
fn full(gid: Gid) -> String {
    groups(&gid.0)
}

/// The modified EUI-64 of the interface's address, as `ibv_devinfo` writes it.
fn guid(device: &NetDevice) -> String {
    groups(&Gid::link_local(device.mac).0[8..])
}

fn groups(bytes: &[u8]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn state(device: &NetDevice) -> &'static str {
    if device.is_up { "active" } else { "down" }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Loopback => "loopback",
        Kind::Veth => "veth",
        Kind::Other => "Ethernet",
    }
}

/// What every device allows, under the names of the verbs.
fn limits() -> impl Iterator<Item = (&'static str, u64)> {
    let Limits {
        max_qp,
        max_qp_wr,
        max_sge,
        max_sge_rd,
        max_cq,
        max_cqe,
        max_mr,
        max_mr_size,
        max_pd,
        max_qp_rd_atom,
        max_qp_init_rd_atom,
        max_srq,
        max_srq_wr,
        max_srq_sge,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_inline_data,
    } = Limits::default();
    [
        ("max_qp", max_qp.into()),
        ("max_qp_wr", max_qp_wr.into()),
        ("max_sge", max_sge.into()),
        ("max_sge_rd", max_sge_rd.into()),
        ("max_cq", max_cq.into()),
        ("max_cqe", max_cqe.into()),
        ("max_mr", max_mr.into()),
        ("max_mr_size", max_mr_size),
        ("max_pd", max_pd.into()),
        ("max_qp_rd_atom", max_qp_rd_atom.into()),
        ("max_qp_init_rd_atom", max_qp_init_rd_atom.into()),
        ("max_srq", max_srq.into()),
        ("max_srq_wr", max_srq_wr.into()),
        ("max_srq_sge", max_srq_sge.into()),
        ("max_mcast_grp", max_mcast_grp.into()),
        ("max_mcast_qp_attach", max_mcast_qp_attach.into()),
        ("max_inline_data", max_inline_data.into()),
    ]
    .into_iter()
}
