//! Events are taken and acknowledged, and the program ends.

use hirail_vocab::FindingCode;

use super::{Ledger, trace};
use crate::objects::Kind;
use crate::site::Site;

impl Ledger {
    /// An event of an object was taken.
    pub fn event_taken(&mut self, kind: Kind, object: u64, site: Site) {
        self.objects.events(kind, object, 1, Some(site));
    }

    /// Events of an object were acknowledged.
    pub fn events_acknowledged(&mut self, kind: Kind, object: u64, count: u32) {
        self.objects.events(kind, object, -i64::from(count), None);
    }

    /// An object is being destroyed, and events of it that were taken are not acknowledged.
    pub fn waits_for_acknowledgement(&mut self, kind: Kind, object: u64, owed: i64, site: Site) {
        let name = self.objects.name(kind, object);
        let message = format!(
            "{name} is being destroyed, and {owed} {} of it that {} taken {} not acknowledged: \
             the call waits until {}",
            if owed == 1 { "event" } else { "events" },
            if owed == 1 { "was" } else { "were" },
            if owed == 1 { "is" } else { "are" },
            if owed == 1 { "it is" } else { "they are" },
        );
        let mut traces = vec![trace("destroyed", site)];
        let taken = self.objects.taken_at(kind, object);
        traces.extend(taken.map(|site| trace("event taken", site)));
        self.find(FindingCode::UnackedEvents, name, message, traces);
    }

    /// A completion queue overran.
    pub fn cq_overran(&mut self, cq: u64) {
        let Some(queue) = self.cqs.get(&cq) else {
            return;
        };
        let cqe = queue.cqe;
        let name = self.objects.name(Kind::Cq, cq);
        let message = format!("{name} held {cqe} completions when another one came: it is dead");
        let made = self.objects.site(Kind::Cq, cq);
        let traces = made
            .map(|site| trace("CQ made", site))
            .into_iter()
            .collect();
        self.find(FindingCode::CqOverrun, name, message, traces);
    }

    /// The program exits.
    pub fn exit(&mut self) {
        self.objects.exit(&mut self.findings);
        self.findings.settle();
    }
}
