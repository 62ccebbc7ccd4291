//! The libraries of hirail for C programs, as cargo builds them and a loader sees them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use object::elf::{FileHeader64, SHN_UNDEF};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

/// The library of a package, as it is now: cargo builds what tests can link, which this is not.
///
/// # Panics
/// When it does not build.
pub fn build(package: &str) -> PathBuf {
    let program = env::current_exe().expect("the test's own path");
    let folder = program.ancestors().nth(2).expect("the target folder");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", package]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "{package} builds");
    folder.join(format!("lib{}.so", package.replace('-', "_")))
}

/// A library's symbols and name must be these.
///
/// A line of `table` is a symbol with its versions: `name@@NODE` for what programs are linked to now,
/// then `@NODE` for what others ask for; `name@NODE` where only old ones do.
///
/// # Panics
/// When a symbol is lacking, or there is another, or the loader would know the library by another
/// name than `soname`, or forget it while threads of it run.
pub fn check(library: &Path, soname: &str, table: &str) {
    let data = fs::read(library).expect("the library");
    let file = Elf::new(&data);
    let (exported, table) = (file.exported(), symbols(table));
    let lacking: Vec<_> = table.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&table).collect();
    assert!(lacking.is_empty(), "not exported: {lacking:#?}");
    assert!(
        surplus.is_empty(),
        "exported, but not in the table: {surplus:#?}"
    );
    assert_eq!(file.soname(), soname);
    assert!(file.stays(), "threads of it run");
}

/// The symbols of a table, each with one version.
fn symbols(table: &str) -> BTreeSet<String> {
    let mut symbols = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut versions = line.split_whitespace();
        let Some(first) = versions.next() else {
            continue;
        };
        let name = first.split('@').next().unwrap_or(first);
        symbols.insert(first.to_owned());
        symbols.extend(versions.map(|version| format!("{name}{version}")));
    }
    symbols
}

struct Elf<'a> {
    data: &'a [u8],
    header: &'a FileHeader64<Endianness>,
    endian: Endianness,
}

impl<'a> Elf<'a> {
    fn new(data: &'a [u8]) -> Self {
        let header = FileHeader64::<Endianness>::parse(data).expect("an ELF file");
        let endian = header.endian().expect("its byte order");
        Self {
            data,
            header,
            endian,
        }
    }

    /// What it exports, with versions.
    fn exported(&self) -> BTreeSet<String> {
        let (data, endian) = (self.data, self.endian);
        let sections = self.header.sections(endian, data).expect("sections");
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM);
        let symbols = symbols.expect("symbols");
        let versions = sections.versions(endian, data).expect("versions");
        let versions = versions.expect("some versions");
        let text = |bytes| str::from_utf8(bytes).expect("text");
        let mut exported = BTreeSet::new();
        for (index, symbol) in symbols.enumerate() {
            let is_import = symbol.st_shndx(endian) == SHN_UNDEF;
            if is_import || index.0 == 0 {
                continue;
            }
            let name = text(symbol.name(endian, symbols.strings()).expect("a name"));
            let version = versions.version_index(endian, index);
            let node = versions.version(version).expect("a version");
            let node = node.map_or("", |node| text(node.name()));
            // The nodes themselves are symbols, too.
            if name == node {
                continue;
            }
            let at = if version.is_hidden() { "@" } else { "@@" };
            exported.insert(format!("{name}{at}{node}"));
        }
        exported
    }

    /// An entry of the dynamic section.
    fn dynamic(&self, tag: u32) -> u64 {
        let sections = self.header.sections(self.endian, self.data);
        let sections = sections.expect("sections");
        let dynamic = sections.dynamic(self.endian, self.data);
        let (entries, _) = dynamic.expect("a dynamic section").expect("one");
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry.d_tag.get(self.endian) == u64::from(tag));
        entry.map_or(0, |entry| entry.d_val.get(self.endian))
    }

    fn soname(&self) -> &'a str {
        let sections = self.header.sections(self.endian, self.data);
        let sections = sections.expect("sections");
        let dynamic = sections.dynamic(self.endian, self.data);
        let (_, strings) = dynamic.expect("a dynamic section").expect("one");
        let strings = sections.strings(self.endian, self.data, strings);
        let name = strings
            .expect("strings")
            .get(self.dynamic(elf::DT_SONAME) as u32);
        str::from_utf8(name.expect("a name")).expect("text")
    }

    fn stays(&self) -> bool {
        self.dynamic(elf::DT_FLAGS_1) as u32 & elf::DF_1_NODELETE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_have_several_versions() {
        let table = "# words\n\na@@ONE @TWO\nb@OLD\n";
        let expected = ["a@@ONE", "a@TWO", "b@OLD"].map(str::to_owned);
        assert_eq!(symbols(table), BTreeSet::from(expected));
    }
}
