//! libfabric's verbs provider: its ping-pong, which compares the data, over message endpoints (by
//! rdma_cm), over reliable ones made of those, and over datagrams. The provider leaves the loopback out,
//! so the address is one of another interface; what is sent to an address of one's own stays here.

use std::net::Ipv4Addr;

use hirail::devices::{self, Kind};

use super::pair::{self, Listens};
use super::process::{Folder, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Outcome, Row};

const PACKAGE: &str = "libfabric-bin";

/// Provider and endpoints.
const PINGPONGS: &[&str] = &[
    "-p verbs -e msg -c",
    "-p verbs -e dgram -c -S 1024",
    "-p verbs;ofi_rxm -e rdm -c",
];

#[test]
fn libfabric() {
    let _alone = alone();
    let folder = Folder::new("libfabric");
    let address = address();
    let mut rows = Vec::new();
    for options in PINGPONGS {
        rows.push(row("fi_pingpong", options, address, |address| {
            let port = ready::free_port();
            let program = Program::new("fi_pingpong").line(options);
            let server = program.clone().line(&format!("-B {port}"));
            let client = program.line(&format!("-P {port} {address}"));
            pair::run_recorded(&server, &client, Listens::Tcp(port), &folder).map(drop)
        }));
    }
    table::check("libfabric", &rows);
}

/// An address that is not the loopback's.
fn address() -> Option<Ipv4Addr> {
    let devices = devices::list().expect("the kernel lists interfaces");
    let mut devices = devices.iter();
    devices.find_map(|device| {
        let others = device.kind != Kind::Loopback && device.is_up;
        device.ipv4().filter(|_| others)
    })
}

fn row(
    program: &'static str,
    options: &str,
    address: Option<Ipv4Addr>,
    run: impl FnOnce(Ipv4Addr) -> Result<(), String>,
) -> Row {
    if let Some(address) = address {
        return Row::of(program, options, PACKAGE, CheckedBy::Program, || {
            run(address)
        });
    }
    let reason = "no interface but the loopback has an IPv4 address";
    let outcome = Outcome::Skipped(reason.to_owned());
    eprintln!("{program} {options}: {outcome}");
    Row {
        program,
        options: options.to_owned(),
        package: PACKAGE,
        checked_by: CheckedBy::Program,
        outcome,
    }
}
