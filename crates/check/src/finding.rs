//! Findings, each told once and then counted.

use std::collections::BTreeMap;

use hirail_vocab::FindingCode;

use crate::site::Site;

/// A place that has to do with a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Trace {
    /// What happened there.
    pub role: &'static str,
    /// Where.
    pub site: Site,
}

/// A mistake of the program. One that comes again from the same places is the same one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its number in this process.
    pub id: u32,
    /// What it is.
    pub code: FindingCode,
    /// The object that it happened to.
    pub object: String,
    /// What happened the first time.
    pub message: String,
    /// The places, the guilty one first.
    pub traces: Vec<Trace>,
    /// How often.
    pub count: u64,
    /// It has been taken before, with another count.
    pub is_known: bool,
}

/// All findings of a process.
#[derive(Default)]
pub(crate) struct Findings {
    known: BTreeMap<(FindingCode, Vec<Trace>), usize>,
    all: Vec<Finding>,
    /// Places in `all` of what nobody has taken yet.
    news: Vec<usize>,
    /// Counts that were taken last.
    taken: Vec<u64>,
}

impl Findings {
    /// Adds a finding, or counts it.
    pub(crate) fn add(
        &mut self,
        code: FindingCode,
        object: impl Into<String>,
        message: String,
        traces: Vec<Trace>,
    ) {
        self.add_many(code, object, message, traces, 1);
    }

    /// The same for several at once.
    pub(crate) fn add_many(
        &mut self,
        code: FindingCode,
        object: impl Into<String>,
        message: String,
        traces: Vec<Trace>,
        count: u64,
    ) {
        if let Some(&place) = self.known.get(&(code, traces.clone())) {
            let finding = &mut self.all[place];
            finding.count += count;
            // Somebody who sins in a loop is not to write a file of that length.
            if finding.count.is_power_of_two() {
                self.news.push(place);
            }
            return;
        }
        let place = self.all.len();
        self.known.insert((code, traces.clone()), place);
        self.all.push(Finding {
            id: place as u32,
            code,
            object: object.into(),
            message,
            traces,
            count,
            is_known: false,
        });
        self.taken.push(0);
        self.news.push(place);
    }

    /// Whether there is anything to take.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// What is new: findings, and known ones with another count.
    pub(crate) fn take(&mut self) -> Vec<Finding> {
        let mut news = std::mem::take(&mut self.news);
        news.sort_unstable();
        news.dedup();
        let take = |place: usize| {
            self.taken[place] = self.all[place].count;
            let taken = self.all[place].clone();
            self.all[place].is_known = true;
            taken
        };
        news.into_iter().map(take).collect()
    }

    /// Makes news of every count that has grown since it was taken.
    pub(crate) fn settle(&mut self) {
        let grown = (0..self.all.len()).filter(|&place| self.taken[place] != self.all[place].count);
        self.news.extend(grown);
    }
}
