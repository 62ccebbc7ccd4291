//! Programs that no distribution has. They are fetched once, from the registries of their languages,
//! and kept in the target folder.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing takes longer to fetch and to build.
const PATIENCE: Duration = Duration::from_secs(900);

/// Where things are kept.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// What is kept under this name, made by `make` in a folder of its own where it is not there yet; or
/// why it cannot be had.
pub(crate) fn once(
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let kept = folder().join(name);
    if !kept.exists() {
        let new = folder().join(format!("{name}.{}", std::process::id()));
        let made = fs::create_dir_all(&new).map_err(|error| error.to_string());
        let made = made.and_then(|()| make(&new));
        let made = made.and_then(|()| fs::rename(&new, &kept).map_err(|error| error.to_string()));
        if let Err(reason) = made {
            let _ = fs::remove_dir_all(&new);
            return Err(reason);
        }
    }
    Ok(kept)
}

/// Runs a command to its end, within the patience; what it last said where it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let log = env::temp_dir().join(format!("hirail-fetch-{}", std::process::id()));
    let result = File::create(&log)
        .and_then(|file| {
            let again = file.try_clone()?;
            command.stdin(Stdio::null()).stdout(file).stderr(again);
            command.spawn()
        })
        .map_err(|error| format!("{name}: {error}"))
        .and_then(|mut child| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => return Ok(()),
                    Ok(Some(status)) => return Err(format!("{name}: {status}")),
                    Err(error) => return Err(format!("{name}: {error}")),
                    Ok(None) if Instant::now() > deadline => {
                        let _ = child.kill();
                        let _ = child.wait();
                        return Err(format!("{name} did not end"));
                    }
                    Ok(None) => thread::sleep(Duration::from_millis(50)),
                }
            }
        });
    let said = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    result.map_err(|reason| format!("{reason}: {}", last.unwrap_or("it says nothing")))
}
