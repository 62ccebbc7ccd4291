//! The symbols of the built library, as a loader sees them, against the table of the interface.

#[test]
fn every_symbol_has_its_version_and_the_loader_knows_the_library() {
    let library = testkit::cdylib::build("hirail-ibverbs");
    testkit::cdylib::check(&library, "libibverbs.so.1", include_str!("symbols.txt"));
}
