//! The tree as a folder of this user's, and the library that leads programs there which open files
//! under the names that Linux gives them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cover::file;
use super::tree::{Folder, Node};
use crate::outcome::Error;
use crate::run::libraries;

/// Where the loader takes libraries from that come before all others (ld.so(8)).
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// The value of the variable that shows the tree: what it is now, with the library in front.
pub(super) fn value(tree: &Folder) -> Result<OsString, Error> {
    let library = libraries::view()?;
    let root =
        write(tree).map_err(|error| Error::new(format!("cannot write the view: {error}")))?;
    // The library finds the tree beside the name that it was loaded by.
    let name = root.join("libhirail_view.so");
    libraries::link(&library, &name)
        .map_err(|error| Error::new(format!("cannot make the link {}: {error}", name.display())))?;
    let mut value = name.into_os_string();
    if value.to_string_lossy().contains([' ', ':']) {
        let name = value.display();
        return Err(Error::new(format!(
            "{VARIABLE} cannot name {name}: it takes neither spaces nor colons"
        )));
    }
    let before = std::env::var_os(VARIABLE).unwrap_or_default();
    let before = before.to_string_lossy();
    let others = before.split([' ', ':']).filter(|other| {
        let is_empty = other.is_empty();
        !is_empty && value != **other
    });
    let others: Vec<_> = others.map(str::to_owned).collect();
    for other in others {
        value.push(":");
        value.push(other);
    }
    Ok(value)
}

/// Brings the folder for the devices of this network namespace up to date. Programs may be reading.
fn write(tree: &Folder) -> io::Result<PathBuf> {
    let network = fs::metadata("/proc/self/ns/net")?.ino();
    let root = libraries::own_folder("hirail-view")?.join(network.to_string());
    for (name, node) in &tree.entries {
        if let Node::Folder(folder) = node {
            update(&root.join(name), folder)?;
        }
    }
    Ok(root)
}

fn update(place: &Path, folder: &Folder) -> io::Result<()> {
    fs::create_dir_all(place)?;
    let mut stale: BTreeSet<_> = fs::read_dir(place)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<_>>()?;
    for (name, node) in &folder.entries {
        stale.remove(name.as_ref() as &std::ffi::OsStr);
        let place = place.join(name);
        match node {
            Node::Folder(folder) => update(&place, folder)?,
            Node::File(line) => {
                let text = fs::read_to_string(&place).unwrap_or_default();
                if text.strip_suffix('\n') != Some(line) {
                    let new = place.with_extension(format!("new.{}", std::process::id()));
                    file(&new, line)?;
                    fs::rename(&new, &place)?;
                }
            }
            Node::Link(to) => libraries::link(Path::new(to), &place)?,
            Node::Device => libraries::link(Path::new("/dev/null"), &place)?,
        }
    }
    for name in stale {
        let path = place.join(name);
        let removed = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        // Somebody else may have been faster.
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_follows_the_tree() {
        let devices = hirail::devices::list().unwrap();
        let root = std::env::temp_dir().join(format!("hirail-tree-{}", std::process::id()));
        let none = Folder::of(&[]);
        for tree in [&Folder::of(&devices), &none, &Folder::of(&devices)] {
            update(&root, tree).unwrap();
            update(&root, tree).unwrap();
        }
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let lo = "sys/class/infiniband/hirail_lo";
        assert_eq!(read(&format!("{lo}/node_type")), "1: CA\n");
        assert_eq!(
            read(&format!("{lo}/device/infiniband/hirail_lo/node_type")),
            "1: CA\n"
        );
        update(&root, &none).unwrap();
        assert!(!root.join(lo).exists());
        assert!(root.join("sys/class/infiniband").is_dir());
        fs::remove_dir_all(&root).unwrap();
    }
}
