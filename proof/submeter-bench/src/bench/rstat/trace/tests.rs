//! Tests of reading and replaying, with recordings made by the tests.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

/// One record: CPU, kind, group, metric, value.
type Row = (u8, u8, u8, u8, i32);

const HEADER: &str = r#"{"format":"submeter-trace-1","groups":["/a","/a/b/c","/"],"metrics":["x","y"],"records":RECORDS}"#;

/// The content of a recording.
fn content(header: &str, rows: &[Row]) -> Vec<u8> {
    let header = header.replace("RECORDS", &rows.len().to_string());
    let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for &(cpu, kind, group, metric, value) in rows {
        bytes.extend(7_u32.to_le_bytes());
        bytes.extend([cpu, kind, group, metric]);
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

fn read_bytes(bytes: &[u8]) -> Result<Trace, String> {
    let mut bytes = Bytes { from: bytes, offset: 0 };
    read(&mut bytes).map_err(|problem| format!("{}: {problem}", bytes.offset))
}

/// Two CPUs, 3 and 9; two flushes, the first of them in two parts.
const ROWS: [Row; 11] = [
    (3, 0, 0, 0, 5),
    (9, 0, 1, 1, -2),
    (9, 1, 2, 0, 0),
    (3, 0, 1, 0, 7),
    (9, 2, 2, 0, 0),
    (9, 1, 2, 1, 0),
    (9, 2, 2, 1, 0),
    (3, 1, 1, 0, 0),
    (3, 2, 1, 0, 0),
    (9, 0, 0, 1, 1),
    (9, 0, 2, 1, 100),
];

/// Records are split by CPU and flushes keep their position.
#[test]
fn records_are_split_by_cpu_and_flushes_stay() {
    let trace = read_bytes(&content(HEADER, &ROWS)).expect("well-formed");
    assert_eq!(trace.groups, 3);
    assert_eq!(trace.shape.paths, ["/a", "/a/b/c", "/", "/a/b"]);
    assert_eq!(trace.shape.parents, [2, 3, NONE, 0]);
    assert_eq!(trace.updates.iter().map(Vec::len).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(trace.updates[1][0], Update { group: 1, metric: 1, value: -2 });
    let flush = |by, group, after: [usize; 2]| Flush { by, group, after: after.to_vec() };
    assert_eq!(trace.flushes, [flush(1, 2, [1, 1]), flush(0, 1, [2, 1])]);
}

#[test]
fn a_groups_second_flush_is_a_new_flush() {
    let begin = |cpu| (3, 1, 0, cpu, 0);
    let end = |cpu| (3, 2, 0, cpu, 0);
    let rows = [begin(0), end(0), begin(1), end(1), begin(0), end(0), begin(0), end(0)];
    assert_eq!(read_bytes(&content(HEADER, &rows)).expect("well-formed").flushes.len(), 3);
}

#[test]
fn errors_name_the_problem_and_its_offset() {
    let header = content(HEADER, &[]).len();
    let good = content(HEADER, &ROWS);
    let of = |rows: &[Row]| content(HEADER, rows);
    for (bytes, parts) in [
        (vec![], ["0: ", "truncated"]),
        (vec![1, 0], ["2: ", "truncated"]),
        (vec![0xff; 40], ["0: ", "not a submeter-trace-1 file"]),
        (good[..60].to_vec(), ["60: ", "the header: truncated"]),
        (content("[]", &[]), ["4: ", "not the header of a"]),
        (content(r#"{"groups":[],"metrics":["x"],"records":0}"#, &[]), ["4: ", "0 groups"]),
        (content(&HEADER.replace("trace-1", "trace-2"), &[]), ["4: ", "\"submeter-trace-2\""]),
        (content(&HEADER.replace("/a/b/c", "a"), &[]), ["4: ", "\"a\" is not an absolute path"]),
        (content(&HEADER.replace("/a/b/c", "/a"), &[]), ["4: ", "\"/a\" is named twice"]),
        (good[..good.len() - 5].to_vec(), ["record 10 of 11", "truncated"]),
        ([good.clone(), vec![0]].concat(), ["more than the 11 records", ""]),
        (of(&[(0, 0, 3, 0, 1)]), [&format!("{header}: record 0"), "group 3 of 3"]),
        (of(&[(0, 0, 0, 2, 1)]), ["record 0", "metric 2 of 2"]),
        (of(&[(0, 0, 0, 0, 1), (0, 3, 0, 0, 1)]), ["record 1", "kind 3"]),
        (of(&[(0, 2, 0, 0, 0)]), ["record 0", "CPU 0 ends a flush that it has not begun"]),
        (of(&[(0, 1, 0, 0, 0), (0, 1, 0, 1, 0)]), ["record 1", "within a flush"]),
    ] {
        let error = read_bytes(&bytes).expect_err("refused");
        assert!(parts.iter().all(|part| error.contains(part)), "{error} has {parts:?}");
    }
}

#[test]
fn the_programs_own_recording_is_whole() {
    let trace = Trace::shipped();
    let updates: usize = trace.updates.iter().map(Vec::len).sum();
    assert_eq!((updates, trace.flushes.len(), trace.updates.len()), (352_931, 9, 2));
    assert_eq!((trace.groups, trace.metrics.len()), (11, 23));
    let about = trace.about();
    assert!(about.contains("kernel build") && about.contains("352931 updates"), "{about}");
}

#[test]
fn files_are_named_and_must_be_compressed() {
    let path = std::env::temp_dir().join(format!("submeter-trace-{}", std::process::id()));
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("the temporary directory is writable");
        Trace::open(&path)
    };
    let whole = compress_to_vec(&content(HEADER, &ROWS)[..], CompressionLevel::Fastest);
    assert_eq!(open(&whole).expect("well-formed").flushes.len(), 2);
    let name = path.display().to_string();
    for (bytes, part) in [
        (&content(HEADER, &ROWS)[..], "is not compressed with zstd"),
        (&whole[..whole.len() - 9], "truncated"),
    ] {
        let error = open(bytes).expect_err("refused");
        assert!(error.contains(&name) && error.contains(part), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    std::fs::remove_file(&path).expect("it is there");
    assert!(Trace::open(&path).expect_err("gone").contains("--trace"));
}
