//! A whole program in two processes: one writes into the other's memory, and then says so.
//!
//! ```sh
//! cargo run --example hello                     # waits
//! cargo run --example hello -- 127.0.0.1:18515  # in another terminal, or on another host
//! ```
//!
//! The device is the one that the TCP connection uses; UDP port 4791 must be open too.

use std::time::Duration;

use hirail::exchange::{self, Connection, Listener};
use hirail::{Access, ConnectOptions, Context, Error, Gid, RemoteMemory, SendWr};

const PATIENCE: Duration = Duration::from_secs(10);
/// A person starts the second process.
const LONG: Duration = Duration::from_secs(600);

fn main() -> Result<(), Error> {
    if let Some(server) = std::env::args().nth(1) {
        return write(exchange::connect(server.as_str(), PATIENCE)?);
    }
    let listener = Listener::bind("0.0.0.0:18515")?;
    println!("waiting at {}", listener.local_addr()?);
    serve(listener.accept(LONG)?)
}

/// The device of this end of the connection, and the index of its GID.
fn device(peer: &Connection) -> Result<(Context, u8), Error> {
    let address = peer.local_addr()?.ip();
    let context = Context::open_address(address)?;
    let gid = Gid::from_ip(address);
    let index = context.gids().iter().position(|entry| entry.gid == gid);
    Ok((context, index.unwrap_or(0) as u8))
}

/// Lets the peer write, and prints what it wrote when it says so.
fn serve(mut peer: Connection) -> Result<(), Error> {
    let (context, gid_index) = device(&peer)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_on(16, &context.create_channel()?)?;
    let qp = pd.qp(&cq, &cq).build()?;
    let mr = pd.register(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;

    let remote = peer.swap(&qp.endpoint(gid_index)?)?;
    qp.connect(&remote, &ConnectOptions::new(&context, gid_index))?;
    qp.post_recv(1, &[])?;
    peer.send(&mr.remote())?;

    // Asleep: the memory is written all the same.
    let wc = cq.wait(PATIENCE)?.ok()?;
    let length = u32::from_be_bytes(wc.imm().unwrap_or_default());
    let text = mr.to_vec(0, mr.len().min(length as usize));
    println!("the peer wrote: {}", String::from_utf8_lossy(&text));
    Ok(())
}

/// Writes into the peer's memory, and then says how much.
fn write(mut peer: Connection) -> Result<(), Error> {
    let (context, gid_index) = device(&peer)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let qp = pd.qp(&cq, &cq).build()?;

    let remote = peer.swap(&qp.endpoint(gid_index)?)?;
    qp.connect(&remote, &ConnectOptions::new(&context, gid_index))?;
    let memory: RemoteMemory = peer.receive()?;

    let text = b"hello from another process";
    pd.lend(text, Access::NONE, |mr| {
        // In order: the SEND arrives when the WRITE has.
        let length = (text.len() as u32).to_be_bytes();
        qp.post_all([
            SendWr::write(1, &[mr.slice(..)], memory).unsignaled(),
            SendWr::send(2, &[]).with_imm(length),
        ])?;
        cq.wait_polling(PATIENCE)?.ok()?;
        println!("written, and the peer was told");
        Ok(())
    })?
}
