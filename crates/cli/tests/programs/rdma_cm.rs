//! The programs of rdmacm-utils that talk verbs.

use std::time::Instant;

use super::pair::{self, Listens};
use super::process::{Folder, PATIENCE, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "rdmacm-utils";

#[test]
fn rdma_cm() {
    let _alone = alone();
    let folder = Folder::new("rdma_cm");
    table::check(
        "rdma_cm",
        &[
            rping(&folder),
            ucmatose(&folder),
            udaddy(&folder),
            rdma_client(&folder),
            cmtime(&folder),
        ],
    );
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
fn rping(folder: &Folder) -> Row {
    Row::of("rping", "-C 10 -V", PACKAGE, CheckedBy::Program, || {
        let port = ready::free_port();
        let both = Program::new("rping").line(&format!("-a 127.0.0.1 -p {port} -C 10 -v -V"));
        let [server, client] = ["-s", "-c"].map(|role| both.clone().line(role));
        let said = pair::run(&server, &client, Listens::Service(port), folder)?;
        expect(said, ["", "rdma-ping-9"])
    })
}

/// Connects many at once.
fn ucmatose(folder: &Folder) -> Row {
    let options = "-c 8 -C 20 -S 1000";
    Row::of("ucmatose", options, PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let server = Program::new("ucmatose").line(&format!("-p {port} {options}"));
        let client = server.clone().line("-s 127.0.0.1");
        let said = pair::run_recorded(&server, &client, Listens::Service(port), folder)?;
        expect(said, ["return status 0"; 2])
    })
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
fn cmtime(folder: &Folder) -> Row {
    Row::of("cmtime", "-c 8", PACKAGE, CheckedBy::Output, || {
        let port = ready::free_port();
        let deadline = Instant::now() + PATIENCE;
        let server = Program::new("cmtime").line(&format!("-p {port}"));
        let mut server = server.start(folder, "server");
        ready::service(port, &mut server, deadline)?;
        let client = Program::new("cmtime").line(&format!("-s 127.0.0.1 -p {port} -c 8"));
        let said = client.run(folder, "client")?;
        let steps = ["connect ", "disconnect ", "destroy "];
        match steps.iter().find(|step| !said.contains(**step)) {
            None => Ok(()),
            Some(step) => Err(format!("it does not say {step:?}: {said}")),
        }
    })
}
