//! What the tests of the built library share: where it is, and a folder in which programs find it
//! under the names that they ask for.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let program = env::current_exe().expect("the test's own path");
    let deps = program.parent().expect("the folder of the test");
    let beside = [deps, deps.parent().expect("the target folder")];
    let built = beside.map(|folder| folder.join("libhirail_ibverbs.so"));
    let modified = |path: &&PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    built
        .iter()
        .filter(|path| path.exists())
        .max_by_key(modified)
        .expect("cargo builds the library before its tests")
        .clone()
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
