//! `docs/configuration.md` is made from the settings themselves.

use std::fmt::Write;

use expect_test::expect_file;
use hirail::config::SETTINGS;
use hirail_vocab::CcParam;

#[test]
fn configuration_is_documented() {
    let mut text = String::from(
        "# Configuration\n\n\
         Nothing needs to be configured. What can be: by environment variables, and by a TOML file that\n\
         `HIRAIL_CONFIG` names. Variables win over the file. A name that does not exist is refused, with\n\
         the nearest one that does.\n\n\
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
    expect_file!["../../../docs/configuration.md"].assert_eq(&text);
}
