//! What other implementations were reported to do wrong, seen through the C library: small programs,
//! one for each report or a few of a kind, compiled against the headers of the distribution and run
//! on the built library. `docs/bug-reports.md` says which report is whose. Beside them stand programs
//! that try what the interface promises: threads, children of fork, memory on demand.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

use std::path::Path;
use std::process::Command;

use common::Folder;

/// Runs a network namespace's commands and then the program.
const OTHER_ADDRESSES: &str = "set -e
    ip link set lo up
    ip link add hr0 type veth peer name hr1
    for end in hr0 hr1; do ip link set $end addrgenmode none; ip link set $end up; done
    ip address add 192.0.2.7/24 dev hr0
    ip address add 2001:db8::7/64 dev hr0 nodad
    exec \"$0\"";

/// Compiles a program into `folder`, where that can be done.
fn compile(name: &str, folder: &Folder) -> bool {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let source = sources.join(name).with_extension("c");
    let (header, package) = ("infiniband/verbs.h", "libibverbs-dev");
    program::compile(&source, folder.path(), (header, package), &["-libverbs"])
}

/// One test for each program.
macro_rules! programs {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            let name = stringify!($name);
            let folder = Folder::new(name);
            if compile(name, &folder) {
                let program = folder.path().join(name);
                program::succeeds(folder.path(), &[program.to_str().expect("text")]);
            }
        }
    )* };
}

programs! {
    acknowledgements
    asynchronous_events
    datagrams
    edge
    extended_polling
    flush_once
    forks
    four_processes
    header_flag
    hostile
    inline_pieces
    key_loops
    late_receives
    local_errors
    loopback
    numbers
    old_completions
    on_demand
    query
    reads
    refusals
    shared_domain
    shared_limit
    shrink
    silent_failures
    sizes
    threads
    windows
    zero_length
}

/// By addresses of an interface that is not the loopback.
#[test]
fn loopback_by_other_addresses() {
    let name = "loopback";
    let folder = Folder::new("other-addresses");
    if !compile(name, &folder) {
        return;
    }
    let namespace = ["unshare", "--map-root-user", "--net", "--"];
    let run = |script: &str| {
        let shell = ["sh", "-c", script, folder.path().join(name).to_str()?].map(str::to_owned);
        Some([namespace.map(str::to_owned).as_slice(), &shell].concat())
    };
    let probe = run("ip link add hr0 type veth peer name hr1").expect("text");
    let is_possible = Command::new(&probe[0])
        .args(&probe[1..])
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_possible {
        eprintln!("skipped: no network namespace with interfaces can be made here");
        return;
    }
    let command = run(&format!("export CHECK_ADDRESSES=4; {OTHER_ADDRESSES}")).expect("text");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    program::succeeds(folder.path(), &command);
}
