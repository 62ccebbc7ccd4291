//! What a program sees of the devices behind the back of the libraries: files in `/sys` and nodes in
//! `/dev/infiniband`, for those that look there themselves.

mod cover;
mod namespace;
mod preload;
mod tree;

use std::ffi::OsString;

use clap::ValueEnum;

use self::tree::Folder;
use crate::outcome::Error;

pub(crate) use self::namespace::{child, is_child};
pub(super) use self::preload::VARIABLE;

/// How the devices are shown in /sys and /dev.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum View {
    /// By a namespace where the system allows it, else by a preloaded library
    Auto,
    /// In a mount namespace of the program's own
    Namespace,
    /// By a preloaded library that redirects calls of the C library
    Preload,
    /// Not at all
    None,
}

/// Shows the devices to the program that this process is about to become. What its `LD_PRELOAD`
/// must be, where it has to change.
pub(super) fn prepare(view: View) -> Result<Option<OsString>, Error> {
    if view == View::None {
        return Ok(None);
    }
    let devices = hirail::devices::list()
        .map_err(|error| Error::new(format!("cannot list the devices: {error}")))?;
    let tree = Folder::of(&devices);
    if view != View::Preload {
        match namespace::enter(&tree) {
            Ok(()) => return Ok(None),
            Err(error) if view == View::Namespace => {
                let error = format!("--view namespace: no namespace can be made here: {error}");
                return Err(Error::new(error));
            }
            Err(_) => {}
        }
    }
    preload::value(&tree).map(Some)
}
