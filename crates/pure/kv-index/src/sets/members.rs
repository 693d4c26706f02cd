//! The members of one set: a list while there are few, bits when that is smaller.

/// Members in order. Equal sets are kept in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// Rising numbers.
    List(Box<[u16]>),
    /// One bit for each number, up to the last member's word.
    Bits(Box<[u64]>),
}

/// How members are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View<'a> {
    /// One member.
    One(u16),
    /// Rising numbers.
    List(&'a [u16]),
    /// One bit for each number.
    Bits(&'a [u64]),
}

impl Default for Members {
    fn default() -> Self {
        Self::List(Box::default())
    }
}

impl Members {
    /// These, and one that is not among them.
    pub(crate) fn with(members: View<'_>, member: u16) -> Self {
        match members {
            View::One(one) => Self::of(vec![one.min(member), one.max(member)]),
            View::List(list) => {
                let (before, behind) = list.split_at(list.partition_point(|one| *one < member));
                Self::of([before, &[member], behind].concat())
            }
            View::Bits(bits) => {
                let (word, bit) = place(member);
                let mut bits = bits.to_vec();
                bits.resize(bits.len().max(word + 1), 0);
                bits[word] |= bit;
                Self::trimmed(bits)
            }
        }
    }

    /// These without one.
    pub(crate) fn without(members: View<'_>, member: u16) -> Self {
        match members {
            View::One(one) => Self::of(vec![one].into_iter().filter(|one| *one != member).collect()),
            View::List(list) => Self::of(list.iter().copied().filter(|one| *one != member).collect()),
            View::Bits(bits) => {
                let (word, bit) = place(member);
                let mut bits = bits.to_vec();
                if let Some(word) = bits.get_mut(word) {
                    *word &= !bit;
                }
                Self::trimmed(bits)
            }
        }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Self::List(list) => View::List(list),
            Self::Bits(bits) => View::Bits(bits),
        }
    }

    #[inline]
    pub(crate) fn contains(&self, member: u16) -> bool {
        match self {
            Self::List(list) if list.len() <= 8 => list.contains(&member),
            Self::List(list) => list.binary_search(&member).is_ok(),
            Self::Bits(bits) => {
                let (word, bit) = place(member);
                bits.get(word).is_some_and(|word| word & bit != 0)
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::List(list) => size_of_val(&**list),
            Self::Bits(bits) => size_of_val(&**bits),
        }
    }

    /// From rising numbers.
    pub(crate) fn of(list: Vec<u16>) -> Self {
        let words = list.last().map_or(0, |last| place(*last).0 + 1);
        if !bits_are_smaller(list.len(), words) {
            return Self::List(list.into());
        }
        let mut bits = vec![0; words];
        for member in list {
            let (word, bit) = place(member);
            bits[word] |= bit;
        }
        Self::Bits(bits.into())
    }

    fn trimmed(mut bits: Vec<u64>) -> Self {
        while bits.last() == Some(&0) {
            bits.pop();
        }
        let count: u32 = bits.iter().map(|word| word.count_ones()).sum();
        if bits_are_smaller(count as usize, bits.len()) {
            return Self::Bits(bits.into());
        }
        let mut list = Vec::with_capacity(count as usize);
        View::Bits(&bits).each(|member| list.push(member));
        Self::List(list.into())
    }
}

impl View<'_> {
    /// Calls for each member, in order.
    #[inline]
    pub(crate) fn each(self, mut call: impl FnMut(u16)) {
        match self {
            Self::One(one) => call(one),
            Self::List(list) => list.iter().copied().for_each(call),
            Self::Bits(bits) => {
                for (number, word) in bits.iter().enumerate() {
                    each_bit(number, *word, &mut call);
                }
            }
        }
    }

    /// Keeps in `active` only what is a member, and calls for each number that goes.
    #[inline]
    pub(crate) fn narrow(self, active: &mut [u64], mut gone: impl FnMut(u16)) {
        match self {
            Self::One(one) => {
                let (word, bit) = place(one);
                for (number, left) in active.iter_mut().enumerate() {
                    let keep = if number == word { bit } else { 0 };
                    each_bit(number, *left & !keep, &mut gone);
                    *left &= keep;
                }
            }
            Self::List(mut list) => {
                for (number, left) in active.iter_mut().enumerate() {
                    let mut keep = 0;
                    while let Some((one, rest)) = list.split_first()
                        && place(*one).0 == number
                    {
                        keep |= place(*one).1;
                        list = rest;
                    }
                    each_bit(number, *left & !keep, &mut gone);
                    *left &= keep;
                }
            }
            Self::Bits(bits) => {
                for (number, left) in active.iter_mut().enumerate() {
                    let keep = bits.get(number).copied().unwrap_or(0);
                    each_bit(number, *left & !keep, &mut gone);
                    *left &= keep;
                }
            }
        }
    }
}

/// Calls for each number that has its bit in this word.
#[inline]
pub(crate) fn each_bit(word: usize, mut bits: u64, call: &mut impl FnMut(u16)) {
    while bits != 0 {
        call((word * 64) as u16 + bits.trailing_zeros() as u16);
        bits &= bits - 1;
    }
}

#[inline]
const fn place(member: u16) -> (usize, u64) {
    (member as usize / 64, 1 << (member % 64))
}

const fn bits_are_smaller(count: usize, words: usize) -> bool {
    count > words * 4
}
