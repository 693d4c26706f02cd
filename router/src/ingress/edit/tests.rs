use proptest::prelude::*;

use super::*;

#[test]
fn nothing_to_edit_is_the_same_bytes() {
    let body = Bytes::from_static(b"{}");
    assert_eq!(apply(&body, &[], None).as_ptr(), body.as_ptr());
    assert_eq!(apply(&body, &[], Some((&[], "n"))).as_ptr(), body.as_ptr());
}

#[test]
fn splices_come_in_the_order_of_the_body() {
    let body = Bytes::from_static(b"0123456789");
    assert_eq!(
        apply(&body, &[2..4, 8..10], Some((&[5..6, 7..8], "n"))),
        "014\"n\"6\"n\"".as_bytes()
    );
}

proptest! {
    /// Whatever goes of a list, the rest is the list of what stays.
    #[test]
    fn a_list_without_elements_is_a_list(keep in proptest::collection::vec(any::<bool>(), 0..12), white in "[ \n]{0,2}") {
        let mut text = String::from("[");
        let (mut gaps, mut removals) = (Gaps::default(), Vec::new());
        for (i, keep) in keep.iter().enumerate() {
            if i > 0 {
                text += &format!("{white},");
            }
            text += &white;
            gaps.begin(text.len(), &mut removals);
            text += &i.to_string();
            gaps.end(text.len(), *keep, &mut removals);
        }
        gaps.close(&mut removals);
        text += &white;
        text += "]";
        let out = apply(&Bytes::from(text), &removals, None);
        let left: Vec<usize> = serde_json::from_slice(&out).expect("a list");
        let wanted: Vec<usize> = keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(i, _)| i).collect();
        prop_assert_eq!(left, wanted);
    }
}
