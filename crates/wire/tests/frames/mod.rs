//! The frames of all vectors.

use serde_json::Value;

/// The Ethernet frames of `data/vectors/{icrc,cm,dcb}.json`, in that order.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let files = [
        include_str!("../data/vectors/icrc.json"),
        include_str!("../data/vectors/cm.json"),
        include_str!("../data/vectors/dcb.json"),
    ];
    let mut frames = Vec::new();
    for file in files {
        let file: Value = serde_json::from_str(file).unwrap();
        for vector in file["vectors"].as_array().unwrap() {
            let hex = vector["frame"].as_str().unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            frames.push((0..hex.len()).step_by(2).map(byte).collect());
        }
    }
    frames
}
