//! Findings on their way from a process to who reports them: lines of JSON, one for each fact, each
//! written as soon as it is known. Places are files and offsets in them; who reports finds the names
//! of functions.

use hirail_vocab::FindingCode;
use serde::{Deserialize, Serialize};

/// The variable that names the folder into which processes write.
pub const VARIABLE: &str = "HIRAIL_CHECK";

/// The file of a process in the folder.
pub fn file_name(pid: u32) -> String {
    format!("{pid}.jsonl")
}

/// A line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A process uses the verbs.
    Start {
        /// Its number.
        pid: u32,
        /// Its program.
        program: String,
    },
    /// Something was found.
    Finding(Found),
    /// It was found again.
    Count {
        /// The finding's number in this process.
        id: u32,
        /// How often so far.
        count: u64,
    },
    /// The process has exited, and everything is told.
    End,
}

/// A finding.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Its number in this process.
    pub id: u32,
    /// Its code, by name.
    pub code: String,
    /// The object that it happened to.
    pub object: String,
    /// What happened the first time.
    pub message: String,
    /// How often so far.
    pub count: u64,
    /// The places, the guilty one first.
    pub traces: Vec<Place>,
}

impl Found {
    /// Its code; nothing for one of another version of this library.
    pub fn code(&self) -> Option<FindingCode> {
        FindingCode::from_name(&self.code)
    }
}

/// A place in the program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// What happened there.
    pub role: String,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// File of the program or library.
    pub file: String,
    /// Offset of the return address in it.
    pub offset: u64,
}

impl Record {
    /// As a line.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// What a line says; nothing where it is not whole.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}
