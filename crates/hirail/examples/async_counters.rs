//! Async verbs: many tasks count in the memory of one peer, each with atomics over a QP of its own.
//!
//! ```sh
//! cargo run --features tokio --example async_counters
//! ```
//!
//! Both ends are in this process, on a network in memory that loses every hundredth packet: no
//! increment is lost, and none is applied twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hirail::future::{AsyncQp, Dispatcher};
use hirail::{Access, ConnectOptions, Context, Error, Faults, MemoryNetwork, Pd};

const TASKS: usize = 8;
const EACH: usize = 1000;

/// A device and what tasks share on it.
struct Host {
    context: Context,
    pd: Pd,
    dispatcher: Dispatcher,
}

impl Host {
    fn new(network: &MemoryNetwork, address: [u8; 4]) -> Result<Self, Error> {
        let context = network.open(address.into())?;
        Ok(Self {
            pd: context.alloc_pd()?,
            dispatcher: Dispatcher::new(&context)?,
            context,
        })
    }

    fn qp(&self) -> Result<AsyncQp, Error> {
        AsyncQp::build(&self.dispatcher, &self.pd, |qp| qp.max_send_wr(4))
    }

    fn connect(&self, own: &AsyncQp, other: &AsyncQp) -> Result<(), Error> {
        let options = ConnectOptions::new(&self.context, 0);
        own.qp().connect(&other.qp().endpoint(0)?, &options)
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let network = MemoryNetwork::new(Faults {
        seed: 7,
        loss: 0.01,
        ..Faults::default()
    });
    let here = Host::new(&network, [192, 0, 2, 1])?;
    let there = Host::new(&network, [192, 0, 2, 2])?;

    // Memory of the peer's program, which it goes on using.
    let counter: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0)]);
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let shared = there.pd.register_shared(Arc::clone(&counter), access)?;
    let remote = shared.remote();

    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (own, other) = (here.qp()?, there.qp()?);
        here.connect(&own, &other)?;
        there.connect(&other, &own)?;
        let before = here.pd.register(8, Access::LOCAL_WRITE)?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                own.fetch_add(before.slice(..), remote, 1).await?;
            }
            drop(other);
            Ok::<(), Error>(())
        }));
    }
    for task in tasks {
        task.await.expect("no task panics")?;
    }
    let counted = counter[0].load(Ordering::Acquire);
    println!("{TASKS} tasks counted to {counted}");
    assert_eq!(counted, (TASKS * EACH) as u64);
    Ok(())
}
