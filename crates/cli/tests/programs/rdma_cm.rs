//! The programs of rdmacm-utils that talk verbs.

use std::net::Ipv4Addr;
use std::time::Instant;

use super::pair::{self, Listens};
use super::process::{Folder, PATIENCE, Program, alone};
use super::ready;
use super::recording;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "rdmacm-utils";

#[test]
fn rdma_cm() {
    let _alone = alone();
    let folder = Folder::new("rdma_cm");
    let rows = [
        rping(&folder, "127.0.0.1", "-C 10 -V"),
        rping(&folder, "::1", "-C 10 -V"),
        rping_server_for_many(&folder),
        ucmatose(&folder, "-c 8 -C 20 -S 1000"),
        ucmatose(&folder, "-c 4 -C 5 -m"),
        ucmatose(&folder, "-c 4 -C 5 -t 32"),
        udaddy(&folder),
        mckey(&folder, 1),
        mckey(&folder, 3),
        rdma_client(&folder),
        rdma_xclient(&folder, ""),
        rdma_xclient(&folder, "-c x"),
        cmtime(&folder, "-c 8"),
        cmtime(&folder, "-c 100"),
    ];
    table::check("rdma_cm", &rows);
}

/// Both must have said their word.
fn expect(said: [String; 2], words: [&str; 2]) -> Result<(), String> {
    for (said, word) in said.iter().zip(words) {
        if !said.contains(word) {
            return Err(format!("it does not say {word:?}: {said}"));
        }
    }
    Ok(())
}

/// Reads and writes, and compares.
fn rping(folder: &Folder, address: &str, options: &str) -> Row {
    let shown = match address {
        "127.0.0.1" => options.to_owned(),
        address => format!("{options} -a {address}"),
    };
    Row::of("rping", &shown, PACKAGE, CheckedBy::Program, || {
        let port = ready::free_port();
        let both = Program::new("rping").line(&format!("-a {address} -p {port} {options} -v"));
        let [server, client] = ["-s", "-c"].map(|role| both.clone().line(role));
        let said = pair::run(&server, &client, Listens::Service(port), folder)?;
        expect(said, ["", "rdma-ping-9"])
    })
}

/// One server serves clients that come and go.
fn rping_server_for_many(folder: &Folder) -> Row {
    Row::of("rping", "-P -C 5 -V", PACKAGE, CheckedBy::Program, || {
        let port = ready::free_port();
        let deadline = Instant::now() + PATIENCE;
        let both = Program::new("rping").line(&format!("-a 127.0.0.1 -p {port} -V"));
        let mut server = both.clone().line("-s -P").start(folder, "server");
        ready::service(port, &mut server, deadline)?;
        // One after the other: of two requests at once its server forgets one.
        for number in 0..4 {
            let client = both.clone().line("-c -C 5 -v");
            let said = client.run(folder, &format!("client-{number}"))?;
            if !said.contains("rdma-ping-4") {
                return Err(format!("a client says no \"rdma-ping-4\": {said}"));
            }
        }
        match server.has_ended() {
            true => Err(format!("the server has ended: {}", server.tail())),
            false => Ok(()),
        }
    })
}

/// Connects many at once.
fn ucmatose(folder: &Folder, options: &str) -> Row {
    Row::of("ucmatose", options, PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let server = Program::new("ucmatose").line(&format!("-p {port} {options}"));
        let client = server.clone().line("-s 127.0.0.1");
        let said = pair::run_recorded(&server, &client, Listens::Service(port), folder)?;
        expect(said, ["return status 0"; 2])
    })
}

/// Speaks to a multicast group, which one process or several hear.
fn mckey(folder: &Folder, receivers: usize) -> Row {
    let options = match receivers {
        1 => "-C 10".to_owned(),
        several => format!("-C 10, {several} receivers"),
    };
    Row::of("mckey", &options, PACKAGE, CheckedBy::Recording, || {
        let deadline = Instant::now() + PATIENCE;
        let [high, low] = ready::free_port().to_be_bytes();
        let group = Ipv4Addr::new(239, 77, high, low);
        let both = Program::new("mckey").line(&format!("-m {group} -b 127.0.0.1 -C 10"));
        let start = |number| both.start(folder, &format!("receiver-{number}"));
        let mut hearing: Vec<_> = (0..receivers).map(start).collect();
        ready::members(group, receivers, &mut hearing[0], deadline)?;
        let file = folder.join("recording.pcapng");
        let sender = both.clone().line("-s").recorded(&file);
        sender.run(folder, "sender")?;
        recording::shows_roce(&file)?;
        for mut receiver in hearing {
            let said = receiver.end(deadline)?;
            if !said.contains("return status 0") {
                return Err(format!("a receiver says: {said}"));
            }
        }
        Ok(())
    })
}

/// Calls that wait connect by RC or XRC.
fn rdma_xclient(folder: &Folder, options: &str) -> Row {
    Row::of(
        "rdma_xclient",
        options,
        PACKAGE,
        CheckedBy::Recording,
        || {
            let port = ready::free_port();
            let server = Program::new("rdma_xserver").line(&format!("-p {port} {options}"));
            let client = Program::new("rdma_xclient").line(&format!("-p {port} {options}"));
            let said = pair::run_recorded(&server, &client, Listens::Service(port), folder)?;
            expect(said, ["rdma_xserver: end 0", "rdma_xclient: end 0"])
        },
    )
}

/// Finds its peer by a question; its port is fixed.
fn udaddy(folder: &Folder) -> Row {
    let options = "-c 4 -C 10";
    Row::of("udaddy", options, PACKAGE, CheckedBy::Recording, || {
        let both = Program::new("udaddy").line(options);
        let server = both.clone().line("-b 127.0.0.1");
        let client = both.line("-s 127.0.0.1");
        let said = pair::run_recorded(&server, &client, Listens::Service(7174), folder)?;
        expect(said, ["return status 0"; 2])
    })
}

/// Calls that wait connect and talk.
fn rdma_client(folder: &Folder) -> Row {
    Row::of("rdma_client", "", PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let server = Program::new("rdma_server").line(&format!("-p {port}"));
        let client = Program::new("rdma_client").line(&format!("-s 127.0.0.1 -p {port}"));
        let said = pair::run_recorded(&server, &client, Listens::Service(port), folder)?;
        expect(said, ["rdma_server: end 0", "rdma_client: end 0"])
    })
}

/// Connects and disconnects; its server serves for ever.
fn cmtime(folder: &Folder, options: &str) -> Row {
    Row::of("cmtime", options, PACKAGE, CheckedBy::Output, || {
        let port = ready::free_port();
        let deadline = Instant::now() + PATIENCE;
        let server = Program::new("cmtime").line(&format!("-p {port}"));
        let mut server = server.start(folder, "server");
        ready::service(port, &mut server, deadline)?;
        let client = Program::new("cmtime").line(&format!("-s 127.0.0.1 -p {port} {options}"));
        let said = client.run(folder, "client")?;
        let steps = ["connect ", "disconnect ", "destroy "];
        match steps.iter().find(|step| !said.contains(**step)) {
            None => Ok(()),
            Some(step) => Err(format!("it does not say {step:?}: {said}")),
        }
    })
}
