//! A QP whose requests are futures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use super::dispatcher::{Dispatcher, Seat};
use crate::error::Error;
use crate::verbs::builder::QpBuilder;
use crate::verbs::mr::MrSlice;
use crate::verbs::pd::Pd;
use crate::verbs::qp::Qp;
use crate::{RemoteMemory, SendWr, VerbError, Wc};

/// A QP whose requests are futures: posted when first polled, ready when they have ended.
///
/// A request for which the send queue has no room waits for it. Requests are carried out in the
/// order in which they were posted; to have many in flight, poll many futures, with
/// `tokio::join!` or tasks of their own.
#[derive(Debug)]
pub struct AsyncQp {
    qp: Qp,
    lane: Arc<Lane>,
    /// Free entries of the send queue.
    room: Arc<Semaphore>,
    receives: u32,
    /// Given up after `qp`, of which nothing completes any more then.
    _seat: Seat,
}

impl AsyncQp {
    /// Makes a QP in `pd` whose completions `dispatcher` hands on. `describe` sets what shall differ
    /// from the usual. Where receives come from a shared queue, `max_recv_wr` says how many of them
    /// this QP may have taken without anybody looking.
    ///
    /// # Errors
    /// As [`QpBuilder::build`]; or the queues of all QPs of the dispatcher together are longer than
    /// a completion queue can be.
    pub fn build<'a>(
        dispatcher: &'a Dispatcher,
        pd: &'a Pd,
        describe: impl FnOnce(QpBuilder<'a>) -> QpBuilder<'a>,
    ) -> Result<Self, Error> {
        let builder = describe(pd.qp(dispatcher.cq(), dispatcher.cq()));
        let (sends, receives) = builder.depths();
        let mut seat = dispatcher.seat(sends.saturating_add(receives))?;
        let qp = builder.build()?;
        let lane = Arc::new(Lane::default());
        seat.take(qp.qpn(), &lane);
        Ok(Self {
            qp,
            lane,
            room: Arc::new(Semaphore::new(sends as usize)),
            receives,
            _seat: seat,
        })
    }

    /// The QP itself, to connect and query it. What is posted to it directly confuses the futures.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// Carries out any send request. It is always signaled.
    ///
    /// Dropped before it was posted, the future does nothing; dropped after, the request goes on.
    ///
    /// # Errors
    /// As [`Qp::post`], and [`Error::Failed`] when the request did not succeed.
    pub async fn post(&self, wr: &SendWr<'_>) -> Result<Wc, Error> {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.expect("the semaphore is never closed");
        let mut wr = *wr;
        wr.flags.signaled = true;
        let completion = self.lane.post(&self.qp, &wr, room)?;
        completion.await.map_err(|_| Error::NoRuntime)?.ok()
    }

    /// SEND: a message into the oldest receive of the peer.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn send(&self, message: &[MrSlice]) -> Result<Wc, Error> {
        self.post(&SendWr::send(0, message)).await
    }

    /// RDMA WRITE into memory of the peer.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn write(&self, from: &[MrSlice], to: RemoteMemory) -> Result<Wc, Error> {
        self.post(&SendWr::write(0, from, to)).await
    }

    /// RDMA READ from memory of the peer.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn read(&self, into: &[MrSlice], from: RemoteMemory) -> Result<Wc, Error> {
        self.post(&SendWr::read(0, into, from)).await
    }

    /// Adds to a 64-bit word of the peer; the word before goes into the 8 bytes of `before`.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn fetch_add(
        &self,
        before: MrSlice,
        at: RemoteMemory,
        add: u64,
    ) -> Result<Wc, Error> {
        self.post(&SendWr::fetch_add(0, &[before], at, add)).await
    }

    /// Stores `swap` in a 64-bit word of the peer if that equals `compare`; the word before goes
    /// into the 8 bytes of `before`.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn compare_swap(
        &self,
        before: MrSlice,
        at: RemoteMemory,
        compare: u64,
        swap: u64,
    ) -> Result<Wc, Error> {
        self.post(&SendWr::compare_swap(0, &[before], at, compare, swap))
            .await
    }

    /// Queues a receive; [`recv`](Self::recv) tells when a message has come into it.
    ///
    /// # Errors
    /// As many receives as the queue holds are posted and have not been received from, or as
    /// [`Qp::post_recv`].
    pub fn post_recv(&self, wr_id: u64, into: &[MrSlice]) -> Result<(), Error> {
        self.lane.post_recv(&self.qp, wr_id, into, self.receives)
    }

    /// Takes the oldest message that came, waiting until there is one. Its `wr_id` names the receive
    /// that it came into. Any number of tasks may wait, each gets its own.
    ///
    /// Cancellation safe: a message is taken only when it is returned.
    ///
    /// # Errors
    /// [`Error::Failed`] when a receive failed, or was flushed because the QP did.
    pub async fn recv(&self) -> Result<Wc, Error> {
        loop {
            let arrival = self.lane.arrival.notified();
            if let Some(wc) = self.lane.take_received()? {
                return wc.ok();
            }
            arrival.await;
        }
    }
}

/// Who waits for the completions of one QP.
#[derive(Debug, Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    /// Something was received, or the dispatcher ended.
    arrival: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Send requests, oldest first: they complete in this order.
    sends: VecDeque<Pending>,
    received: VecDeque<Wc>,
    /// Receives posted, of which nothing was taken yet.
    receives: u32,
    /// No completion will come any more.
    ended: bool,
}

#[derive(Debug)]
struct Pending {
    waiter: oneshot::Sender<Wc>,
    /// The entry in the send queue.
    _room: OwnedSemaphorePermit,
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a request. Its place in line is taken before its completion can be looked at.
    fn post(
        &self,
        qp: &Qp,
        wr: &SendWr<'_>,
        room: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Wc>, Error> {
        let (waiter, completion) = oneshot::channel();
        let mut state = self.state();
        if state.ended {
            return Err(Error::NoRuntime);
        }
        qp.post(wr)?;
        state.sends.push_back(Pending {
            waiter,
            _room: room,
        });
        Ok(completion)
    }

    fn post_recv(&self, qp: &Qp, wr_id: u64, into: &[MrSlice], depth: u32) -> Result<(), Error> {
        let mut state = self.state();
        if state.receives == depth {
            return Err(Error::Verb(VerbError::QueueFull {
                queue: hirail_rnic::error::Queue::Receive,
                depth,
            }));
        }
        qp.post_recv(wr_id, into)?;
        state.receives += 1;
        Ok(())
    }

    fn take_received(&self) -> Result<Option<Wc>, Error> {
        let mut state = self.state();
        let wc = state.received.pop_front();
        // Receives of a shared queue were not counted.
        state.receives = state.receives.saturating_sub(wc.is_some().into());
        if wc.is_none() && state.ended {
            // Whoever else waits must hear it too.
            self.arrival.notify_one();
            return Err(Error::NoRuntime);
        }
        Ok(wc)
    }

    /// Hands a completion to whoever waits for it.
    pub(super) fn deliver(&self, wc: Wc) {
        let mut state = self.state();
        if wc.opcode.is_receive() {
            state.received.push_back(wc);
            self.arrival.notify_one();
        } else if let Some(pending) = state.sends.pop_front() {
            // Nobody asks any more how it ended, if this fails.
            let _ = pending.waiter.send(wc);
        }
    }

    /// No completion will come any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.sends.clear();
        self.arrival.notify_one();
    }
}
