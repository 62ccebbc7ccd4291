//! Rust crates that wrap libibverbs and librdmacm, by the examples that they bring: `ibverbs`, which
//! is linked against hirail's library when it is built, and `sideway`, which loads both libraries
//! when it runs. Both generate their bindings from C headers, with cmake and libclang.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::fetched;
use super::pair::{self, Listens};
use super::process::{self, Folder, PATIENCE, Program, alone};
use super::ready;
use super::recording;
use super::table::{self, CheckedBy, Row};

const IBVERBS: &str = "ibverbs 0.9.2 (Rust crate)";
const SIDEWAY: &str = "sideway 0.4.3 (Rust crate)";

#[test]
fn ibverbs() {
    let built = install("ibverbs", "0.9.2", &["loopback"]);
    let _alone = alone();
    let folder = Folder::new("ibverbs");
    let is_there = built.as_ref().map(|_| ()).map_err(Clone::clone);
    let checked_by = CheckedBy::Program;
    // It takes the first device, and the GID with the index 1.
    let row = Row::unless(is_there, "loopback", "", IBVERBS, checked_by, || {
        let program = built.as_ref().expect("it is built").join("loopback");
        let file = folder.join("recording.pcapng");
        let said = Program::new(program)
            .recorded(&file)
            .run(&folder, "loopback")?;
        recording::shows_roce(&file)?;
        expect(&said, &["sent", "received"])
    });
    table::check("The crate ibverbs", &[row]);
}

#[test]
fn sideway() {
    let examples = ["show_gids", "rc_pingpong", "rc_pingpong_split", "cmtime"];
    let built = install("sideway", "0.4.3", &examples);
    let _alone = alone();
    let folder = Folder::new("sideway");
    let is_there = built.as_ref().map(|_| ()).map_err(Clone::clone);
    let program = |name| Program::new(built.as_ref().expect("it is built").join(name));

    let checked_by = CheckedBy::Output;
    let show = || {
        let said = program("show_gids").run(&folder, "show_gids")?;
        expect(&said, &["hirail_lo", "127.0.0.1", "RoCEv2"])
    };
    let mut rows = vec![Row::unless(
        is_there.clone(),
        "show_gids",
        "",
        SIDEWAY,
        checked_by,
        show,
    )];
    for (name, options) in [
        ("rc_pingpong", "-n 200"),
        ("rc_pingpong", "-n 200 -t"),
        ("rc_pingpong", "-n 50 -s 100000"),
        ("rc_pingpong_split", "-n 200"),
    ] {
        let pingpong = || {
            let port = ready::free_port();
            let server = program(name).line(&format!("-d hirail_lo -g 0 -p {port} {options}"));
            let client = server.clone().line("127.0.0.1");
            let [_, said] = pair::run_recorded(&server, &client, Listens::Tcp(port), &folder)?;
            expect(&said, &["iters in"])
        };
        let checked_by = CheckedBy::Recording;
        let is_there = is_there.clone();
        rows.push(Row::unless(
            is_there, name, options, SIDEWAY, checked_by, pingpong,
        ));
    }
    let connect = || {
        let port = ready::free_port();
        let server = program("cmtime").line(&format!("-p {port}"));
        // It serves for ever.
        let mut server = server.start(&folder, "server");
        ready::service(port, &mut server, Instant::now() + PATIENCE)?;
        let file = folder.join("recording.pcapng");
        let client = program("cmtime").line(&format!("-s 127.0.0.1 -p {port} -c 20"));
        let said = client.recorded(&file).run(&folder, "client")?;
        recording::shows_roce(&file)?;
        expect(&said, &["Connect", "Disconnect"])
    };
    let options = "-c 20";
    let checked_by = CheckedBy::Recording;
    rows.push(Row::unless(
        is_there, "cmtime", options, SIDEWAY, checked_by, connect,
    ));
    table::check("The crate sideway", &rows);
}

fn expect(said: &str, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !said.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(format!("it does not say {word:?}: {said}")),
    }
}

/// The folder with examples of a crate, which cargo fetches and builds as they were published.
fn install(name: &str, version: &str, examples: &[&str]) -> Result<PathBuf, String> {
    if !process::is_installed("cmake") {
        return Err("cmake is not installed, which builds what the crate wraps".to_owned());
    }
    let kept = fetched::once(&format!("{name}-{version}"), |folder| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["install", name, "--version", version, "--locked", "--debug"]);
        cargo.args(examples.iter().flat_map(|example| ["--example", example]));
        cargo.arg("--root").arg(folder);
        cargo
            .arg("--target-dir")
            .arg(fetched::folder().join("crates"));
        // What is linked against libibverbs finds the one of hirail.
        cargo
            .env("LIBRARY_PATH", libraries()?)
            .env("CARGO_NET_RETRY", "1");
        fetched::run(&mut cargo)
    })?;
    Ok(kept.join("bin"))
}

/// The folder that `hirail run` puts in front.
fn libraries() -> Result<String, String> {
    let mut env = Command::new(process::hirail());
    env.args(["env", "--json"]).env_remove("LD_LIBRARY_PATH");
    let output = env.output().map_err(|error| error.to_string())?;
    let said: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let folder = said["LD_LIBRARY_PATH"].as_str();
    Ok(folder.expect("a folder of libraries").to_owned())
}
