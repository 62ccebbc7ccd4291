//! Where the libraries are that stand in for the system's, and a folder in which the loader finds
//! them under the names that programs ask for.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::outcome::Error;

/// A library: the file that the build makes, and the names that the loader is asked for. The first
/// is that of an installed one.
struct Library {
    file: &'static str,
    names: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library {
        file: "libhirail_ibverbs.so",
        names: &["libibverbs.so.1", "libibverbs.so"],
    },
    Library {
        file: "libhirail_rdmacm.so",
        names: &["librdmacm.so.1", "librdmacm.so"],
    },
];

/// The one that shows the devices to programs which look for files.
const VIEW: &str = "libhirail_view.so";

/// The one by which programs written for sockets use RDMA.
const RSPRELOAD: &str = "libhirail_rspreload.so";

/// Where libraries are installed, seen from the program.
const INSTALLED: &str = "../lib/hirail";

/// The folder to be searched first.
pub(super) fn folder() -> Result<PathBuf, Error> {
    let beside = &beside()?;
    let installed = beside.join(INSTALLED);
    let is_installed = |library: &Library| {
        let names = &mut library.names.iter();
        names.all(|name| installed.join(name).exists())
    };
    if LIBRARIES.iter().all(is_installed) {
        return Ok(fs::canonicalize(&installed).unwrap_or(installed));
    }
    let mut found = Vec::new();
    for library in LIBRARIES {
        found.push((library, built(library.file, beside)?));
    }
    let folder = writable(beside)?;
    for (library, path) in found {
        for name in library.names {
            link(&path, &folder.join(name)).map_err(|error| {
                let name = folder.join(name);
                Error::new(format!("cannot make the link {}: {error}", name.display()))
            })?;
        }
    }
    Ok(folder)
}

/// The library that shows the devices to programs which look for files.
pub(super) fn view() -> Result<PathBuf, Error> {
    built(VIEW, &beside()?)
}

/// The library by which programs written for sockets use RDMA.
pub(super) fn rspreload() -> Result<PathBuf, Error> {
    built(RSPRELOAD, &beside()?)
}

/// The folder of this program.
fn beside() -> Result<PathBuf, Error> {
    let program = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| Error::new(format!("cannot tell where hirail is: {error}")))?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}

/// A library as the build has made it, or as it was installed under the same name.
fn built(file: &str, beside: &Path) -> Result<PathBuf, Error> {
    let places = [
        beside.to_owned(),
        beside.join("deps"),
        beside.join(INSTALLED),
    ];
    let path = newest(places.iter().map(|place| place.join(file)));
    path.ok_or_else(|| missing(file, &places))
}

/// The file that was written last. A build and its tests leave theirs in different places.
fn newest(paths: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let written = paths.filter_map(|path| {
        let time = fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
        Some((time, path))
    });
    written.max().map(|(_, path)| path)
}

fn missing(file: &str, places: &[PathBuf]) -> Error {
    let places: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    Error::new(format!(
        "there is no {file} in {}; 'cargo build' of the workspace makes it",
        places.join(", ")
    ))
}

/// A folder for links: beside the libraries where that is possible, else one of this user's.
fn writable(beside: &Path) -> Result<PathBuf, Error> {
    let near = beside.join("hirail-libraries");
    if fs::create_dir_all(&near).is_ok() && is_ours(&near) && may_write(&near) {
        return Ok(near);
    }
    let folder = own_folder("hirail-libraries");
    folder.map_err(|error| Error::new(format!("cannot make a folder for links: {error}")))
}

/// A folder of this user's, outside of the home.
pub(super) fn own_folder(name: &str) -> io::Result<PathBuf> {
    let user = fs::metadata("/proc/self")?.uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Who has become another user may have kept the variable.
    let root = runtime.filter(|runtime| is_ours(runtime));
    let root = root.unwrap_or_else(std::env::temp_dir);
    let folder = root.join(format!("{name}-{user}"));
    let mut builder = fs::DirBuilder::new();
    match builder.mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(about(&folder, &error.to_string()));
        }
        _ => {}
    }
    // In a folder that everybody writes to somebody else may have been first.
    if !is_ours(&folder) {
        return Err(about(&folder, "it belongs to somebody else"));
    }
    Ok(folder)
}

fn about(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what}", path.display()))
}

/// Whether it is a folder of this user's, and not a link to one.
fn is_ours(folder: &Path) -> bool {
    let user = fs::metadata("/proc/self").map(|meta| meta.uid());
    let meta = fs::symlink_metadata(folder);
    matches!((user, meta), (Ok(user), Ok(meta)) if meta.is_dir() && meta.uid() == user)
}

fn may_write(folder: &Path) -> bool {
    let probe = folder.join(format!(".{}", std::process::id()));
    let is_made = fs::write(&probe, []).is_ok();
    let _ = fs::remove_file(&probe);
    is_made
}

/// Makes `name` lead to `path`, in one step: programs may be starting.
pub(super) fn link(path: &Path, name: &Path) -> io::Result<()> {
    if fs::read_link(name).is_ok_and(|target| target == path) {
        return Ok(());
    }
    let temporary = name.with_extension(format!("new.{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    symlink(path, &temporary)?;
    fs::rename(&temporary, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_made_once_and_follows() {
        let folder = std::env::temp_dir().join(format!("hirail-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = folder.join("libibverbs.so.1");
        for target in ["/one", "/one", "/two"] {
            link(Path::new(target), &name).unwrap();
            assert_eq!(fs::read_link(&name).unwrap(), Path::new(target));
        }
        assert!(is_ours(&folder) && may_write(&folder));
        assert!(!is_ours(&name));
        fs::remove_dir_all(&folder).unwrap();
    }
}
