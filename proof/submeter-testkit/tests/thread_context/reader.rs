//! A reader of thread contexts, written only from the merged text of OTEP 4947 and OTEP 4719: it
//! shares no code with what publishes them. It reads the memory of another process, and the ELF
//! file of its program.

use std::fs;
use std::io;
use std::ops::Range;

/// What a process announced.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Announced {
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) schema_version: String,
    pub(crate) keys: Vec<String>,
}

/// What a thread published.
#[derive(Debug, PartialEq)]
pub(crate) struct Context {
    pub(crate) trace: [u8; 24],
    pub(crate) flags: u8,
    pub(crate) len: usize,
    /// Attributes by the number of the key.
    pub(crate) attributes: Vec<(u8, String)>,
}

/// Another process.
pub(crate) struct Process(pub(crate) i32);

/// One of its threads, stopped until the drop.
pub(crate) struct Stopped<'a> {
    process: &'a Process,
    thread: i32,
}

impl Process {
    /// Follows the "Reading Protocol" of OTEP 4719; `None` if no mapping has the name.
    pub(crate) fn announced(&self) -> Option<Announced> {
        const NAMES: [&str; 3] = ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"];
        let (range, _) = self
            .maps()
            .into_iter()
            .find(|(_, name)| NAMES.iter().any(|wanted| name.starts_with(wanted)))?;
        let header = self.read(range.start, 32);
        assert_eq!(&header[..8], b"OTEL_CTX");
        assert_eq!(u32_at(&header, 8), 2, "the version");
        let published_ns = u64_at(&header, 16);
        assert_ne!(published_ns, 0, "the context is complete");
        let payload = self.read(u64_at(&header, 24) as usize, u32_at(&header, 12) as usize);
        assert_eq!(u64_at(&self.read(range.start, 32), 16), published_ns, "nothing changes it");
        let mut announced = Announced::default();
        for (field, content) in fields(&payload) {
            match field {
                1 => {
                    for (field, attribute) in fields(content) {
                        assert_eq!(field, 1, "attributes of the resource");
                        let (key, value) = key_value(attribute);
                        announced.resource.push((key, string_value(value)));
                    }
                }
                2 => {
                    let (key, value) = key_value(content);
                    match key.as_str() {
                        "threadlocal.schema_version" => {
                            announced.schema_version = string_value(value);
                        }
                        "threadlocal.attribute_key_map" => {
                            let array = only(value, 5);
                            announced.keys =
                                fields(array).map(|(_, value)| string_value(value)).collect();
                        }
                        other => panic!("unexpected: {other}"),
                    }
                }
                other => panic!("no such field of a ProcessContext: {other}"),
            }
        }
        Some(announced)
    }

    /// Stops a thread; `None` if the system forbids it.
    pub(crate) fn stop(&self, thread: i32) -> Option<Stopped<'_>> {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no memory of ours is given to the call.
        let result = unsafe { libc::ptrace(libc::PTRACE_ATTACH, thread, nothing, nothing) };
        if result != 0 {
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            eprintln!("skipped: ptrace: {error}");
            return None;
        }
        let mut status = 0;
        // SAFETY: `status` is live.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert_eq!(waited, thread);
        assert!(libc::WIFSTOPPED(status), "{status}");
        Some(Stopped { process: self, thread })
    }

    /// Returns each mapping with its name.
    fn maps(&self) -> Vec<(Range<usize>, String)> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.0)).expect("it runs");
        let parse = |line: &str| {
            let range = line.split(' ').next()?;
            let (start, end) = range.split_once('-')?;
            let hex = |digits| usize::from_str_radix(digits, 16).ok();
            let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim_start();
            Some((hex(start)?..hex(end)?, name.to_owned()))
        };
        maps.lines().map(|line| parse(line).expect("a mapping")).collect()
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        // SAFETY: `local` is `len` bytes that live; what is at `remote` is the other process's.
        let read =
            unsafe { libc::process_vm_readv(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        let error = io::Error::last_os_error();
        assert_eq!(read, len as isize, "{len} bytes at {at:#x}: {error}");
        bytes
    }

    /// Returns the symbol's distance from the thread pointer. This is the access that a linker
    /// makes of a TLS descriptor in a program, whose block comes first.
    fn distance(&self) -> isize {
        let program = fs::read(format!("/proc/{}/exe", self.0)).expect("it runs");
        let symbol = symbol(&program, "otel_thread_ctx_v1").expect("exported by the program");
        let (len, align) = tls_segment(&program);
        if cfg!(target_arch = "x86_64") {
            // Variant II of the ELF handling of TLS: the block ends at the thread pointer.
            symbol as isize - len.next_multiple_of(align) as isize
        } else {
            // Variant I: it begins after two words.
            (16usize.next_multiple_of(align) + symbol) as isize
        }
    }
}

impl Stopped<'_> {
    /// Follows "Thread Sampling" of OTEP 4947; `None` if the pointer is null or the record is not
    /// valid.
    pub(crate) fn context(&self) -> Option<Context> {
        let variable = self.thread_pointer().wrapping_add_signed(self.process.distance());
        let record = u64_at(&self.process.read(variable, 8), 0) as usize;
        if record == 0 {
            return None;
        }
        assert_eq!(record % 2, 0, "the record is aligned");
        let header = self.process.read(record, 28);
        assert_eq!(header[24], 1, "the record is valid");
        let len = usize::from(u16::from_ne_bytes([header[26], header[27]]));
        let data = self.process.read(record + 28, len);
        let mut rest = &data[..];
        let mut attributes = Vec::new();
        while let [key, len, values @ ..] = rest {
            let (value, next) = values.split_at_checked(usize::from(*len)).expect("complete");
            attributes.push((*key, String::from_utf8(value.to_vec()).expect("UTF-8")));
            rest = next;
        }
        assert!(rest.is_empty(), "attributes fill what is theirs");
        let trace = header[..24].try_into().expect("24 bytes");
        Some(Context { trace, flags: header[25], len: 28 + len, attributes })
    }

    #[cfg(target_arch = "x86_64")]
    fn thread_pointer(&self) -> usize {
        // SAFETY: all-zero bytes are a value of it: it is numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let nothing = std::ptr::null_mut::<libc::c_void>();
        let into = &raw mut registers;
        // SAFETY: `registers` is live, and as large as the call writes.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.thread, nothing, into) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        registers.fs_base as usize
    }

    #[cfg(target_arch = "aarch64")]
    fn thread_pointer(&self) -> usize {
        const NT_ARM_TLS: usize = 0x401;
        let mut pointer = 0usize;
        let mut into = libc::iovec { iov_base: (&raw mut pointer).cast(), iov_len: 8 };
        let into = &raw mut into;
        // SAFETY: `pointer` is live, and as large as `into` says.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, self.thread, NT_ARM_TLS, into) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pointer
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no memory of ours is given to the call.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, nothing, nothing) };
    }
}

// ---- ELF, 64 bits, little-endian --------------------------------------------------------------

/// Returns the value of a TLS symbol of the dynamic symbol table: its offset in the block.
fn symbol(elf: &[u8], name: &str) -> Option<usize> {
    const SHT_DYNSYM: u32 = 11;
    const STT_TLS: u8 = 6;
    const SYMBOL_LEN: usize = 24;
    let (table, entry) = (u64_at(elf, 40) as usize, usize::from(u16_at(elf, 58)));
    let sections = usize::from(u16_at(elf, 60));
    let section = |index: usize| &elf[table + index * entry..][..entry];
    let content =
        |section: &[u8]| &elf[u64_at(section, 24) as usize..][..u64_at(section, 32) as usize];
    let dynamic = (0..sections).map(section).find(|section| u32_at(section, 4) == SHT_DYNSYM)?;
    let names = content(section(u32_at(dynamic, 40) as usize));
    content(dynamic)
        .chunks_exact(SYMBOL_LEN)
        .find(|symbol| {
            let own = names[u32_at(symbol, 0) as usize..].split(|&byte| byte == 0).next();
            symbol[4] & 0xf == STT_TLS && u16_at(symbol, 6) != 0 && own == Some(name.as_bytes())
        })
        .map(|symbol| u64_at(symbol, 8) as usize)
}

/// Returns the length and the alignment of the TLS block.
fn tls_segment(elf: &[u8]) -> (usize, usize) {
    const PT_TLS: u32 = 7;
    let (table, entry) = (u64_at(elf, 32) as usize, usize::from(u16_at(elf, 54)));
    let segments = (0..usize::from(u16_at(elf, 56))).map(|i| &elf[table + i * entry..][..entry]);
    let tls = segments.into_iter().find(|segment| u32_at(segment, 0) == PT_TLS).expect("TLS");
    (u64_at(tls, 40) as usize, u64_at(tls, 48) as usize)
}

// ---- protocol buffers ------------------------------------------------------------------------

/// Returns the fields of a message, all of which have a length.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let tag = varint(&mut message);
        assert_eq!(tag & 7, 2, "a field with a length");
        let len = varint(&mut message) as usize;
        let content = message.split_off(..len).expect("complete");
        Some((tag >> 3, content))
    })
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().expect("complete");
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn only(message: &[u8], field: u64) -> &[u8] {
    let all: Vec<_> = fields(message).collect();
    let [(number, content)] = all[..] else { panic!("one field: {all:?}") };
    assert_eq!(number, field);
    content
}

fn key_value(message: &[u8]) -> (String, &[u8]) {
    let all: Vec<_> = fields(message).collect();
    let [(1, key), (2, value)] = all[..] else { panic!("a key and a value: {all:?}") };
    (String::from_utf8(key.to_vec()).expect("UTF-8"), value)
}

fn string_value(any: &[u8]) -> String {
    String::from_utf8(only(any, 1).to_vec()).expect("UTF-8")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
