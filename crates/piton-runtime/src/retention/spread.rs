//! Which of many checkpoints to keep: evenly spread over the time that they cover.

use std::collections::BTreeSet;

use piton_types::{Seq, Timestamp};

/// The checkpoints to give up so that `most` are left, given all of them oldest first and those that stay anyway. The
/// first and the last stay too. More may be left than wanted if more than that must stay.
pub(super) fn to_give_up(all: &[(Seq, Timestamp)], stay: &BTreeSet<Seq>, most: usize) -> BTreeSet<Seq> {
    let (Some((first, begin)), Some((last, end))) = (all.first().copied(), all.last().copied()) else {
        return BTreeSet::new();
    };
    if all.len() <= most {
        return BTreeSet::new();
    }
    let mut kept: BTreeSet<Seq> =
        all.iter().map(|(seq, _)| *seq).filter(|seq| stay.contains(seq) || *seq == first || *seq == last).collect();
    let length = i128::from(end.as_millis()) - i128::from(begin.as_millis());
    let slots = most.saturating_sub(kept.len());
    let mut place = 0;
    for slot in 1..=slots {
        // The first one at or behind the slot's moment that isn't taken.
        let moment = i128::from(begin.as_millis()) + length * slot as i128 / (slots as i128 + 1);
        while place < all.len() && (i128::from(all[place].1.as_millis()) < moment || kept.contains(&all[place].0)) {
            place += 1;
        }
        if let Some((seq, _)) = all.get(place) {
            kept.insert(*seq);
        }
    }
    // Where many lie close together some slots find nothing: the newest fill up.
    for (seq, _) in all.iter().rev() {
        if kept.len() >= most {
            break;
        }
        kept.insert(*seq);
    }
    all.iter().map(|(seq, _)| *seq).filter(|seq| !kept.contains(seq)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(times: &[i64], stay: &[u32], most: usize) -> Vec<u32> {
        let all: Vec<_> = (0..).zip(times).map(|(n, at)| (Seq(n), Timestamp::from_millis(*at))).collect();
        let stay = stay.iter().map(|seq| Seq(*seq)).collect();
        let gone = to_give_up(&all, &stay, most);
        all.iter().map(|(seq, _)| seq.0).filter(|seq| !gone.contains(&Seq(*seq))).collect()
    }

    /// C5: thinned evenly by age, always the first, the last and what must stay.
    #[test]
    fn what_is_left_is_spread_over_the_time() {
        let evenly: Vec<i64> = (0..100).map(|n| n * 10).collect();
        assert_eq!(left(&evenly, &[], 5), [0, 25, 50, 75, 99]);
        assert_eq!(left(&evenly, &[3, 4], 5), [0, 3, 4, 50, 99]);
        assert_eq!(left(&evenly, &[1, 2, 3, 4, 5], 3), [0, 1, 2, 3, 4, 5, 99]);
        let burst: Vec<i64> = (0..50).chain([100_000]).collect();
        assert_eq!(left(&burst, &[], 4), [0, 48, 49, 50], "the newest fill up what a burst leaves open");
        assert_eq!(left(&[5, 5, 5, 5], &[], 2), [0, 3]);
        assert_eq!(left(&[1, 2], &[], 2), [0, 1]);
        assert_eq!(left(&[], &[], 2), [0_u32; 0]);
    }
}
