//! Two processes meet by RDMA-CM and pass a message on: no numbers have to be exchanged beforehand.
//!
//!     cargo run -p hirail --example connect -- ADDRESS:PORT serve     # there
//!     cargo run -p hirail --example connect -- ADDRESS:PORT           # here
//!
//! Without arguments it plays both parts, on the loopback. The other side may be any program that
//! uses librdmacm.

use std::net::SocketAddr;
use std::time::Duration;

use hirail::cm::{self, Listener, Options};
use hirail::{Access, Context, Cq, Error, Mr, Qp, SendWr};

const PATIENCE: Duration = Duration::from_secs(10);

/// Everything that one side needs.
fn side(context: &Context) -> Result<(Cq, Qp, Mr), Error> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    let qp = pd.qp(&cq, &cq).max_inline_data(64).build()?;
    let mr = pd.register(64, Access::LOCAL_WRITE)?;
    Ok((cq, qp, mr))
}

/// Accepts one connection, says what comes, and sends it back.
fn serve(context: &Context, listener: &Listener) -> Result<(), Error> {
    let (cq, qp, mr) = side(context)?;
    let request = listener.accept(Duration::from_secs(3600))?;
    println!("{} connects", request.peer());
    // The receive is there before the peer can send.
    request.prepare(&qp)?;
    qp.post_recv(1, &[mr.slice(..)])?;
    let connection = request.accept(&qp, &Options::default(), PATIENCE)?;
    let received = cq.wait_polling(PATIENCE)?.ok()?;
    let message = mr.to_vec(0, received.byte_len as usize);
    println!("received {:?}", String::from_utf8_lossy(&message));
    qp.post(&SendWr::send(2, &[]).with_inline(&message))?;
    // The peer may have disconnected before its acknowledgement is here.
    cq.wait_polling(PATIENCE)?;
    connection.wait_disconnected(PATIENCE)
}

/// Connects, sends a message and waits for it to come back.
fn call(context: &Context, peer: SocketAddr) -> Result<(), Error> {
    let (cq, qp, mr) = side(context)?;
    let connection = cm::connect(&qp, peer, &Options::default(), PATIENCE)?;
    qp.post_recv(1, &[mr.slice(..)])?;
    qp.post(&SendWr::send(2, &[]).with_inline(b"hello"))?;
    for _ in 0..2 {
        cq.wait_polling(PATIENCE)?.ok()?;
    }
    println!(
        "{peer} answers {:?}",
        String::from_utf8_lossy(&mr.to_vec(0, 5))
    );
    connection.disconnect(PATIENCE)
}

/// The device that leads to an address: its own, or the one of the default route.
fn device(address: SocketAddr) -> Result<Context, Error> {
    match Context::open_address(address.ip()) {
        Err(Error::NoSuchAddress { .. }) => Context::open("hirail0"),
        other => other,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => {
            let context = Context::open_loopback()?;
            let listener = Listener::bind(&context, "127.0.0.1:0".parse()?)?;
            let address = listener.local_addr();
            std::thread::scope(|scope| {
                let serving = scope.spawn(|| serve(&context, &listener));
                call(&context, address)?;
                serving.join().expect("does not panic")
            })?;
        }
        [address] => call(&device(address.parse()?)?, address.parse()?)?,
        [address, role] if role == "serve" => {
            let address = address.parse()?;
            let context = device(address)?;
            serve(&context, &Listener::bind(&context, address)?)?;
        }
        _ => return Err("expected ADDRESS:PORT and maybe the word serve".into()),
    }
    Ok(())
}
