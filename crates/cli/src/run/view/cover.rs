//! Shows a tree in the mount namespace of this process.
//!
//! sysfs and the folder of devices take no new entries. So where one is to be seen, a `tmpfs` covers
//! the folder, and what was there is mounted back into it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, mknod};

use super::tree::{Folder, Node};

/// The device number of `/dev/ptmx`, 5:2.
const PTMX: u64 = 5 << 8 | 2;

/// Where a whole covered folder is, should it be needed.
const COVERED: &str = ".covered";

/// Shows everything of `root` below `/`. The mounts have the name `tag`. Others do not see them.
pub(super) fn show(root: &Folder, tag: &str) -> io::Result<()> {
    for (name, node) in &root.entries {
        let Node::Folder(folder) = node else {
            continue;
        };
        let place = Path::new("/").join(name);
        keep_to_ourselves(&place)?;
        Cover { tag }.show(&place, folder)?;
    }
    Ok(())
}

/// What is mounted in a file system from now on is seen in this namespace alone; what others mount is
/// still seen here.
fn keep_to_ourselves(place: &Path) -> io::Result<()> {
    let slave = |place: &Path| {
        let flags = MsFlags::MS_SLAVE | MsFlags::MS_REC;
        mount(None::<&str>, place, None::<&str>, flags, None::<&str>)
    };
    match slave(place) {
        // It belongs to another file system.
        Err(Errno::EINVAL) => slave(Path::new("/")).map_err(|error| failed("/", error)),
        result => result.map_err(|error| failed(place, error)),
    }
}

fn failed(place: impl AsRef<Path>, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(
        error.kind(),
        format!("{}: {error}", place.as_ref().display()),
    )
}

struct Cover<'a> {
    tag: &'a str,
}

impl Cover<'_> {
    /// Makes the entries of `folder` appear at a place that exists.
    fn show(&self, place: &Path, folder: &Folder) -> io::Result<()> {
        let can_descend = |(name, node): (&String, &Node)| {
            matches!(node, Node::Folder(_)) && is_folder(&place.join(name))
        };
        if folder.is_all || !folder.entries.iter().all(can_descend) {
            return self.cover(place, folder);
        }
        for (name, node) in &folder.entries {
            if let Node::Folder(folder) = node {
                self.show(&place.join(name), folder)?;
            }
        }
        Ok(())
    }

    fn cover(&self, place: &Path, folder: &Folder) -> io::Result<()> {
        let mut options = File::options();
        options.read(true).custom_flags(OFlag::O_PATH.bits());
        let covered = options.open(place).map_err(|error| failed(place, error))?;
        let flags = MsFlags::MS_NOSUID;
        // Not with the usual sticky bit: devices in such a folder refuse to be opened with O_CREAT.
        let options = "mode=755";
        mount(Some(self.tag), place, Some("tmpfs"), flags, Some(options))
            .map_err(|error| failed(place, error))?;
        let covered = PathBuf::from(format!("/proc/self/fd/{}", covered.as_raw_fd()));
        fill(place, Some(&covered), folder)
    }
}

/// Makes the entries of `folder` in a new folder at `place`, and those of the one that it covers.
fn fill(place: &Path, covered: Option<&Path>, folder: &Folder) -> io::Result<()> {
    if let Some(covered) = covered.filter(|_| !folder.is_all) {
        for entry in fs::read_dir(covered).map_err(|error| failed(place, error))? {
            let name = entry?.file_name();
            let is_new = |name: &str| folder.entries.contains_key(name);
            if !name.to_str().is_some_and(is_new) {
                let place = place.join(&name);
                put_back(&covered.join(&name), &place).map_err(|error| failed(place, error))?;
            }
        }
    }
    for (name, node) in &folder.entries {
        let place = place.join(name);
        let covered = covered.map(|covered| covered.join(name));
        let covered = covered.as_deref().filter(|covered| is_folder(covered));
        let made = match node {
            Node::Folder(folder) => fs::create_dir(&place).and_then(|()| {
                fill(&place, covered, folder)?;
                Ok(())
            }),
            Node::File(line) => file(&place, line),
            Node::Link(to) => symlink(to, &place),
            Node::Device => File::create(&place).and_then(|_| bind(Path::new("/dev/null"), &place)),
        };
        made.map_err(|error| failed(place, error))?;
    }
    Ok(())
}

/// Makes what a `tmpfs` has covered visible again.
fn put_back(covered: &Path, place: &Path) -> io::Result<()> {
    let (kind, device) = match fs::symlink_metadata(covered) {
        Ok(meta) => (meta.file_type(), meta.rdev()),
        // Devices come and go.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if kind.is_symlink() {
        return symlink(fs::read_link(covered)?, place);
    }
    if kind.is_char_device() && device == PTMX {
        return put_back_ptmx(covered, place);
    }
    if kind.is_dir() {
        fs::create_dir(place)?;
    } else {
        File::create(place)?;
    }
    bind(covered, place)
}

/// The kernel looks for `pts` beside the `ptmx` that was opened (pts(4)), which fails where that alone
/// is mounted. So root makes a new one. Others may not; for them it stays in the covered folder, and a
/// link leads there.
fn put_back_ptmx(covered: &Path, place: &Path) -> io::Result<()> {
    if mknod(place, SFlag::S_IFCHR, Mode::empty(), PTMX).is_ok() {
        return fs::set_permissions(place, fs::metadata(covered)?.permissions());
    }
    let whole = place.with_file_name(COVERED);
    fs::create_dir(&whole)?;
    if let Some(folder) = covered.parent() {
        bind(folder, &whole)?;
        // With all that is mounted there came a copy of the cover, on top.
        umount2(&whole, MntFlags::MNT_DETACH)?;
    }
    symlink(Path::new(COVERED).join("ptmx"), place)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
}

/// A file that nobody writes, as those of sysfs.
pub(super) fn file(path: &Path, line: &str) -> io::Result<()> {
    fs::write(path, format!("{line}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

fn is_folder(path: &Path) -> bool {
    path.file_name() != Some(OsStr::new(".."))
        && fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}
