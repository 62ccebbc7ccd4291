//! What the tests of the built library share: a folder in which programs find it under the names that
//! they ask for.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

/// The library, as it is now.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| testkit::cdylib::build("hirail-ibverbs"))
}

/// A folder for `LD_LIBRARY_PATH`, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A folder of its own for each test.
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("hirail-ibverbs-{test}-{}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["libibverbs.so.1", "libibverbs.so"] {
            let _ = symlink(library(), folder.join(name));
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
