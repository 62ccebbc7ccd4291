//! A test in a network namespace of its own.

use std::process::Command;

const INSIDE: &str = "HIRAIL_TEST_NAMESPACE";

/// Runs the test `name` again in a network namespace of its own. False in that run; true in the
/// first one, which is then done.
pub(crate) fn in_namespace(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let exe = std::env::current_exe().expect("own path");
    let run = |probe: bool| {
        let mut command = Command::new("unshare");
        // The mapping makes it work for ordinary users where user namespaces are allowed.
        command.args(["--map-root-user", "--net", "--"]);
        if probe {
            command.arg("true");
        } else {
            command
                .arg(&exe)
                .args(["--exact", name, "--nocapture"])
                .env(INSIDE, "1");
        }
        command.output()
    };
    if !run(true).is_ok_and(|output| output.status.success()) {
        println!("skipped: cannot make a network namespace here");
        return true;
    }
    let output = run(false).expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "in the namespace: {}",
        output.status
    );
    assert!(text.contains("1 passed"), "the test ran");
    true
}

/// Runs `ip` of iproute2 there.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("iproute2");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}
