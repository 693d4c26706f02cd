use super::*;

fn templates(source: &str) -> Result<Templates, Error> {
    Templates::load(&Sources {
        templates: vec![(DEFAULT.to_owned(), source.to_owned())],
        tokens: [Some("<s>".to_owned()), None, None],
    })
}

fn render(source: &str, arguments: &str) -> Result<String, Error> {
    let given = Given {
        arguments: serde_json::from_str::<Json>(arguments)
            .unwrap()
            .as_object()
            .unwrap()
            .clone(),
        add_generation_prompt: true,
        ..Given::default()
    };
    templates(source)?.render(&given, Timestamp::from_second(1_700_000_000).unwrap(), 1 << 20)
}

#[test]
fn expressions_of_real_templates_print_what_python_prints() {
    let given = r#"{"x": {"b": 1, "a": [1.0, "é'<&>", null, true], "items": {"type": "s"}}, "f": 1e-6, "s": " a b ", "l": [3, 1]}"#;
    for (source, expected) in [
        (
            "{{ x | tojson }}",
            r#"{"b": 1, "a": [1.0, "é'<&>", null, true], "items": {"type": "s"}}"#,
        ),
        (
            "{{ x | tojson(ensure_ascii=True) }}",
            r#"{"b": 1, "a": [1.0, "\u00e9'<&>", null, true], "items": {"type": "s"}}"#,
        ),
        ("{{ l | tojson(indent=2) }}", "[\n  3,\n  1\n]"),
        (
            "{{ x | tojson(separators=(',', ':')) }}",
            r#"{"b":1,"a":[1.0,"é'<&>",null,true],"items":{"type":"s"}}"#,
        ),
        (
            "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
            r#"{"a": 2, "b": 1}"#,
        ),
        ("{{ [] | tojson(indent=4) }}{{ {} | tojson }}", "[]{}"),
        ("{{ f }} {{ f | string }} {{ 2.0 }} {{ 3 }}", "1e-06 1e-06 2.0 3"),
        ("{% for k, v in x.items() %}{{ k }} {% endfor %}", "b a items "),
        (
            "{{ s.strip() }}|{{ s.split() | length }}|{{ s.upper() }}|{{ s | trim }}",
            "a b|2| A B |a b",
        ),
        ("{{ s.startswith(' a') and s.endswith(' ') }}", "True"),
        ("{{ undefined_thing | length }}{{ tools | length }}", "00"),
        ("{{ bos_token }}{{ eos_token is none }}", "<s>True"),
        ("{% generation %}{{ s }}{% endgeneration %}", " a b "),
        (
            "{{ strftime_now('%Y-%m-%d %d %b %Y') }}",
            "2023-11-14 14 Nov 2023",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% if loop.index > 1 %}{% break %}{% endif %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        ("{{ ('[1, {\"a\": 2}]' | fromjson)[1].a }}", "2"),
        ("{%- if true %}\n  a\n{%- endif %}\nb", "  ab"),
    ] {
        match render(source, given) {
            Ok(found) => assert_eq!(found, expected, "{source}"),
            Err(error) => panic!("{source}: {error:?}"),
        }
    }
}

/// What one expression makes is measured and dropped, so that no output is what is too long.
#[test]
fn a_long_text_is_refused_before_it_is_there() {
    const CAP: usize = 1 << 20;
    // 50 KB, which are 12 MB with an indentation of four.
    let deep = format!("{}{}1{}", "[".repeat(120), "1,".repeat(25_000), "]".repeat(120));
    let wide = format!("[{}1]", "\"\\u0001\",".repeat(CAP / 8));
    let given = format!(
        r#"{{"deep": {deep}, "wide": {wide}, "text": "{}"}}"#,
        "x".repeat(1000)
    );
    let mut wrong = Vec::new();
    for expression in [
        "deep | tojson(indent=4)",
        "deep | tojson(indent='        ')",
        "deep | tojson(indent=1000000000)",
        "wide | tojson",
        "wide | string",
        "deep | pprint",
        "([text] * 2000) | string",
        "([text] * 2000) | join",
        "([text] * 2000) | join(', ')",
        "([[text]] * 2000) | join",
        "''.join([text] * 2000)",
        "text.join([1] * 2000)",
        "'{:>2000000}'.format(1)",
        "'{:.2000000f}'.format(1.5)",
        "'{:>99999999999999999999}'.format(1)",
        "'%2000000d' | format(1)",
    ] {
        let source = format!("{{{{ ({expression}) | length }}}}");
        match render(&source, &given) {
            Err(Error::Output(CAP)) => {}
            found => wrong.push((expression, found)),
        }
    }
    let found = render("{% set x %}{{ wide }}{% endset %}{{ x | length }}", &given);
    assert!(matches!(found, Err(Error::Output(CAP))), "{found:?}");
    // The engine itself: what its fuel does not pay for is not made.
    for expression in [
        "'a' * 1000000000",
        "text * 1000000",
        "[text] * 1000000000",
        "range(1000000000)",
        "(text * 1000) | replace('x', text)",
        "(text * 1000).replace('x', text)",
        "(('\\n' * 100000) | indent(100000))",
        "[1] | batch(1000000000, text)",
        "[1] | slice(1000000000)",
        "strftime_now('%255d' * 2000000)",
        "debug()",
    ] {
        let source = format!("{{{{ ({expression}) | length }}}}");
        match render(&source, &given) {
            Err(Error::Engine(_)) => {}
            found => wrong.push((expression, found)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Within the cap all is as it was.
    for (expression, length) in [
        ("([text] * 1000) | join(' ')", 1_000_999),
        ("' '.join([text] * 1000)", 1_000_999),
        ("'{:>1000000}'.format(1)", 1_000_000),
        ("'%1000000d' | format(1)", 1_000_000),
        ("[text, 1.5, none] | string", 1015),
    ] {
        let source = format!("{{{{ ({expression}) | length }}}}");
        match render(&source, &given) {
            Ok(found) => assert_eq!(found, length.to_string(), "{expression}"),
            Err(error) => panic!("{expression}: {error:?}"),
        }
    }
}
