//! What the view shows: the folders, files and links that Linux would make for the devices.
//!
//! A device hangs on an entry that looks like a PCI one, since that is where programs look for it; in
//! a domain of its own, in which no real card is.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use hirail::devices::NetDevice;
use hirail::sysfs;

/// Where the devices hang.
const BUS: &str = "sys/devices/pciffff:00";

/// Devices of one PCI bus.
const SLOTS: usize = 32;

/// Number of `/dev/null`, which stands for the device nodes.
const NULL: &str = "1:3";

/// An entry of a folder.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) enum Node {
    Folder(Folder),
    /// A file with one line.
    File(String),
    /// A link and where it leads.
    Link(String),
    /// A character device that everybody may read and write.
    Device,
}

/// A folder, which may exist already.
#[derive(Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Folder {
    pub(super) entries: BTreeMap<String, Node>,
    /// Whether nothing else is seen in it: cards that the library does not list.
    pub(super) is_all: bool,
}

impl Folder {
    /// What is to be seen below `/` when these are the devices.
    pub(super) fn of(devices: &[NetDevice]) -> Self {
        let mut root = Self::default();
        for class in ["infiniband", "infiniband_verbs", "misc/rdma_cm"] {
            root.folder(&format!("sys/class/{class}")).is_all = true;
        }
        root.folder("dev/infiniband").is_all = true;
        root.file("sys/class/infiniband_verbs/abi_version", "6");
        root.file("sys/class/misc/rdma_cm/abi_version", "4");
        root.file("sys/class/misc/rdma_cm/dev", NULL);
        root.put("dev/infiniband/rdma_cm", Node::Device);
        for (number, device) in devices.iter().enumerate() {
            root.device(number, device);
        }
        root
    }

    /// A number that is different for another tree.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn device(&mut self, number: usize, device: &NetDevice) {
        let (name, uverbs) = (&device.name, format!("uverbs{number}"));
        let address = format!("ffff:{:02x}:{:02x}.0", number / SLOTS, number % SLOTS);
        let pci = format!("{BUS}/{address}");
        let place = Place::of(device);
        for (file, text) in [
            ("vendor", format!("{:#06x}", sysfs::VENDOR_ID & 0xffff)),
            ("device", format!("{:#06x}", sysfs::VENDOR_PART_ID)),
            // A network controller.
            ("class", "0x020000".to_owned()),
            ("numa_node", place.numa_node),
            ("local_cpus", place.local_cpus),
            ("local_cpulist", place.local_cpulist),
        ] {
            self.file(&format!("{pci}/{file}"), &text);
        }
        let interface = &device.interface;
        self.link(
            &format!("{pci}/net/{interface}"),
            &format!("/sys/class/net/{interface}"),
        );
        let ib = format!("{pci}/infiniband/{name}");
        for (file, text) in sysfs::files(device) {
            self.file(&format!("{ib}/{file}"), &text);
        }
        let verbs = format!("{pci}/infiniband_verbs/{uverbs}");
        for (file, text) in [("abi_version", "1"), ("dev", NULL), ("ibdev", name)] {
            self.file(&format!("{verbs}/{file}"), text);
        }
        for (class, entry, path) in [
            ("infiniband", name, &ib),
            ("infiniband_verbs", &uverbs, &verbs),
        ] {
            self.link(&format!("{path}/device"), &format!("../../../{address}"));
            self.link(
                &format!("{path}/subsystem"),
                &format!("../../../../../class/{class}"),
            );
            let path = path.trim_start_matches("sys/");
            self.link(
                &format!("sys/class/{class}/{entry}"),
                &format!("../../{path}"),
            );
        }
        self.put(&format!("dev/infiniband/{uverbs}"), Node::Device);
    }

    fn file(&mut self, path: &str, line: &str) {
        self.put(path, Node::File(line.to_owned()));
    }

    fn link(&mut self, path: &str, to: &str) {
        self.put(path, Node::Link(to.to_owned()));
    }

    fn put(&mut self, path: &str, node: Node) {
        let (folder, name) = path.rsplit_once('/').expect("a path below the root");
        self.folder(folder).entries.insert(name.to_owned(), node);
    }

    /// The folder at a path, which is made where it is not there.
    fn folder(&mut self, path: &str) -> &mut Self {
        path.split('/').fold(self, |folder, name| {
            let entry = folder.entries.entry(name.to_owned());
            match entry.or_insert_with(|| Node::Folder(Self::default())) {
                Node::Folder(folder) => folder,
                _ => unreachable!("a file is no folder"),
            }
        })
    }
}

/// Which processors are near a device.
struct Place {
    numa_node: String,
    local_cpus: String,
    local_cpulist: String,
}

impl Place {
    /// Those of the card that the interface belongs to. Without one, all are.
    fn of(device: &NetDevice) -> Self {
        let card = format!("/sys/class/net/{}/device", device.interface);
        let real = fs::canonicalize(card).unwrap_or_default();
        let mut above = real.ancestors();
        let near = above.find(|folder| folder.join("local_cpulist").exists());
        let read = |file: &str| near.and_then(|folder| line(&folder.join(file)));
        let cpus =
            read("local_cpulist").or_else(|| line("/sys/devices/system/cpu/online".as_ref()));
        let cpus = cpus.unwrap_or_else(|| "0".to_owned());
        Self {
            numa_node: read("numa_node").unwrap_or_else(|| "-1".to_owned()),
            local_cpus: read("local_cpus").unwrap_or_else(|| mask(&cpus)),
            local_cpulist: cpus,
        }
    }
}

fn line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

/// The mask of a list of processors such as `0-3,8`: words of 32 bits, the highest first.
fn mask(list: &str) -> String {
    let mut words = vec![0_u32];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            continue;
        };
        for cpu in first..=last {
            words.resize(words.len().max(cpu / 32 + 1), 0);
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    let words = words.iter().rev().map(|word| format!("{word:08x}"));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(root: &'a Folder, path: &str) -> Option<&'a Node> {
        let (folder, name) = path.rsplit_once('/')?;
        let folder =
            folder
                .split('/')
                .try_fold(root, |folder, name| match folder.entries.get(name)? {
                    Node::Folder(folder) => Some(folder),
                    _ => None,
                })?;
        folder.entries.get(name)
    }

    #[test]
    fn a_device_is_found_from_every_side() {
        let devices = hirail::devices::list().unwrap();
        let root = Folder::of(&devices);
        let last = devices.len() - 1;
        let pci = format!("sys/devices/pciffff:00/ffff:00:{last:02x}.0");
        let link = |path: &str| match at(&root, path) {
            Some(Node::Link(to)) => to.clone(),
            other => panic!("{path} is {other:?}"),
        };
        let name = "infiniband/hirail_lo";
        let to = format!("../../{}/{name}", &pci["sys/".len()..]);
        assert_eq!(link("sys/class/infiniband/hirail_lo"), to);
        assert_eq!(
            link(&format!("{pci}/{name}/device")),
            format!("../../../ffff:00:{last:02x}.0")
        );
        assert_eq!(link(&format!("{pci}/net/lo")), "/sys/class/net/lo");
        let of_uverbs = format!("{pci}/infiniband_verbs/uverbs{last}/ibdev");
        assert_eq!(
            at(&root, &of_uverbs),
            Some(&Node::File("hirail_lo".to_owned()))
        );
        let node = format!("dev/infiniband/uverbs{last}");
        assert_eq!(at(&root, &node), Some(&Node::Device));
        assert_eq!(root.digest(), Folder::of(&devices).digest());
        assert_ne!(root.digest(), Folder::of(&devices[..last]).digest());
    }

    #[test]
    fn processors_become_bits() {
        assert_eq!(mask("0-1"), "00000003");
        assert_eq!(mask("0,3,32-33"), "00000003,00000009");
        assert_eq!(mask(""), "00000000");
    }
}
