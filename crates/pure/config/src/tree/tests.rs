use super::*;

fn problems(text: &str) -> Vec<String> {
    parse(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_duplicate_key_is_named_with_its_place() {
    assert_eq!(
        problems("a: 1\nb:\n  c: 2\n  c: 3\na: 4\n"),
        [
            "4:3: b.c: this key stands already in line 3; remove one of them",
            "5:1: a: this key stands already in line 1; remove one of them",
        ]
    );
}

#[test]
fn yaml_that_surprises_is_refused() {
    for (text, part) in [
        ("a: b: c", "1:"),
        ("a: [1", "not valid YAML"),
        ("a: 1\n---\nb: 2", "second document"),
        ("[a, b]: 1", "a key must be"),
        ("a: !secret x", "tags"),
        ("a: &x [*x]", "inside the value"),
        ("a: *nowhere", "not valid YAML"),
        (&"[".repeat(100), "nested more than"),
    ] {
        let found = problems(text).join("\n");
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn aliases_repeat_values_within_a_budget() {
    let root = parse("a: &t {x: 1}\nb: *t\n").unwrap();
    assert_eq!(emit::emit(&root), "a:\n  x: 1\nb:\n  x: 1\n");

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let repeated = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{repeated}]\n"));
    }
    assert!(problems(&bomb).join("\n").contains("aliases repeat included"));
}

#[test]
fn scalars_follow_yaml_1_2() {
    let root =
        parse("[~, yes, no, true, 010, 0x1f, 1.5, 1e3, .5, -7, '1', \"a\", nan, 1:30, inf, 1_000]").unwrap();
    assert_eq!(
        emit::emit(&root),
        "- null\n- \"yes\"\n- \"no\"\n- true\n- 10\n- 31\n- 1.5\n- 1000.0\n- 0.5\n- -7\n- \"1\"\n- a\n- nan\n- 1:30\n- inf\n- 1_000\n"
            .replace("\"yes\"", "yes")
            .replace("\"no\"", "no")
    );
}

#[test]
fn an_empty_file_is_an_empty_mapping() {
    for text in ["", "# nothing\n", "---\n", "~"] {
        assert!(
            matches!(parse(text).unwrap().value, Value::Map(entries) if entries.is_empty()),
            "{text:?}"
        );
    }
}
