use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

/// Walks a whole document and says whether it is JSON.
fn walk(bytes: &[u8]) -> Result<(), Refused> {
    let mut reader = Reader::new(bytes);
    reader.skip(0, &mut Nobody)?;
    match reader.peek() {
        None => Ok(()),
        Some(_) => Err(reader.refuse(Reason::TrailingData)),
    }
}

#[test]
fn json_is_json() {
    let good = [
        "0",
        "-0",
        "0.0",
        "1e9",
        "-1.25E-7",
        "12345678901234567890123",
        "1e999",
        r#""""#,
        r#""a\"b\\c\/\b\f\n\r\tA""#,
        r#""\ud83d\ude00""#,
        r#""\ud800""#,
        "true",
        " null ",
        "[]",
        "{}",
        "[ ]",
        "{\n}",
        "[1,[2,{\"a\":[]}]]",
        "\t{\"a\" : 1 , \"a\":2}\r\n",
        "\"\u{7f}\u{80}모\"",
    ];
    for text in good {
        assert_eq!(walk(text.as_bytes()), Ok(()), "{text}");
    }
}

#[test]
fn what_others_may_forgive_is_refused_at_its_byte() {
    let bad: [(&str, Reason, usize); 40] = [
        ("", Reason::Truncated, 0),
        ("  ", Reason::Truncated, 2),
        ("\u{feff}1", Reason::ExpectedValue, 0),
        ("nul", Reason::Truncated, 0),
        ("nulL", Reason::ExpectedValue, 0),
        ("truefalse", Reason::TrailingData, 4),
        ("True", Reason::ExpectedValue, 0),
        ("NaN", Reason::ExpectedValue, 0),
        ("Infinity", Reason::ExpectedValue, 0),
        ("-Infinity", Reason::BadNumber, 1),
        ("+1", Reason::ExpectedValue, 0),
        ("01", Reason::TrailingData, 1),
        ("-", Reason::Truncated, 1),
        ("1.", Reason::Truncated, 2),
        (".5", Reason::ExpectedValue, 0),
        ("1.e5", Reason::BadNumber, 2),
        ("1e", Reason::Truncated, 2),
        ("1e+", Reason::Truncated, 3),
        ("0x10", Reason::TrailingData, 1),
        ("'a'", Reason::ExpectedValue, 0),
        ("\"a", Reason::Truncated, 2),
        ("\"a\\", Reason::Truncated, 2),
        ("\"a\nb\"", Reason::ControlCharacter, 2),
        ("\"12345678\tb\"", Reason::ControlCharacter, 9),
        ("\"\0\"", Reason::ControlCharacter, 1),
        (r#""\x41""#, Reason::BadEscape, 1),
        (r#""\u12g4""#, Reason::BadEscape, 1),
        (r#""\u12""#, Reason::BadEscape, 1),
        (r#""\U0041""#, Reason::BadEscape, 1),
        ("[1,]", Reason::ExpectedValue, 3),
        ("[,1]", Reason::ExpectedValue, 1),
        ("[1 2]", Reason::ExpectedCommaOrEnd, 3),
        ("[1}", Reason::ExpectedCommaOrEnd, 2),
        ("{\"a\":1]", Reason::ExpectedCommaOrEnd, 6),
        ("{a:1}", Reason::ExpectedKey, 1),
        ("{\"a\" 1}", Reason::ExpectedColon, 5),
        ("{\"a\":1,}", Reason::ExpectedKey, 7),
        ("{\"a\":}", Reason::ExpectedValue, 5),
        ("[1] // note", Reason::TrailingData, 4),
        ("/**/1", Reason::ExpectedValue, 0),
    ];
    for (text, reason, at) in bad {
        assert_eq!(walk(text.as_bytes()), Err((reason, at)), "{text:?}");
        assert!(serde_json::from_str::<IgnoredAny>(text).is_err(), "{text:?}");
    }
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(walk(nested(127).as_bytes()), Ok(()));
    assert_eq!(walk(nested(128).as_bytes()), Err((Reason::TooDeep, 127)));
    assert_eq!(
        walk("[".repeat(10_000_000).as_bytes()),
        Err((Reason::TooDeep, 127))
    );
    let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert_eq!(walk(objects(127).as_bytes()), Ok(()));
    assert_eq!(walk(objects(128).as_bytes()), Err((Reason::TooDeep, 5 * 127)));
}

#[test]
fn brackets_are_matched_at_every_depth() {
    for levels in 1..=120 {
        let open: String = (0..levels)
            .map(|i| if i % 3 == 0 { "[" } else { "{\"a\":" })
            .collect();
        let close: String = (0..levels)
            .rev()
            .map(|i| if i % 3 == 0 { "]" } else { "}" })
            .collect();
        assert_eq!(walk(format!("{open}1{close}").as_bytes()), Ok(()), "{levels}");
        let wrong: String = (0..levels)
            .rev()
            .map(|i| if i % 3 == 0 { "}" } else { "]" })
            .collect();
        assert!(walk(format!("{open}1{wrong}").as_bytes()).is_err(), "{levels}");
    }
}

#[test]
fn a_string_tells_how_it_is_spelled() {
    let told = |text: &str| {
        let text = Reader::new(text.as_bytes()).string().expect("a string");
        (text.start, text.end, text.spelling, text.escaped_others)
    };
    assert_eq!(told(r#""abc" "#), (1, 4, 0, 0));
    assert_eq!(told(r#""a\nb""#), (1, 5, 1, 0));
    assert_eq!(told(r#""\u0041\uc548\ud83d\ude00""#), (1, 25, 5 + 6 + 6 + 6, 2));
}

#[test]
fn unescaping_copies_only_when_it_has_to() {
    let text = |quoted: &'static str| {
        let text = Reader::new(quoted.as_bytes()).string().expect("a string");
        unescaped(quoted.as_bytes(), &text)
    };
    assert!(matches!(text(r#""nvext""#), Some(Cow::Borrowed(b"nvext"))));
    assert_eq!(text(r#""nv\u0065xt""#).as_deref(), Some(b"nvext".as_slice()));
    assert_eq!(
        text(r#""\u006e\u0076\u0065\u0078\u0074""#).as_deref(),
        Some(b"nvext".as_slice())
    );
    assert_eq!(text(r#""nvext\u0000""#).as_deref(), Some(b"nvext\0".as_slice()));
    assert_eq!(text(r#""\ud800""#), None);
}

/// Text that is nearly JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\"a\""),
        Just("\"\\u0061\""),
        Just("\"\\"),
        Just("\""),
        Just("1"),
        Just("-0.5e+3"),
        Just("-"),
        Just("."),
        Just("e"),
        Just("0"),
        Just("true"),
        Just("null"),
        Just("fals"),
        Just(" "),
        Just("\n"),
        Just("모"),
        Just("\u{1}"),
        Just("\\u12"),
        Just("{\"a\":"),
        Just("[1,"),
        Just("\"plain text of some length\""),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn it_accepts_what_serde_json_accepts(text in nearly_json()) {
        let theirs = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(walk(text.as_bytes()).is_ok(), theirs, "{:?}", text);
    }

    #[test]
    fn plain_runs_end_at_the_first_special_byte(bytes in proptest::collection::vec(
        prop_oneof![8 => 0x20_u8..=0xff, 1 => Just(b'"'), 1 => Just(b'\\'), 1 => 0_u8..0x20], 0..80,
    )) {
        let naive = bytes.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\').unwrap_or(bytes.len());
        prop_assert_eq!(plain_run(&bytes), naive);
    }
}
