//! A recording of updates and flushes.

mod replay;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use serde::Deserialize;

use super::designs::{NONE, Shape};

pub(super) use replay::cells;
pub(crate) use replay::write_totals;

/// The recording that is replayed unless another is named; `data/README.md` says what it is.
const SHIPPED: &[u8] = include_bytes!("../../../../data/kernel-build-eighth.smt.zst");
/// The value of the header's first field.
const FORMAT: &str = "submeter-trace-1";
const RECORD_BYTES: usize = 12;
/// The longest plausible header: 256 paths of 4 KiB are a megabyte.
const HEADER_BYTES_MAX: u32 = 4 << 20;

/// A recording, checked and split for replay.
#[derive(Debug)]
pub(crate) struct Trace {
    /// What was recorded, in the recorder's words.
    source: Option<String>,
    pub(super) shape: Shape,
    /// How many of the shape's groups the recording names; the others are ancestors that it does
    /// not name.
    pub(super) groups: usize,
    pub(super) metrics: Vec<String>,
    /// By CPU of the recording.
    pub(super) updates: Vec<Vec<Update>>,
    /// In the order of the recording.
    pub(super) flushes: Vec<Flush>,
}

/// One update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) group: u8,
    pub(super) metric: u8,
    pub(super) value: i32,
}

/// One flush of a subtree on all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    /// Which of the recording's CPUs flushes.
    pub(super) by: usize,
    pub(super) group: u32,
    /// How many updates of each CPU come before it.
    pub(super) after: Vec<usize>,
}

#[derive(Deserialize)]
struct Header {
    format: Option<String>,
    source: Option<String>,
    groups: Vec<String>,
    metrics: Vec<String>,
    records: u64,
}

/// One record as it is stored. Its time is ignored, because a replay runs as fast as possible.
struct Record {
    cpu: u8,
    kind: u8,
    group: u8,
    metric: u8,
    value: i32,
}

impl Trace {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// One line that names the file, the place in the decompressed data, and what to do.
    pub(crate) fn open(path: &Path) -> Result<Trace, String> {
        let name = path.display();
        let file = File::open(path)
            .map_err(|e| format!("cannot read {name}: {e}; name another file with --trace"))?;
        let decoder = StreamingDecoder::new(BufReader::new(file)).map_err(|e| {
            format!("{name} is not compressed with zstd ({e}); compress it: zstd {name}")
        })?;
        let mut bytes = Bytes { from: decoder, offset: 0 };
        read(&mut bytes)
            .map_err(|problem| format!("{name}, byte {} of its content: {problem}", bytes.offset))
    }

    /// Reads the recording that comes with the program.
    ///
    /// # Panics
    /// When it is incomplete. A test reads it.
    pub(super) fn shipped() -> Trace {
        let from = StreamingDecoder::new(SHIPPED).expect("compressed with zstd");
        let mut bytes = Bytes { from, offset: 0 };
        read(&mut bytes).unwrap_or_else(|e| panic!("the recording, byte {}: {e}", bytes.offset))
    }

    /// Returns one line that says what is replayed.
    pub(super) fn about(&self) -> String {
        let updates: usize = self.updates.iter().map(Vec::len).sum();
        let (cpus, flushes) = (self.updates.len(), self.flushes.len());
        let source = self.source.as_deref().unwrap_or("a recording without a source");
        format!("trace: {source}: {updates} updates and {flushes} flushes by {cpus} CPUs")
    }
}

/// A reader that knows its offset.
struct Bytes<R> {
    from: R,
    /// The start of the last item, read or not.
    offset: u64,
}

impl<R: Read> Bytes<R> {
    /// Fills `buffer` with `what`; returns the number of bytes read, which is smaller at the end of
    /// the content.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.offset += filled as u64;
                    return Err(format!(
                        "cannot be decompressed ({e}): truncated or damaged; copy it again"
                    ));
                }
            }
        }
        Ok(filled)
    }

    /// Like `fill`, but fewer bytes are an error.
    fn exactly(&mut self, buffer: &mut [u8], what: &str) -> Result<(), String> {
        let filled = self.fill(buffer)?;
        if filled == buffer.len() {
            return Ok(());
        }
        self.offset += filled as u64;
        Err(format!("ends within {what}: truncated; copy it again"))
    }
}

fn read(bytes: &mut Bytes<impl Read>) -> Result<Trace, String> {
    let mut length = [0; 4];
    bytes.exactly(&mut length, "the header's length")?;
    let length = u32::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        return Err(format!("a header of {length} bytes: this is not a {FORMAT} file"));
    }
    bytes.offset = 4;
    let mut header = vec![0; length as usize];
    bytes.exactly(&mut header, "the header")?;
    let header = header_of(&header)?;
    let shape = shape(&header.groups, header.metrics.len())?;
    bytes.offset += u64::from(length);
    let mut cutter = Splitter::new(header.groups.len(), header.metrics.len());
    for index in 0..header.records {
        let mut record = [0; RECORD_BYTES];
        bytes.exactly(&mut record, &format!("record {index} of {}", header.records))?;
        cutter.take(&Record::of(record)).map_err(|problem| {
            format!(
                "record {index}: {problem}; the recorder wrote a record that contradicts its header"
            )
        })?;
        bytes.offset += RECORD_BYTES as u64;
    }
    if bytes.fill(&mut [0])? != 0 {
        return Err(format!("more than the {} records that the header announces", header.records));
    }
    let (updates, flushes) = cutter.done();
    let groups = header.groups.len();
    Ok(Trace { source: header.source, shape, groups, metrics: header.metrics, updates, flushes })
}

fn header_of(bytes: &[u8]) -> Result<Header, String> {
    let header: Header = serde_json::from_slice(bytes)
        .map_err(|e| format!("this is not the header of a {FORMAT} file: {e}"))?;
    if let Some(other) = header.format.as_ref().filter(|format| *format != FORMAT) {
        return Err(format!("the format is {other:?}; only {FORMAT} can be read"));
    }
    for (what, count) in [("groups", header.groups.len()), ("metrics", header.metrics.len())] {
        if !(1..=256).contains(&count) {
            return Err(format!("the header has {count} {what}; records can name 1 to 256"));
        }
    }
    Ok(header)
}

/// Makes a tree from paths; ancestors that are not named come after the named groups.
fn shape(named: &[String], metrics: usize) -> Result<Shape, String> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    for (number, path) in named.iter().enumerate() {
        let well_formed = path == "/" || (path.starts_with('/') && !path.ends_with('/'));
        if !well_formed {
            return Err(format!("the group {path:?} is not an absolute path such as /build/fs"));
        }
        if numbers.insert(path, number as u32).is_some() {
            return Err(format!("the group {path:?} is named twice"));
        }
    }
    let mut paths = named.to_vec();
    for path in named {
        let mut at = path.as_str();
        while let Some(parent) = parent(at) {
            if !numbers.contains_key(parent) {
                numbers.insert(parent, paths.len() as u32);
                paths.push(parent.to_owned());
            }
            at = parent;
        }
    }
    let parents = paths.iter().map(|path| parent(path).map_or(NONE, |parent| numbers[parent]));
    Ok(Shape { parents: parents.collect(), metrics, paths })
}

/// Returns the path of the parent group.
fn parent(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    match (above, name) {
        ("", "") => None,
        ("", _) => Some("/"),
        _ => Some(above),
    }
}

impl Record {
    fn of(bytes: [u8; RECORD_BYTES]) -> Record {
        let [_, _, _, _, cpu, kind, group, metric, value @ ..] = bytes;
        Record { cpu, kind, group, metric, value: i32::from_le_bytes(value) }
    }
}

/// Splits records by CPU, and notes the updates before each flush.
struct Splitter {
    groups: usize,
    metrics: usize,
    /// The CPUs in the order of their first records.
    cpus: Vec<u8>,
    updates: Vec<Vec<Update>>,
    flushes: Vec<Flush>,
    /// By CPU: the group that it is flushing, and the CPU whose part it flushed last.
    flushing: Vec<Option<(u8, u8)>>,
    /// By CPU: whether a flush has begun and not ended.
    open: Vec<bool>,
}

impl Splitter {
    fn new(groups: usize, metrics: usize) -> Splitter {
        let (cpus, updates, flushes) = (Vec::new(), Vec::new(), Vec::new());
        Splitter { groups, metrics, cpus, updates, flushes, flushing: Vec::new(), open: Vec::new() }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        let &Record { group, metric, .. } = record;
        if usize::from(group) >= self.groups {
            return Err(format!("group {group} of {}", self.groups));
        }
        let cpu = self.cpu(record.cpu);
        match record.kind {
            0 if usize::from(metric) >= self.metrics => {
                return Err(format!("metric {metric} of {}", self.metrics));
            }
            0 => self.updates[cpu].push(Update { group, metric, value: record.value }),
            1 if self.open[cpu] => {
                return Err(format!("CPU {} begins a flush within a flush", record.cpu));
            }
            1 => self.begin(cpu, group, metric),
            2 if self.flushing[cpu] != Some((group, metric)) || !self.open[cpu] => {
                return Err(format!("CPU {} ends a flush that it has not begun", record.cpu));
            }
            2 => self.open[cpu] = false,
            kind => return Err(format!("kind {kind}, but only 0 to 2 are known")),
        }
        Ok(())
    }

    /// Linux flushes the CPUs one after the other, in the order of their numbers: consecutive
    /// begins by one CPU for the same group, with rising numbers, are one flush.
    fn begin(&mut self, cpu: usize, group: u8, flushed: u8) {
        let goes_on = self.flushing[cpu].is_some_and(|(g, last)| g == group && last < flushed);
        self.flushing[cpu] = Some((group, flushed));
        self.open[cpu] = true;
        if !goes_on {
            let after = self.updates.iter().map(Vec::len).collect();
            self.flushes.push(Flush { by: cpu, group: u32::from(group), after });
        }
    }

    /// Returns the index of a CPU, which is added on its first record.
    fn cpu(&mut self, number: u8) -> usize {
        if let Some(place) = self.cpus.iter().position(|cpu| *cpu == number) {
            return place;
        }
        self.cpus.push(number);
        self.updates.push(Vec::new());
        self.flushing.push(None);
        self.open.push(false);
        self.cpus.len() - 1
    }

    fn done(mut self) -> (Vec<Vec<Update>>, Vec<Flush>) {
        for flush in &mut self.flushes {
            // CPUs whose first record came later had made no updates by then.
            flush.after.resize(self.cpus.len(), 0);
        }
        (self.updates, self.flushes)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
