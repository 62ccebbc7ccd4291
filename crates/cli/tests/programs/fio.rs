//! fio with its engine for RDMA: what reads is the server, what writes the client, which chooses the
//! verb. It looks at no data.

use super::pair::{self, Listens};
use super::process::{Folder, Program, alone};
use super::ready;
use super::table::{self, CheckedBy, Row};

const PACKAGE: &str = "fio";

/// The verb, the size of a message and how many there are. fio lets a sender go on until a receive is
/// missing and asks for no second try then, so that there are as many receives as it sends.
const JOBS: &[(&str, &str, usize)] = &[
    ("write", "4k", 1024),
    ("write", "1m", 16),
    ("read", "4k", 1024),
    ("read", "1m", 16),
    ("send", "4k", 32),
    ("send", "64k", 32),
];

const DEPTH: usize = 32;

#[test]
fn fio() {
    let _alone = alone();
    let folder = Folder::new("fio");
    let rows = JOBS.iter().map(|job| run(*job, &folder));
    table::check("fio", &rows.collect::<Vec<_>>());
}

fn run((verb, size, count): (&str, &str, usize), folder: &Folder) -> Row {
    let options = format!("--ioengine=rdma --verb={verb} --bs={size}");
    Row::of("fio", &options, PACKAGE, CheckedBy::Recording, || {
        let port = ready::free_port();
        let both = Program::new("fio").line(&format!(
            "--name=job --ioengine=rdma --port={port} --bs={size} --iodepth={DEPTH} \
             --number_ios={count} --size=1g"
        ));
        let server = both.clone().line("--rw=read");
        let client = both.line(&format!("--rw=write --verb={verb} --hostname=127.0.0.1"));
        let listens = Listens::Service(port);
        let [_, said] = pair::run_recorded(&server, &client, listens, folder)?;
        let issued = format!("issued rwts: total=0,{count},0,0");
        if said.contains(&issued) {
            Ok(())
        } else {
            Err(format!("it does not say {issued:?}: {said}"))
        }
    })
}
