//! Sockets over RDMA: the programs of rdmacm-utils, and programs written for sockets of the kernel,
//! by `hirail run --rsockets`.

use std::fs;
use std::time::Instant;

use super::pair::{self, Listens};
use super::process::{Folder, PATIENCE, Program, alone};
use super::ready;
use super::recording;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "rdmacm-utils";

#[test]
fn rsockets() {
    let _alone = alone();
    let folder = Folder::new("rsockets");
    let mut rows = vec![rcopy(&folder)];
    for options in ["-T n", "-T b", "-T a", "-T r", "-B 8192 -i 0", "-k 1"] {
        rows.push(stream("rstream", options, &[5000, 100_000], &folder));
    }
    rows.push(stream("rstream", "", &all_sizes(), &folder));
    for options in ["-T b", "-T a"] {
        rows.push(stream("riostream", options, &[5000, 100_000], &folder));
    }
    rows.push(stream("riostream", "", &all_sizes(), &folder));
    for options in ["-T e", "-T b -T e"] {
        rows.push(udpong(options, &folder));
    }
    rows.push(python(&folder));
    rows.push(iperf3(&folder));
    table::check("rsockets", &rows);
}

/// Copies a file; its server serves for ever.
fn rcopy(folder: &Folder) -> Row {
    Row::of("rcopy", "", PACKAGE, CheckedBy::Test, || {
        let port = ready::free_port();
        let (from, to) = (folder.join("from"), folder.join("to"));
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at / 7 % 253) as u8).collect();
        fs::write(&from, &bytes).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + PATIENCE;
        let server = Program::new("rcopy").line(&format!("-p {port}"));
        let mut server = server.start(folder, "server");
        ready::service(port, &mut server, deadline)?;
        let client = Program::new("rcopy")
            .args([&from])
            .line(&format!("127.0.0.1:{} -p {port}", to.display()));
        client.run(folder, "client")?;
        let copy = fs::read(&to).map_err(|error| error.to_string())?;
        if copy == bytes {
            Ok(())
        } else {
            Err(format!(
                "{} of {} bytes, or others",
                copy.len(),
                bytes.len()
            ))
        }
    })
}

/// Those of the program's option `-S all`, and one byte.
fn all_sizes() -> Vec<u32> {
    let powers = (7..=22).map(|power| 1 << power);
    let sizes = powers.flat_map(|size| [size, size + size / 2]);
    [1, 64].into_iter().chain(sizes).collect()
}

/// Bytes there and back, of each size, which the program compares. It repeats by itself as often as
/// an idle machine would, so it is told how often.
fn stream(program: &'static str, options: &str, sizes: &[u32], folder: &Folder) -> Row {
    let shown = match sizes.len() {
        0..4 => format!("-T v {options}"),
        _ => "-T v of all sizes".to_owned(),
    };
    Row::of(program, &shown, PACKAGE, CheckedBy::Program, || {
        for size in sizes {
            let port = ready::free_port();
            let both = Program::new(program)
                .line(&format!("-T v {options} -S {size} -C 10 -I 2 -p {port}"));
            let server = both.clone().line("-b 127.0.0.1");
            let client = both.line("-s 127.0.0.1");
            let said = pair::run(&server, &client, Listens::Service(port), folder)?;
            // Some failures do not show in the status.
            for said in &said {
                let complaints = ["data verification failed", "rrecv:", "rsend:"];
                let is_bad = complaints.iter().any(|complaint| said.contains(complaint));
                if is_bad || !said.contains("custom") {
                    return Err(format!("{size} bytes: {said}"));
                }
            }
        }
        Ok(())
    })
}

/// Datagrams; its server serves for ever.
fn udpong(options: &str, folder: &Folder) -> Row {
    Row::of("udpong", options, PACKAGE, CheckedBy::Output, || {
        let port = ready::free_port();
        let deadline = Instant::now() + PATIENCE;
        let both = Program::new("udpong").line(&format!("-p {port} {options}"));
        let mut server = both.clone().line("-b 127.0.0.1").start(folder, "server");
        ready::udp(port, &mut server, deadline)?;
        let file = folder.join("recording.pcapng");
        let client = both.line("-s 127.0.0.1 -C 100").recorded(&file);
        let said = client.run(folder, "client")?;
        recording::shows_roce(&file)?;
        if said.contains("Gb/sec") {
            Ok(())
        } else {
            Err(format!("it says no rate: {said}"))
        }
    })
}

/// A server and a client of HTTP in Python, both over RDMA.
fn python(folder: &Folder) -> Row {
    let options = "-m http.server, urllib";
    Row::of("python3", options, "python3", CheckedBy::Test, || {
        const CLIENT: &str = "import sys, urllib.request\n\
            got = urllib.request.urlopen(sys.argv[1], timeout=60).read()\n\
            assert got == open(sys.argv[2], 'rb').read(), len(got)\n\
            print('the same', len(got))";
        let port = ready::free_port();
        let page = folder.join("page");
        let bytes: Vec<u8> = (0..2_000_003u32).map(|at| (at / 5 % 251) as u8).collect();
        fs::write(&page, bytes).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + PATIENCE;
        let server = Program::new("python3")
            .run_with(["--rsockets"])
            .line(&format!(
                "-m http.server --bind 127.0.0.1 {port} --directory"
            ))
            .args([page.parent().unwrap_or(&page)]);
        let mut server = server.start(folder, "server");
        ready::service(port, &mut server, deadline)?;
        let file = folder.join("recording.pcapng");
        let client = Program::new("python3")
            .run_with(["--rsockets"])
            .args(["-c", CLIENT])
            .line(&format!("http://127.0.0.1:{port}/page"))
            .args([&page])
            .recorded(&file);
        let said = client.run(folder, "client")?;
        recording::shows_roce(&file)?;
        if said.contains("the same 2000003") {
            Ok(())
        } else {
            Err(said)
        }
    })
}

/// Many streams of bytes, both ways.
fn iperf3(folder: &Folder) -> Row {
    let options = "-n 8M -P 2 --bidir";
    Row::of("iperf3", options, "iperf3", CheckedBy::Recording, || {
        let port = ready::free_port();
        let program = || Program::new("iperf3").run_with(["--rsockets"]);
        let server = program().line(&format!("-s -1 -p {port} -B 127.0.0.1"));
        let client = program().line(&format!("-c 127.0.0.1 -p {port} {options}"));
        let said = pair::run_recorded(&server, &client, Listens::Service(port), folder)?;
        if said[1].contains("iperf Done") {
            Ok(())
        } else {
            Err(said[1].clone())
        }
    })
}
