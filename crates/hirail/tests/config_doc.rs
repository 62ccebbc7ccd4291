//! `docs/configuration.md` is made from the settings themselves.

use std::fmt::Write;

use expect_test::expect_file;
use hirail::config::SETTINGS;
use hirail_vocab::CcParam;

/// What no setting is about.
const RAW_ETHERNET: &str = r#"
## Raw Ethernet

A device runs over UDP sockets unless a program opens it as a raw port, which takes and makes whole
Ethernet frames. That is for RoCE v1, which has no IP header, and for flow control by PFC or PAUSE
frames. It needs the capability CAP_NET_RAW, and says so where the process lacks it:

    sudo setcap cap_net_raw+ep target/release/hirail

| | UDP | raw Ethernet |
| --- | --- | --- |
| opened by | `Context::open("hirail0")` | `Context::open_raw("eth0", RawOptions::default())` |
| in the command | `hirail perf` | `hirail perf --link raw`, `--link raw-v1` |
| speaks | RoCE v2 | RoCE v1 and v2, by the GID |
| GID table | one entry for each address | two entries, version 1 first; one of version 1 without address |
| priority | the DSCP divided by 8 | the same without a VLAN tag, else that of the tag |
| flow control | none | PFC or PAUSE, sent and obeyed |
| packets to this host | arrive | do not come back, but on the loopback between raw ports |

Both ends need not be alike: RoCE v2 from a raw port reaches a UDP port, a card or the kernel's rxe.
UDP port 4791 is shared with the other processes in both cases, so that queue pair numbers do not
collide. All settings above but `port.segmentation`, `port.coalescing` and `port.receive_buffer` apply
as well; what is about the link is in `RawOptions`: `flow_control`, `versions`, `vlan`,
`ack_priority`, `speed_mbps`, `receive_buffer` and `watermarks`.
Two namespaces make two hosts to try it:

    ip netns add a; ip netns add b
    ip link add eth0 netns a type veth peer name eth0 netns b
    ip -n a addr add 198.51.100.1/24 dev eth0; ip -n a link set eth0 up; ip -n a link set lo up
    ip -n b addr add 198.51.100.2/24 dev eth0; ip -n b link set eth0 up; ip -n b link set lo up
    ip netns exec a hirail perf --server --link raw-v1 &
    ip netns exec b hirail perf write-bw 198.51.100.1 --link raw-v1
"#;

#[test]
fn configuration_is_documented() {
    let mut text = String::from(
        "# Configuration\n\n\
         Nothing needs to be configured. What can be: by environment variables, and by a TOML file that\n\
         `HIRAIL_CONFIG` names. Variables win over the file. A name that does not exist is refused, with\n\
         the nearest one that does, by whatever opens a device and by every command of `hirail`.\n\n\
         | in the file | variable | what it does; what applies without it | values |\n\
         | --- | --- | --- | --- |\n",
    );
    for setting in SETTINGS {
        writeln!(
            text,
            "| `{}` | `{}` | {} | {} |",
            setting.key, setting.variable, setting.meaning, setting.values
        )
        .unwrap();
    }
    text.push_str(
        "\nThe file's table `congestion` also takes the parameters of DCQCN under their own names:\n\n\
         | parameter | default | unit | what it does |\n\
         | --- | --- | --- | --- |\n",
    );
    for param in CcParam::ALL {
        writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            param.name(),
            param.default_value(),
            param.unit(),
            param.meaning()
        )
        .unwrap();
    }
    text.push_str(RAW_ETHERNET);
    expect_file!["../../../docs/configuration.md"].assert_eq(&text);
}
