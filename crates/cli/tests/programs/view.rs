//! What a program sees of the devices in `/sys` and `/dev`, by a namespace and by the preloaded
//! library, and that it notices nothing else.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use super::process::hirail;

/// Who runs the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// Whoever runs the test.
    We,
    /// A user without any rights. Only root can be another.
    Nobody,
    /// Root without the right to make namespaces.
    Limited,
}

impl Who {
    /// The ones that this user can be.
    fn all() -> Vec<Self> {
        let mut all = vec![Self::We];
        for other in [Self::Nobody, Self::Limited] {
            let reached = other.command(&["--version"]).output();
            match reached {
                Ok(output) if output.status.success() => all.push(other),
                _ => eprintln!("skipped as {other:?}: this user cannot be that, or not run hirail"),
            }
        }
        all
    }

    /// A command of `hirail`.
    fn command(self, arguments: &[&str]) -> Command {
        let become_other: &[&str] = match self {
            Self::We => &[],
            Self::Nobody => &["--reuid=65534", "--regid=65534", "--clear-groups"],
            Self::Limited => &["--bounding-set=-sys_admin"],
        };
        let mut command = Command::new("timeout");
        command.arg("60");
        if !become_other.is_empty() {
            command.arg("setpriv").args(become_other);
        }
        command.arg(hirail()).args(arguments);
        command
            .current_dir("/tmp")
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null());
        command
    }

    /// What a script says; nothing, with the reason printed, where the system allows no namespaces.
    fn script(self, view: &str, script: &str) -> Option<String> {
        let arguments = ["run", "--view", view, "--", "sh", "-c", script];
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(&arguments).output().expect("it starts");
        let error = String::from_utf8_lossy(&stderr);
        if error.contains("no namespace can be made here") {
            eprintln!("skipped as {self:?}: {error}");
            return None;
        }
        assert!(status.success(), "{self:?}, {view}: {status}: {error}");
        assert_eq!(error, "", "{self:?}, {view}");
        Some(String::from_utf8(stdout).expect("text"))
    }
}

/// Looks at the loopback device from all sides.
const LOOK: &str = r#"
    cd /
    device=/sys/class/infiniband/hirail_lo
    verbs=$(dirname $(grep -lx hirail_lo /sys/class/infiniband_verbs/uverbs*/ibdev))
    node=/dev/infiniband/${verbs##*/}
    set -e
    cat $device/node_type $device/ports/1/link_layer $device/ports/1/gid_attrs/types/0
    cat $device/ports/1/gid_attrs/ndevs/0 $device/ports/1/pkeys/0
    cat /sys/class/infiniband_verbs/abi_version /sys/class/misc/rdma_cm/abi_version
    cat $device/device/net/lo/mtu > /dev/null
    ls $device/device/net $device/device/infiniband
    test -c $node && test -r $node && test -w $node
    test -c /dev/infiniband/rdma_cm
    test "$(stat -c %t:%T -L $node)" = 1:3
    readlink $device | sed 's/ffff:..:..\.0/ADDRESS/'
    realpath $device/device | sed 's/ffff:..:..\.0/ADDRESS/'
    test ! -e $device/nothing
"#;

const SEEN: &str = "1: CA\nEthernet\nRoCE v2\nlo\n0xffff\n6\n4\n\
    /sys/class/infiniband/hirail_lo/device/infiniband:\nhirail_lo\n\n\
    /sys/class/infiniband/hirail_lo/device/net:\nlo\n\
    ../../devices/pciffff:00/ADDRESS/infiniband/hirail_lo\n\
    /sys/devices/pciffff:00/ADDRESS\n";

#[test]
fn both_ways_show_the_devices() {
    for who in Who::all() {
        for view in ["namespace", "preload", "auto"] {
            if let Some(seen) = who.script(view, LOOK) {
                assert_eq!(seen, SEEN, "{who:?}, {view}");
            }
        }
    }
}

#[test]
fn without_a_view_nothing_is_shown() {
    let script = "ls -d /sys/class/infiniband/hirail_lo 2> /dev/null; echo $LD_PRELOAD";
    assert_eq!(Who::We.script("none", script).unwrap(), "\n");
}

/// Where no namespace can be made, the library is preloaded, and who asks for one is told.
#[test]
fn a_library_stands_in_for_a_namespace() {
    if !Who::all().contains(&Who::Limited) {
        return;
    }
    let preloaded = Who::Limited.script("auto", "echo $LD_PRELOAD").unwrap();
    assert!(preloaded.ends_with("/libhirail_view.so\n"), "{preloaded}");
    assert_eq!(Who::Limited.script("namespace", "true"), None);
}

/// All that a program can tell of where it is.
const SURROUNDINGS: &str = r#"
    id; pwd; umask; readlink /proc/self/cwd /proc/self/root
    grep -E 'Uid|Gid|Groups|Cap|Seccomp|NoNew' /proc/self/status | grep -v CapBnd
    for kind in net ipc pid uts cgroup; do readlink /proc/self/ns/$kind; done
    ls /dev | grep -vx infiniband
    ls /sys/class | grep -vx -e infiniband -e infiniband_verbs
    ls /sys/class/misc | grep -vx rdma_cm
    ls /sys/devices | grep -v pciffff
    ls /sys/class/net/ /sys/class/net/lo/
    ls /proc/self/fd | wc -l
    stat -c '%n %d:%i %t:%T' /dev/null /dev/zero /dev/shm /dev/pts /dev/shm/.. 2>&1 | grep -v /..
    echo something > /dev/null && head -c 4 /dev/zero | od -c
    script -qec 'test -t 0 && echo terminal' /dev/null
"#;

#[test]
fn a_program_notices_nothing_else() {
    for who in Who::all() {
        let expected = who.script("none", SURROUNDINGS).unwrap();
        if let Some(seen) = who.script("namespace", SURROUNDINGS) {
            assert_eq!(seen, expected, "{who:?}");
        }
    }
}

/// A program of `hirail run` that starts another adds nothing.
#[test]
fn a_view_in_a_view_is_the_same() {
    for who in Who::all() {
        let hirail = hirail().display();
        let script = format!(
            "readlink /proc/self/ns/mnt; {hirail} run --view namespace -- readlink /proc/self/ns/mnt"
        );
        if let Some(seen) = who.script("namespace", &script) {
            let lines: Vec<_> = seen.lines().collect();
            assert_eq!(lines[0], lines[1], "{who:?}");
        }
    }
}

/// Whoever is not root can look into the memory of another process only where both are in one user
/// namespace.
#[test]
fn the_processes_of_a_user_share_one_namespace() {
    for who in Who::all() {
        let is_root = who.script("none", "id -u").unwrap() == "0\n";
        if is_root {
            continue;
        }
        let show = "readlink /proc/self/ns/user /proc/self/ns/mnt";
        if who.script("namespace", show).is_none() {
            continue;
        }
        let script = format!("{show}; read line");
        let mut first = who
            .command(&["run", "--view", "namespace", "--", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(first.stdout.take().expect("a pipe")).lines();
        let of_first = [(); 2].map(|()| lines.next().expect("a line").expect("text"));
        let of_second = who.script("namespace", show).expect("as before");
        drop(first.stdin.take());
        first.wait().expect("it ends");
        assert_eq!(of_second.lines().collect::<Vec<_>>(), of_first);
    }
}

/// What `hirail env` prints makes the programs of a shell see them as well.
#[test]
fn lines_for_a_shell_show_the_devices() {
    let hirail = hirail().display();
    let script = format!("eval \"$({hirail} env)\" && sh -s << 'END'\n{LOOK}\nEND");
    assert_eq!(Who::We.script("none", &script).unwrap(), SEEN);
}
