//! A reader of probes, written only from SystemTap's description of their notes
//! ("UserSpaceProbeImplementation", version 3): it shares no code with what makes them. It reads
//! the file of this program.

use std::fs;

/// A probe, as described by the note in the file.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// Its address, as the program was linked.
    pub(crate) address: u64,
    pub(crate) semaphore: u64,
    /// The instruction there.
    pub(crate) code: [u8; 4],
}

/// A section of the file.
struct Section<'a> {
    name: &'a str,
    kind: u32,
    flags: u64,
    address: u64,
    content: &'a [u8],
}

const NOTE: u32 = 7;
const NO_BITS: u32 = 8;
const ALLOCATED: u64 = 2;

/// Returns the probes of this program.
pub(crate) fn probes() -> Vec<Probe> {
    let file = fs::read("/proc/self/exe").expect("readable");
    let sections = sections(&file);
    let base = sections.iter().find(|section| section.name == ".stapsdt.base");
    let base = base.expect("the base").address;
    let notes = sections.iter().filter(|section| section.kind == NOTE);
    let notes = notes.filter(|section| section.name == ".note.stapsdt");
    let mut probes = Vec::new();
    for section in notes {
        assert_eq!(section.flags & ALLOCATED, 0, "it is not loaded");
        let mut rest = section.content;
        while !rest.is_empty() {
            let [name, content, kind] = [0, 4, 8].map(|at| u32_at(rest, at) as usize);
            let at = 12 + name.next_multiple_of(4);
            assert_eq!((&rest[12..12 + name], kind), (&b"stapsdt\0"[..], 3));
            probes.push(probe(&rest[at..at + content], base, &sections));
            rest = &rest[at + content.next_multiple_of(4)..];
        }
    }
    probes
}

fn probe(content: &[u8], base: u64, sections: &[Section<'_>]) -> Probe {
    let [place, noted_base, semaphore] = [0, 8, 16].map(|at| u64_at(content, at));
    let mut texts = content[24..].split(|&byte| byte == 0).map(text);
    let mut next = || texts.next().expect("three texts").to_owned();
    let (provider, name, arguments) = (next(), next(), next());
    // Corrected by the distance that the base was moved.
    let address = place.wrapping_add(base.wrapping_sub(noted_base));
    let code = sections.iter().filter(|section| section.flags & ALLOCATED != 0);
    let code = code.filter(|section| section.kind != NO_BITS).find_map(|section| {
        let at = usize::try_from(address.checked_sub(section.address)?).ok()?;
        section.content.get(at..at + 4)?.try_into().ok()
    });
    let code = code.unwrap_or_else(|| panic!("{address:#x} is in no section"));
    Probe { provider, name, arguments, address, semaphore, code }
}

fn sections(file: &[u8]) -> Vec<Section<'_>> {
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "64 bits, little-endian");
    let [size, count, names] = [58, 60, 62].map(|at| usize::from(u16_at(file, at)));
    let header = |number: usize| &file[u64_at(file, 40) as usize + number * size..][..size];
    let content = |header: &[u8]| {
        let [at, len] = [24, 32].map(|at| u64_at(header, at) as usize);
        if u32_at(header, 4) == NO_BITS { &[] } else { &file[at..at + len] }
    };
    let names = content(header(names));
    let section = |number| {
        let header = header(number);
        let name = &names[u32_at(header, 0) as usize..];
        let name = name.split(|&byte| byte == 0).next().expect("one");
        Section {
            name: text(name),
            kind: u32_at(header, 4),
            flags: u64_at(header, 8),
            address: u64_at(header, 16),
            content: content(header),
        }
    };
    (0..count).map(section).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}
