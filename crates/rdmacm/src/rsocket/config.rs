//! What the administrator wants: a file with a number for each setting in `/etc/rdma/rsocket`
//! (`rsocket(7)`).

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use super::option::Sizes;
use super::protocol;

/// See the [module](self).
pub(super) struct Config {
    pub(super) sizes: Sizes,
    /// How long a call looks for news before it sleeps.
    pub(super) polling: Duration,
    /// How long it sleeps at most before it looks again.
    pub(super) turn: Duration,
}

impl Config {
    pub(super) fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        CONFIG.get_or_init(|| Self::read(Path::new("/etc/rdma/rsocket")))
    }

    fn read(folder: &Path) -> Self {
        fn number<T: FromStr>(folder: &Path, name: &str, default: T) -> T {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            let word = text.split_whitespace().next();
            word.and_then(|word| word.parse().ok()).unwrap_or(default)
        }
        let default = Sizes::DEFAULT;
        let mut sizes = Sizes {
            inline: number(folder, "inline_default", default.inline),
            send_queue: number(folder, "sqsize_default", default.send_queue),
            recv_queue: number(folder, "rqsize_default", default.recv_queue),
            mappings: protocol::sayable(number(folder, "iomap_size", default.mappings)),
            ..default
        };
        sizes.set_recv_buffer(number(folder, "mem_default", default.recv_buffer));
        sizes.set_send_buffer(number(folder, "wmem_default", default.send_buffer));
        Self {
            sizes: sizes.clamped(),
            polling: Duration::from_micros(number(folder, "polling_time", 10)),
            turn: Duration::from_millis(number(folder, "wake_up_interval", 5000u64).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_numbers_and_what_is_no_number_is_nothing() {
        let folder = std::env::temp_dir().join(format!("hirail-rsocket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("mem_default", "1000000\n"),
            ("rqsize_default", "32 and more"),
            ("sqsize_default", "many"),
            ("polling_time", "0"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let config = Config::read(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(config.sizes.recv_buffer, 1_000_000);
        assert_eq!(config.sizes.recv_queue, 32);
        assert_eq!(config.sizes.send_queue, Sizes::DEFAULT.send_queue);
        assert_eq!(config.polling, Duration::ZERO);
        assert_eq!(config.turn, Duration::from_secs(5));
    }
}
