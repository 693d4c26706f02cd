//! Hashes of blocks of tokens, as workers publish them.
//!
//! The hash of a block is `XXH3-64` of its tokens, seeded by the adapter and the salt; `dynamo-kv-hashing` holds the
//! formulas. It knows nothing of the blocks of speculative (eagle) workers.

use std::time::Instant;

use continuum_fleet::view::Blocks;
use dynamo_kv_hashing::{compute_block_hash, compute_salt_hash};

use crate::limits::BLOCKS_BETWEEN_LOOKS;

/// The time was over before all blocks were hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

/// Local hashes of all full blocks of `size` tokens; `None` for a block size that has no blocks.
#[must_use]
pub fn blocks(tokens: &[u32], size: u32, adapter: Option<&str>, salt: Option<&str>) -> Option<Vec<u64>> {
    let kind = Blocks { size, ahead: false };
    hashes(tokens, kind, adapter, salt, None).ok().flatten()
}

/// Local hashes of all full blocks of this kind, as far as there is time; `None` for a block size that has no blocks.
pub(crate) fn hashes(
    tokens: &[u32],
    kind: Blocks,
    adapter: Option<&str>,
    salt: Option<&str>,
    until: Option<Instant>,
) -> Result<Option<Vec<u64>>, Late> {
    let (Ok(size), Ok(seed)) = (usize::try_from(kind.size), compute_salt_hash(salt, adapter)) else {
        return Ok(None);
    };
    if size == 0 {
        return Ok(None);
    }
    // A speculative worker hashes a block together with the token that follows it.
    let Some(window) = size.checked_add(usize::from(kind.ahead)) else {
        return Ok(None);
    };
    let mut hashes = Vec::with_capacity(tokens.len() / size);
    let mut bytes = Vec::new();
    let mut start = 0_usize;
    while let Some(block) = start.checked_add(window).and_then(|end| tokens.get(start..end)) {
        if hashes.len() % BLOCKS_BETWEEN_LOOKS == 0 && until.is_some_and(|until| Instant::now() >= until) {
            return Err(Late);
        }
        bytes.clear();
        bytes.extend(block.iter().flat_map(|token| token.to_le_bytes()));
        hashes.push(compute_block_hash(&bytes, seed));
        start = start.saturating_add(size);
    }
    Ok(Some(hashes))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn eagle_blocks(
        tokens: &[u32],
        size: u32,
        adapter: Option<&str>,
        salt: Option<&str>,
    ) -> Option<Vec<u64>> {
        let kind = Blocks { size, ahead: true };
        hashes(tokens, kind, adapter, salt, None).unwrap()
    }

    /// The library hashes a whole request only; each of its hashes is the same.
    #[test]
    fn hashes_are_those_of_the_library() {
        let tokens: Vec<u32> = (0..1000_u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
        for (adapter, salt) in [
            (None, None),
            (Some("a"), None),
            (None, Some("s")),
            (Some("a"), Some("s")),
        ] {
            let request = dynamo_kv_hashing::Request::builder()
                .tokens(tokens.clone())
                .lora_name(adapter.map(str::to_owned))
                .salt(salt.map(str::to_owned))
                .build()
                .unwrap();
            for size in [1, 7, 16, 512, 1001] {
                assert_eq!(
                    blocks(&tokens, size, adapter, salt),
                    request.block_hashes(size).ok(),
                    "{size} {adapter:?} {salt:?}"
                );
            }
        }
    }

    #[test]
    fn nobody_waits_for_hashes_beyond_the_time() {
        let kind = Blocks { size: 1, ahead: true };
        assert_eq!(
            hashes(&[1; 100], kind, None, None, Some(Instant::now())),
            Err(Late)
        );
        // Also when the time ends on the way.
        let (many, started) = (vec![1; 2_000_000], Instant::now());
        let until = started + Duration::from_millis(1);
        assert_eq!(hashes(&many, kind, None, None, Some(until)), Err(Late));
    }

    /// Adapter, salt, tokens, block size, hashes: computed by the workers' own library.
    #[test]
    fn hashes_are_those_of_the_workers() {
        let count = |n: u32| (1..=n).collect::<Vec<_>>();
        type Row = (
            Vec<u32>,
            u32,
            Option<&'static str>,
            Option<&'static str>,
            Vec<u64>,
        );
        let table: [Row; 11] = [
            (
                count(32),
                16,
                None,
                None,
                vec![16_863_443_419_780_771_464, 2_287_610_619_914_608_821],
            ),
            (
                count(40),
                16,
                None,
                None,
                vec![16_863_443_419_780_771_464, 2_287_610_619_914_608_821],
            ),
            (
                count(32),
                16,
                Some("lora-x"),
                None,
                vec![7_547_338_479_332_862_604, 8_774_831_035_993_475_464],
            ),
            (
                count(32),
                16,
                None,
                Some("tenant-a"),
                vec![8_175_209_796_170_318_505, 13_248_293_275_458_056_256],
            ),
            (
                count(32),
                16,
                Some("lora-x"),
                Some("tenant-a"),
                vec![17_350_094_455_901_525_461, 4_096_019_142_605_259_278],
            ),
            (
                count(128),
                64,
                None,
                None,
                vec![17_732_852_320_395_450_624, 16_977_986_247_603_081_716],
            ),
            (
                count(100),
                64,
                None,
                Some("tenant-a"),
                vec![17_558_542_134_077_403_659],
            ),
            (count(15), 16, None, None, vec![]),
            (
                count(16),
                16,
                Some(""),
                Some(""),
                vec![16_863_443_419_780_771_464],
            ),
            (vec![7; 32], 16, None, None, vec![8_771_127_959_296_939_342; 2]),
            (
                [0, u32::MAX].repeat(8),
                16,
                None,
                None,
                vec![10_975_900_422_750_559_117],
            ),
        ];
        for (tokens, block_size, adapter, salt, expected) in table {
            let found = blocks(&tokens, block_size, adapter, salt);
            assert_eq!(
                found,
                Some(expected),
                "{} tokens, {adapter:?}, {salt:?}",
                tokens.len()
            );
        }
    }

    #[test]
    fn a_block_size_of_zero_has_no_blocks_and_any_other_works() {
        assert_eq!(blocks(&[1, 2, 3], 0, None, None), None);
        for size in [1, 2, 3, 17, 65_536, 65_537, u32::MAX] {
            let found = blocks(&[1, 2, 3], size, None, None).map(|hashes| hashes.len());
            assert_eq!(found, Some((3 / size) as usize), "{size}");
        }
    }

    /// What workers published, on Dynamo 1.6.1, when these tokens were stored under that adapter and salt.
    #[test]
    fn hashes_are_those_that_real_workers_published() {
        let tokens: Vec<u32> = (1000..1032).collect();
        for (adapter, salt, expected) in [
            (
                None,
                None,
                [17_863_182_269_597_592_868, 14_340_445_833_846_710_668],
            ),
            (
                Some("my-lora"),
                None,
                [4_196_235_928_883_486_842, 13_567_126_138_757_459_128],
            ),
            (
                None,
                Some("tenant-a"),
                [11_093_343_978_441_441_813, 2_847_236_533_862_611_452],
            ),
        ] {
            let found = blocks(&tokens, 16, adapter, salt);
            assert_eq!(
                found.as_deref(),
                Some(expected.as_slice()),
                "{adapter:?} {salt:?}"
            );
        }
    }

    #[test]
    fn speculative_workers_hash_one_token_more_than_a_block() {
        let tokens: Vec<u32> = (1..=33).collect();
        let found = eagle_blocks(&tokens, 16, None, Some("a"));
        let first = blocks(&tokens[..17], 17, None, Some("a"));
        let second = blocks(&tokens[16..], 17, None, Some("a"));
        assert_eq!(
            found,
            Some([first.unwrap_or_default(), second.unwrap_or_default()].concat())
        );
        assert_eq!(
            eagle_blocks(&tokens[..32], 16, None, None).map(|hashes| hashes.len()),
            Some(1)
        );
        assert_eq!(eagle_blocks(&tokens, 0, None, None), None);
    }
}
