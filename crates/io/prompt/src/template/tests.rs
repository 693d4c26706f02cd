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
