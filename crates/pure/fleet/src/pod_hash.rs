//! The instance id that Dynamo derives from a Pod's name on Kubernetes.
//!
//! SipHash-1-3 with a zero key over the name and one `0xFF` byte, cut to 53 bits. Written out here because the
//! standard library does not promise to keep its algorithm; a test compares the two on every toolchain.

use crate::ids::InstanceId;

/// Bits of an id that a JSON reader with doubles keeps exactly.
const MASK: u64 = 0x001F_FFFF_FFFF_FFFF;

/// The instance id of the resource named `cr_name`: the Pod's name, or `<pod>-<container>` in container mode.
#[must_use]
pub fn pod_hash(cr_name: &str) -> InstanceId {
    let mut state = Sip::new();
    let mut word = 0_u64;
    let mut length = 0_u8;
    for byte in cr_name.bytes().chain([0xFF]) {
        word |= u64::from(byte) << (8 * (length % 8));
        length = length.wrapping_add(1);
        if length.is_multiple_of(8) {
            state.absorb(word);
            word = 0;
        }
    }
    state.absorb(word | (u64::from(length) << 56));
    InstanceId::new(state.finish() & MASK)
}

struct Sip {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

impl Sip {
    const fn new() -> Self {
        // "somepseudorandomlygeneratedbytes", the constants of SipHash, under a zero key.
        Self {
            a: 0x736f_6d65_7073_6575,
            b: 0x646f_7261_6e64_6f6d,
            c: 0x6c79_6765_6e65_7261,
            d: 0x7465_6462_7974_6573,
        }
    }

    const fn absorb(&mut self, word: u64) {
        self.d ^= word;
        self.round();
        self.a ^= word;
    }

    const fn finish(mut self) -> u64 {
        self.c ^= 0xFF;
        self.round();
        self.round();
        self.round();
        self.a ^ self.b ^ self.c ^ self.d
    }

    const fn round(&mut self) {
        self.a = self.a.wrapping_add(self.b);
        self.b = self.b.rotate_left(13) ^ self.a;
        self.a = self.a.rotate_left(32);
        self.c = self.c.wrapping_add(self.d);
        self.d = self.d.rotate_left(16) ^ self.c;
        self.a = self.a.wrapping_add(self.d);
        self.d = self.d.rotate_left(21) ^ self.a;
        self.c = self.c.wrapping_add(self.b);
        self.b = self.b.rotate_left(17) ^ self.c;
        self.c = self.c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_real_pods_give_the_ids_that_dynamo_gives() {
        for (name, id) in [
            ("worker-0", 1_186_445_869_714_687),
            ("worker-1", 6_167_992_384_364_830),
            ("worker-0-engine-0", 8_051_026_481_054_291),
            ("dynamo-solar-pro4-0-decode-abc12", 3_481_193_189_982_614),
            ("a", 7_688_582_637_611_507),
            ("", 121_655_548_788_207),
        ] {
            assert_eq!(pod_hash(name), InstanceId::new(id), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn this_toolchain_hashes_as_dynamo_does(name in ".{0,80}") {
            let mut hasher = DefaultHasher::new();
            hasher.write(name.as_bytes());
            hasher.write_u8(0xFF);
            prop_assert_eq!(pod_hash(&name), InstanceId::new(hasher.finish() & MASK));
        }
    }
}
