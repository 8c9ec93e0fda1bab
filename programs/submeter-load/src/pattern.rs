//! Self-verifying values: every byte follows from the key and the length.
//!
//! A value is a window into one pool of printable noise, at an offset given by a hash of the whole
//! key (including the tenant) and of the length. A reader that knows the key knows the value, so a
//! single comparison finds a changed byte, a truncation, and a value of another key or tenant;
//! making or checking a value costs a copy or a comparison instead of a checksum. Values of only a
//! few bytes may be equal by chance.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use super::tenants_file::VALUE_MAX;

/// The number of offsets of windows: a power of two, so that a mask selects one.
const OFFSETS: usize = 1 << 20;
/// The length of the longest decimal number in 64 bits.
const NUMBER_MAX: usize = 20;

/// The pool from which values are made and checked. All connections share one.
#[derive(Debug)]
pub struct Pattern {
    pool: Vec<u8>,
}

/// The properties of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hash of the whole key.
    pub hash: u64,
    /// Length of the value that a store writes.
    pub len: usize,
    /// Length of the piece that an append or prepend adds; 0 if the tenant does neither.
    pub piece: usize,
    /// Whether the value is a decimal number that incr and decr change.
    pub counter: bool,
}

impl Shape {
    /// Returns the flags that belong to the key.
    pub fn flags(self) -> u32 {
        (self.hash >> 32) as u32
    }
}

impl Default for Pattern {
    /// Fills the pool. Its seed is fixed, so that a later run can check what an earlier one stored.
    fn default() -> Pattern {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x5eed_0f7e_57ed_da7a);
        let mut pool = vec![0; OFFSETS + VALUE_MAX as usize];
        rng.fill_bytes(&mut pool);
        // 64 printable characters from '0' on, so that failures print readable text.
        pool.iter_mut().for_each(|byte| *byte = b'0' + (*byte & 63));
        Pattern { pool }
    }
}

impl Pattern {
    /// Appends the value that a store of the key writes.
    pub fn write(&self, shape: Shape, out: &mut Vec<u8>) {
        if shape.counter {
            out.extend_from_slice(number(shape).as_bytes());
        } else {
            out.extend_from_slice(self.window(shape.hash, shape.len));
        }
    }

    /// Appends the piece that an append or prepend of the key writes.
    pub fn write_piece(&self, shape: Shape, out: &mut Vec<u8>) {
        out.extend_from_slice(self.window(shape.hash, shape.piece));
    }

    /// Returns the length of the value that [`write`](Self::write) makes.
    pub fn len(shape: Shape) -> usize {
        if shape.counter { number(shape).len() } else { shape.len }
    }

    /// Checks a value that was read; an error says what is wrong with it. A value of another length
    /// is also correct if all of it follows from that length: a run with another `--data-size`
    /// stored it.
    pub fn check(&self, shape: Shape, got: &[u8]) -> Result<(), String> {
        if shape.counter {
            return check_number(got);
        }
        let mut rest = got;
        if shape.piece > 0 {
            let piece = self.window(shape.hash, shape.piece);
            while rest.len() >= shape.len + piece.len() && rest.starts_with(piece) {
                rest = &rest[piece.len()..];
            }
            while rest.len() >= shape.len + piece.len() && rest.ends_with(piece) {
                rest = &rest[..rest.len() - piece.len()];
            }
        }
        let expected = self.window(shape.hash, shape.len);
        let is_of_its_length = || {
            (1..=VALUE_MAX as usize).contains(&rest.len())
                && rest == self.window(shape.hash, rest.len())
        };
        if rest == expected || is_of_its_length() {
            return Ok(());
        }
        let at = expected.iter().zip(rest).position(|(a, b)| a != b);
        let at = at.unwrap_or(expected.len().min(rest.len()));
        Err(format!(
            "expected {} bytes {}, got {} bytes {}: they differ from byte {at} on, {} against {}",
            expected.len(),
            excerpt(expected, 0),
            rest.len(),
            excerpt(rest, 0),
            excerpt(expected, at),
            excerpt(rest, at),
        ))
    }

    fn window(&self, hash: u64, len: usize) -> &[u8] {
        let offset = mix(hash ^ len as u64) as usize & (OFFSETS - 1);
        &self.pool[offset..offset + len]
    }
}

/// Spreads a number's bits over 64 (the finalizer of SplitMix64).
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes the common prefix of a tenant's keys (FNV-1a). std's hasher may change with the compiler,
/// and values must outlive a build.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns ten digits, the first not 0, so that incr cannot wrap and decr cannot reach 0 in a run.
fn number(shape: Shape) -> String {
    format!("{}", 1_000_000_000 + mix(shape.hash) % 8_000_000_000)
}

/// Checks a number that incr and decr have changed. memcached pads with blanks when decr loses a
/// digit.
fn check_number(got: &[u8]) -> Result<(), String> {
    let digits = got.trim_ascii_end();
    let ok = (1..=NUMBER_MAX).contains(&got.len())
        && !digits.is_empty()
        && digits.iter().all(u8::is_ascii_digit);
    if ok { Ok(()) } else { Err(format!("expected a number, got {}", excerpt(got, 0))) }
}

/// A few bytes in printable form.
pub fn excerpt(bytes: &[u8], from: usize) -> String {
    const LEN: usize = 24;
    let end = bytes.len().min(from + LEN);
    let more = if end < bytes.len() { "…" } else { "" };
    format!("\"{}{more}\"", bytes[from.min(end)..end].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(hash: u64, len: usize) -> Shape {
        Shape { hash, len, piece: 0, counter: false }
    }

    fn written(pattern: &Pattern, shape: Shape) -> Vec<u8> {
        let mut out = Vec::new();
        pattern.write(shape, &mut out);
        assert_eq!(out.len(), Pattern::len(shape));
        out
    }

    #[test]
    fn every_change_truncation_or_mix_up_is_found() {
        let pattern = Pattern::default();
        let value = written(&pattern, shape(7, 300));
        assert_eq!(pattern.check(shape(7, 300), &value), Ok(()));
        for at in 0..value.len() {
            let mut bad = value.clone();
            bad[at] ^= 1;
            let error = pattern.check(shape(7, 300), &bad).expect_err("changed");
            assert!(error.contains(&format!("byte {at} on")), "{error}");
            assert!(pattern.check(shape(7, 300), &value[..at]).is_err(), "cut at {at}");
        }
        for other in 0..1000 {
            assert!(other == 7 || pattern.check(shape(other, 300), &value).is_err());
        }
        assert!(pattern.check(shape(7, 300), &[&value[..], b"x"].concat()).is_err());
    }

    /// What a run with another size has stored is correct, and nothing else of that length is.
    #[test]
    fn values_of_another_run_are_recognised() {
        let pattern = Pattern::default();
        let value = written(&pattern, shape(7, 100));
        assert_eq!(pattern.check(shape(7, 300), &value), Ok(()));
        assert!(pattern.check(shape(8, 300), &value).is_err(), "another key's");
        assert!(pattern.check(shape(7, 300), &value[..99]).is_err(), "cut");
        assert!(pattern.check(shape(7, 300), b"").is_err(), "nothing");
        assert!(pattern.check(shape(7, 300), &vec![b'0'; VALUE_MAX as usize + 1]).is_err());
    }

    #[test]
    fn pieces_are_accepted_only_around_the_value() {
        let pattern = Pattern::default();
        let shape = Shape { hash: 99, len: 160, piece: 20, counter: false };
        let base = written(&pattern, shape);
        let mut piece = Vec::new();
        pattern.write_piece(shape, &mut piece);
        for (before, after) in [(0, 0), (1, 0), (0, 3), (5, 5)] {
            let value = [piece.repeat(before), base.clone(), piece.repeat(after)].concat();
            assert_eq!(pattern.check(shape, &value), Ok(()), "{before}, {after}");
            assert!(pattern.check(shape, &value[1..]).is_err());
            assert!(pattern.check(shape, &value[..value.len() - 1]).is_err());
        }
        let inside = [&base[..80], &piece[..], &base[80..]].concat();
        assert!(pattern.check(shape, &inside).is_err());
        assert!(pattern.check(shape, &piece.repeat(9)).is_err(), "the base is missing");
    }

    #[test]
    fn counters_are_numbers() {
        let pattern = Pattern::default();
        let shape = Shape { hash: 3, len: 8, piece: 0, counter: true };
        assert_eq!(pattern.check(shape, &written(&pattern, shape)), Ok(()));
        assert_eq!(pattern.check(shape, b"18446744073709551615"), Ok(()));
        assert_eq!(pattern.check(shape, b"99  "), Ok(()));
        for bad in [&b""[..], b" ", b"12a", b"-1", b"1 2", b"184467440737095516150"] {
            assert!(pattern.check(shape, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_longest_value_fits_the_pool() {
        let pattern = Pattern::default();
        for hash in 0..64 {
            let shape = shape(hash, VALUE_MAX as usize);
            assert_eq!(pattern.check(shape, &written(&pattern, shape)), Ok(()));
        }
    }
}
