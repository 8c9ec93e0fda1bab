//! Runs every target on its kept corpus, so that no bug that fuzzing found comes back.

use std::path::Path;

/// Runs `target` on each file of its corpus. Returns how many there are.
fn all_of(name: &str, target: fn(&[u8])) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = std::fs::read_dir(&directory).expect("the corpus is kept");
    let mut count = 0;
    for file in files {
        let path = file.expect("readable").path();
        let bytes = std::fs::read(&path).expect("readable");
        println!("{}", path.display());
        target(&bytes);
        // Each prefix is another input.
        (0..bytes.len().min(512)).for_each(|len| target(&bytes[..len]));
        count += 1;
    }
    count
}

#[test]
fn requests_are_the_same_however_bytes_arrive() {
    assert!(all_of("protocol", submeter_fuzz::protocol) > 0);
}

#[test]
fn a_path_makes_groups_or_is_refused_with_why() {
    assert!(all_of("path", submeter_fuzz::path) > 0);
}

#[test]
fn a_file_of_limits_is_read_or_named() {
    assert!(all_of("limits", submeter_fuzz::limits) > 0);
}

#[test]
fn a_record_is_read_or_named() {
    assert!(all_of("record", submeter_fuzz::record) > 0);
}
