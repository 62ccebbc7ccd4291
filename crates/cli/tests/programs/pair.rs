//! A server and its client.

use std::time::Instant;

use super::process::{Folder, PATIENCE, Program};
use super::ready;
use super::recording;

/// How to tell that a server can be asked.
#[derive(Clone, Copy)]
pub(crate) enum Listens {
    /// It exchanges what is needed over TCP.
    Tcp(u16),
    /// It listens by rdma_cm.
    Service(u16),
}

/// Runs a server and, once it listens, its client; both must end in time and with success. What
/// they have said, the server first.
pub(crate) fn run(
    server: &Program,
    client: &Program,
    listens: Listens,
    folder: &Folder,
) -> Result<[String; 2], String> {
    let deadline = Instant::now() + PATIENCE;
    let mut serving = server.start(folder, "server");
    match listens {
        Listens::Tcp(port) => ready::tcp(port, &mut serving, deadline)?,
        Listens::Service(port) => ready::service(port, &mut serving, deadline)?,
    }
    let of_client = client.start(folder, "client").end(deadline);
    // A server whose client has failed may wait for ever.
    let of_client = of_client.map_err(|reason| {
        let server = serving.tail();
        format!("client {reason}\nits server: {server}")
    })?;
    let of_server = serving.end(deadline);
    let of_server = of_server.map_err(|reason| format!("server {reason}"))?;
    Ok([of_server, of_client])
}

/// The same, where a recording of the client must show the data as RoCE with good ICRCs.
pub(crate) fn run_recorded(
    server: &Program,
    client: &Program,
    listens: Listens,
    folder: &Folder,
) -> Result<[String; 2], String> {
    let file = folder.join("recording.pcapng");
    let said = run(server, &client.clone().recorded(&file), listens, folder)?;
    recording::shows_roce(&file)?;
    Ok(said)
}
