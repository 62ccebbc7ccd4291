//! The `hirail` command.
fn main() {}
