//! The symbols of the built library, as a loader sees them, against the table of the interface.

#[allow(dead_code)]
mod common;

use std::collections::BTreeSet;
use std::fs;

use object::elf::{FileHeader64, SHN_UNDEF};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

/// `name@@NODE` for what programs are linked to now, `name@NODE` for what only old ones ask for.
const TABLE: &str = include_str!("symbols.txt");

#[test]
fn every_symbol_has_its_version_and_there_is_no_other() {
    let data = fs::read(common::library()).unwrap();
    let data = data.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, data).unwrap();
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, data).unwrap().unwrap();
    let mut exported = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let is_import = symbol.st_shndx(endian) == SHN_UNDEF;
        if is_import || index.0 == 0 {
            continue;
        }
        let name = symbol.name(endian, symbols.strings()).unwrap();
        let name = str::from_utf8(name).unwrap();
        let version = versions.version_index(endian, index);
        let node = versions.version(version).unwrap();
        let node = node.map_or("", |node| str::from_utf8(node.name()).unwrap());
        // The nodes themselves are symbols, too.
        if name == node {
            continue;
        }
        let at = if version.is_hidden() { "@" } else { "@@" };
        exported.insert(format!("{name}{at}{node}"));
    }
    let table: BTreeSet<String> = TABLE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    let lacking: Vec<_> = table.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&table).collect();
    assert!(lacking.is_empty(), "not exported: {lacking:#?}");
    assert!(
        surplus.is_empty(),
        "exported, but not in the table: {surplus:#?}"
    );
}

#[test]
fn the_loader_knows_it_by_its_name_and_keeps_it() {
    let data = fs::read(common::library()).unwrap();
    let data = data.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, data).unwrap();
    let (entries, strings) = sections.dynamic(endian, data).unwrap().unwrap();
    let strings = sections.strings(endian, data, strings).unwrap();
    let value = |tag: u32| {
        let entry = entries
            .iter()
            .find(|entry| entry.d_tag.get(endian) == u64::from(tag));
        entry.map(|entry| entry.d_val.get(endian))
    };
    let name = value(elf::DT_SONAME).unwrap() as u32;
    assert_eq!(strings.get(name), Ok(&b"librdmacm.so.1"[..]));
    let flags = value(elf::DT_FLAGS_1).unwrap() as u32;
    assert_ne!(flags & elf::DF_1_NODELETE, 0, "threads of it run");
}
