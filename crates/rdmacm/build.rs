//! How the library is linked: its name for the loader, the version nodes of its symbols, and that it
//! stays loaded, since the other library's threads serve its descriptors.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed=nodes.map");
    let script = format!("--version-script={dir}/nodes.map");
    for argument in ["-soname,librdmacm.so.1", "-z,nodelete", &script] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
