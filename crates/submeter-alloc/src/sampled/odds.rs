//! Which bytes are sampled, and what a sampled block stands for.
//!
//! Each allocated byte is a *place* with the same small chance, independently of all others; a
//! block is sampled if one of its bytes is a place. A block of s bytes is therefore sampled with
//! the chance p = 1 − e^(−s/R), where R is [`INTERVAL`], and stands for w = s/p bytes. On average
//! over sampled and unsampled blocks that is its own size. The variance is estimated by (1 − p)·w²
//! for each sample, which for blocks below [`EXACT`] is R² less one part in 700, so the standard
//! error of a sum over n samples is R·√n. Because n itself is random, [`error`] counts one more:
//! all that is known of a group without samples is that it is small.

/// Bytes for each place, on average.
pub(super) const INTERVAL: u64 = 64 << 10;

/// Blocks of this size and more are known instead of sampled.
///
/// The interval itself would also work, but then four out of ten blocks of half its size would go
/// to slots that round them up. From this size on, the cost of an owner is negligible beside what
/// such a block costs anyway. Below it, at most one block in eight has a slot, which is why slots
/// may be powers of two.
pub(super) const EXACT: usize = 8 << 10;

/// Returns what a sampled block stands for: s/(1 − e^(−s/R)), by the first terms of its series.
/// The next one is less than a thirtieth of a byte.
pub(super) const fn weight(size: usize) -> u64 {
    let size = size as u64;
    INTERVAL + size / 2 + size * size / (12 * INTERVAL)
}

/// Returns the standard error of a sum over samples.
pub(super) fn error(samples: f64) -> f64 {
    INTERVAL as f64 * (samples + 1.0).sqrt()
}

/// Returns how many bytes come before the next place. `random` has any of 2^64 values, all equally
/// likely.
pub(super) fn next_place(random: u64) -> i64 {
    // 53 bits, and not 0.
    let chance = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    // The chance of n bytes or more is e^(-n/R).
    (-(INTERVAL as f64) * chance.ln()) as i64
}

/// Returns whether a sampled block that shrinks is still one: with the chance that a block of its
/// new size is sampled, given that one of its old size was.
pub(super) fn remains(random: u64, old: usize, new: usize) -> bool {
    // The chances are s/w.
    let (old, new) = (old as f64 / weight(old) as f64, new as f64 / weight(new) as f64);
    is_within(random, new / old)
}

/// Returns whether a block is sampled of which only the size is known.
pub(super) fn is_sampled(random: u64, size: usize) -> bool {
    is_within(random, size as f64 / weight(size) as f64)
}

fn is_within(random: u64, chance: f64) -> bool {
    ((random >> 11) as f64) < chance * (1_u64 << 53) as f64
}

/// Returns the next number of an endless sequence (splitmix64), whatever it starts with.
pub(super) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: f64 = INTERVAL as f64;

    fn chance(size: usize) -> f64 {
        -(-(size as f64) / R).exp_m1()
    }

    /// Takes a block's bytes off, and returns whether it is sampled.
    fn allocate(left: &mut i64, size: usize, state: &mut u64) -> bool {
        *left -= size as i64;
        if *left < 0 {
            *left = next_place(random(state));
            return true;
        }
        false
    }

    #[test]
    fn a_weight_is_the_size_over_the_chance() {
        for size in (1..64).chain((1..128).map(|n| n * 64)).chain([EXACT - 1]) {
            let (right, weight) = (size as f64 / chance(size), weight(size) as f64);
            assert!((right - weight).abs() < 1.6, "{size}: {weight} for {right}");
        }
    }

    #[test]
    fn the_error_is_that_of_the_squared_weights() {
        for size in [1, 64, 1_000, EXACT - 1] {
            let (p, w) = (chance(size), weight(size) as f64);
            let part = (1.0 - p) * w * w / (R * R);
            assert!((0.9985..1.0001).contains(&part), "{size}: {part}");
        }
    }

    #[test]
    fn a_place_is_never_behind() {
        assert_eq!(next_place(u64::MAX), 0);
        // The furthest: 53 bits of luck.
        assert_eq!(next_place(0), (R * 53.0 * 2_f64.ln()) as i64);
    }

    #[test]
    fn blocks_are_sampled_with_their_chance() {
        let blocks = if cfg!(miri) { 3_000 } else { 300_000 };
        for size in [1_500, 4_000, EXACT - 1] {
            let mut state = size as u64;
            let mut left = next_place(random(&mut state));
            let met = (0..blocks).filter(|_| allocate(&mut left, size, &mut state)).count();
            let p = chance(size);
            let (met, expected) = (met as f64, f64::from(blocks) * p);
            let sigma = (expected * (1.0 - p)).sqrt();
            assert!((met - expected).abs() < 4.0 * sigma, "{size}: {met} of {expected}±{sigma}");
        }
    }

    /// A block that grows in steps and shrinks is sampled like one that always had its last size.
    #[test]
    fn a_resized_block_has_its_last_sizes_chance() {
        let blocks = if cfg!(miri) { 1_000 } else { 200_000 };
        let mut state = 5;
        let mut left = next_place(random(&mut state));
        let mut met = 0;
        for _ in 0..blocks {
            let mut sampled = allocate(&mut left, 1_000, &mut state);
            for more in [2_000, 5_000] {
                // A sampled block gets the bytes it grows by without a check.
                sampled = sampled || allocate(&mut left, more, &mut state);
            }
            sampled = sampled && remains(random(&mut state), 8_000, 3_000);
            met += i32::from(sampled);
        }
        let p = chance(3_000);
        let expected = f64::from(blocks) * p;
        let sigma = (expected * (1.0 - p)).sqrt();
        let met = f64::from(met);
        assert!((met - expected).abs() < 4.0 * sigma, "{met} of {expected} ± {sigma}");
    }

    /// At least 19 of 20 estimates are within so many standard errors, the documents say.
    const ERRORS: f64 = 3.0;

    /// Returns the chance that the estimate for a number of blocks of one size is within `errors`
    /// standard errors: the sum over all numbers of samples for which it is.
    fn coverage(blocks: usize, size: usize, errors: f64) -> f64 {
        let (p, truth, w) = (chance(size), (blocks * size) as f64, weight(size) as f64);
        // The chance of no sample, then of one more each time.
        let mut this = (-truth / R).exp();
        let (mut sum, mut rest) = (0.0, 1.0);
        for samples in 0..=blocks {
            let n = samples as f64;
            sum += if (n * w - truth).abs() <= errors * error(n) { this } else { 0.0 };
            rest -= this;
            if rest < 1e-9 {
                break;
            }
            this *= (blocks as f64 - n) / (n + 1.0) * p / (1.0 - p);
        }
        sum
    }

    /// The worst case is a heap of just over three intervals: it has no sample with the chance
    /// e^-3, 4.98 %. A factor of two digits cannot be smaller.
    #[test]
    fn at_any_size_19_of_20_are_within_three_errors() {
        let worst = |errors| {
            // From the smallest tenant to one that is nearly normally distributed.
            let mut worst = (1.0_f64, 0, 0);
            for (size, step) in [(64, 8), (1_000, 1), (4_000, 1), (EXACT - 1, 1)] {
                let blocks = if cfg!(miri) { 4 } else { 60 } * INTERVAL as usize / size;
                for blocks in (1..blocks).step_by(if cfg!(miri) { 50 } else { step }) {
                    let next = (coverage(blocks, size, errors), blocks, size);
                    worst = if next.0 < worst.0 { next } else { worst };
                }
            }
            worst
        };
        let (right, wrong) = (worst(ERRORS), worst(ERRORS - 0.1));
        assert!(right.0 >= 0.95, "{right:?}");
        assert!(wrong.0 < 0.95 || cfg!(miri), "{wrong:?}");
        assert!(coverage(200_000, 64, ERRORS) > 0.995, "of a large tenant");
    }

    /// Of 1,000 heaps, each estimated once: the mean, and how often the true value is within three
    /// standard errors. Of 1,000, 997 are expected there, give or take 2.
    #[test]
    fn the_estimate_is_unbiased_within_its_interval() {
        let (runs, blocks) = if cfg!(miri) { (5, 200) } else { (1_000, 40_000) };
        let (mut within, mut sum, mut truth_sum) = (0, 0.0, 0.0);
        for run in 0..runs {
            let mut state = run;
            let mut left = next_place(random(&mut state));
            let (mut estimate, mut samples, mut truth) = (0, 0_u32, 0);
            for _ in 0..blocks {
                // Sizes of all magnitudes; half of the blocks are freed again.
                let any = random(&mut state);
                let size = 1 + ((any as usize % EXACT) >> (any >> 32 & 7));
                let sampled = size < EXACT && allocate(&mut left, size, &mut state);
                if any >> 40 & 1 == 0 {
                    truth += size as u64;
                    estimate += if sampled { weight(size) } else { 0 };
                    samples += u32::from(sampled);
                }
            }
            within +=
                i32::from((estimate as f64 - truth as f64).abs() <= ERRORS * error(samples.into()));
            sum += estimate as f64;
            truth_sum += truth as f64;
        }
        if cfg!(miri) {
            return;
        }
        assert!(within >= 950, "{within} of 1,000 are within their interval");
        assert!((sum / truth_sum - 1.0).abs() < 0.01, "{sum} for {truth_sum}");
    }
}
