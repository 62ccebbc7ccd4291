//! A mount namespace in which the devices are seen, and, for whoever is not root, a user namespace
//! that allows to make it (user_namespaces(7), mount_namespaces(7)).
//!
//! Somebody else makes it: a child of this process, which this process then joins. Where a system
//! lets one begin and not end, nothing has happened to the program yet.
//!
//! In different user namespaces the processes of one user may not look into each other's memory,
//! which those of a parallel program do. So whoever is not root first looks for a process that is in
//! such a namespace already.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chroot, fchdir, getegid, geteuid};

use super::cover;
use super::tree::Folder;
use crate::run::libraries::own_folder;

/// What the child is called, by which it knows what to do.
const NAME: &str = "hirail: view";

/// What the child says when all is done.
const READY: &str = "ready";

/// Whether this process is such a child.
pub(crate) fn is_child() -> bool {
    std::env::args_os().next().as_deref() == Some(OsStr::new(NAME))
}

/// What the child does: makes the namespaces, and holds them until its parent has joined.
pub(crate) fn child() {
    let done = list().and_then(|tree| make(&tree));
    let answer = done.map_or_else(|error| error.to_string(), |()| READY.to_owned());
    println!("{answer}");
    let _ = io::stdin().read(&mut [0]);
}

fn list() -> io::Result<Folder> {
    Ok(Folder::of(&hirail::devices::list()?))
}

fn make(tree: &Folder) -> io::Result<()> {
    let tag = Tag::of(tree)?;
    let (user, group) = (geteuid(), getegid());
    // Folders that everybody sees, whatever this user hides.
    umask(Mode::from_bits_truncate(0o022));
    if user.is_root() {
        unshare(CloneFlags::CLONE_NEWNS)?;
    } else {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // The program stays who it is. Groups have to be left as they are before one may be named.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    cover::show(tree, &tag.text())
}

/// Puts this process into a namespace in which `tree` is seen.
pub(super) fn enter(tree: &Folder) -> io::Result<()> {
    let tag = Tag::of(tree)?;
    if tag.is_mounted_here()? {
        return Ok(());
    }
    if geteuid().is_root() {
        return join_child();
    }
    // Held until the program has started: then others find it.
    let lock = File::create(own_folder("hirail-view")?.join("lock"))?;
    lock.lock()?;
    match tag.find() {
        Some(process) => join(&process),
        None => join_child(),
    }?;
    // Closed by `exec`.
    core::mem::forget(lock);
    Ok(())
}

fn join_child() -> io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg0(NAME)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut answer = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut answer)?;
    }
    let joined = match answer.trim_end() {
        READY => join(&PathBuf::from(format!("/proc/{}", child.id()))),
        "" => Err(io::Error::other("its maker has died")),
        error => Err(io::Error::other(error)),
    };
    drop(child.stdin.take());
    child.wait()?;
    joined
}

/// Joins the namespaces of a process, by its folder of `/proc`, and stays in the current folder.
fn join(process: &Path) -> io::Result<()> {
    let here = std::env::current_dir()?;
    // Whoever could not come back must not leave.
    std::env::set_current_dir(&here)?;
    let user = File::open(process.join("ns/user"))?;
    let mounts = File::open(process.join("ns/mnt"))?;
    let folder = OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut options = File::options();
    let root = options
        .read(true)
        .custom_flags(folder.bits())
        .open(process.join("root"))?;
    if !geteuid().is_root() {
        setns(&user, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(&mounts, CloneFlags::CLONE_NEWNS)?;
    // Joining has led to the root of the namespace, which is not that of the process where it was
    // changed.
    fchdir(&root)?;
    chroot(".")?;
    std::env::set_current_dir(here)
}

/// The name of the mounts, by which a view is recognised.
struct Tag {
    /// What is seen, in which network namespace.
    seen: String,
    /// The mount namespace that it was made from.
    origin: u64,
}

impl Tag {
    fn of(tree: &Folder) -> io::Result<Self> {
        let inode =
            |kind: &str| Ok::<_, io::Error>(fs::metadata(format!("/proc/self/ns/{kind}"))?.ino());
        let digest = tree.digest();
        Ok(Self {
            seen: format!("hirail:{digest:016x}:{}", inode("net")?),
            origin: inode("mnt")?,
        })
    }

    fn text(&self) -> String {
        format!("{}:{}", self.seen, self.origin)
    }

    fn is_mounted_here(&self) -> io::Result<bool> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(mounts.contains(&format!(" - tmpfs {}:", self.seen)))
    }

    /// A process of this user's that sees it, by its folder of `/proc`.
    fn find(&self) -> Option<PathBuf> {
        let user = geteuid().as_raw();
        let line = format!(" - tmpfs {} ", self.text());
        let network = fs::metadata("/proc/self/ns/net").ok()?.ino();
        let sees_it = |process: &PathBuf| {
            let is_ours = fs::metadata(process).is_ok_and(|meta| meta.uid() == user);
            let mounts = || fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            let same_net =
                || fs::metadata(process.join("ns/net")).is_ok_and(|meta| meta.ino() == network);
            is_ours && mounts().contains(&line) && same_net()
        };
        let processes = fs::read_dir("/proc").ok()?;
        let numbers = processes.filter_map(|entry| {
            let entry = entry.ok()?;
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            Some(entry.path())
        });
        numbers.into_iter().find(sees_it)
    }
}
