use super::*;

#[test]
fn endpoints_are_host_and_port_and_nothing_else() {
    for (text, scheme, host, port) in [
        ("http://etcd:2379", Some(Scheme::Http), "etcd", 2379),
        (
            "https://etcd-0.dynamo.svc:2379",
            Some(Scheme::Https),
            "etcd-0.dynamo.svc",
            2379,
        ),
        ("127.0.0.1:2379", None, "127.0.0.1", 2379),
        ("[::1]:2379", None, "::1", 2379),
        ("HTTP://[fe80::1]:1", Some(Scheme::Http), "fe80::1", 1),
    ] {
        let endpoint = Endpoint::parse(text).unwrap();
        assert_eq!(
            (endpoint.scheme, &*endpoint.host, endpoint.port),
            (scheme, host, port),
            "{text}"
        );
        assert_eq!(endpoint.to_string().to_lowercase(), text.to_lowercase());
    }
    for (text, why) in [
        ("http://user:pass@etcd:2379", UrlError::UserInfo),
        ("http://user@etcd:2379", UrlError::UserInfo),
        ("user@etcd:2379", UrlError::UserInfo),
        ("http://etcd:2379?", UrlError::Query),
        ("http://etcd:2379?a=b", UrlError::Query),
        ("http://etcd:2379#", UrlError::Fragment),
        ("http://etcd:2379/", UrlError::Path),
        ("etcd:2379/v3", UrlError::Path),
        ("ftp://etcd:2379", UrlError::Scheme),
        ("unix:///run/etcd", UrlError::Scheme),
        ("http://etcd", UrlError::NoPort),
        ("etcd", UrlError::NoPort),
        ("etcd:", UrlError::Port),
        ("etcd:0", UrlError::Port),
        ("etcd:65536", UrlError::Port),
        ("etcd:+1", UrlError::Port),
        ("::1:2379", UrlError::Host),
        ("[::1", UrlError::Host),
        ("[zz]:1", UrlError::Host),
        ("[::1]x:1", UrlError::Host),
        ("", UrlError::Host),
        (":2379", UrlError::Host),
        ("http://:2379", UrlError::Host),
        ("et cd:2379", UrlError::Host),
    ] {
        assert_eq!(Endpoint::parse(text), Err(why), "{text}");
    }
}

#[test]
fn backend_urls_default_their_port_and_take_sockets() {
    let tcp = |scheme, host: &str, port| BackendUrl::Tcp {
        scheme,
        host: host.into(),
        port,
    };
    assert_eq!(
        BackendUrl::parse("http://frontend:8000"),
        Ok(tcp(Scheme::Http, "frontend", 8000))
    );
    assert_eq!(
        BackendUrl::parse("http://frontend/"),
        Ok(tcp(Scheme::Http, "frontend", 80))
    );
    assert_eq!(
        BackendUrl::parse("https://[::1]"),
        Ok(tcp(Scheme::Https, "::1", 443))
    );
    assert_eq!(
        BackendUrl::parse("unix:/run/f.sock"),
        Ok(BackendUrl::Unix("/run/f.sock".into()))
    );
    for (text, why) in [
        ("frontend:8000", UrlError::Scheme),
        ("http://frontend:8000/v1", UrlError::Path),
        ("http://k:s@frontend", UrlError::UserInfo),
        ("unix:run/f.sock", UrlError::Socket),
        ("unix:", UrlError::Socket),
    ] {
        assert_eq!(BackendUrl::parse(text), Err(why), "{text}");
    }
    assert_eq!(BackendUrl::parse("http://[::1]:80").unwrap().authority(), "[::1]");
    assert_eq!(
        BackendUrl::parse("http://a:81").unwrap().to_string(),
        "http://a:81"
    );
}

#[test]
fn listeners_take_addresses_not_names() {
    assert_eq!(
        BindAddress::parse("localhost:80"),
        Ok(BindAddress::Tcp(([127, 0, 0, 1], 80).into()))
    );
    assert!(BindAddress::parse("[::1]:8080").unwrap().is_local());
    assert!(BindAddress::parse("[::ffff:127.0.0.1]:8080").unwrap().is_local());
    assert!(BindAddress::parse("unix:/a").unwrap().is_local());
    assert!(!BindAddress::parse("0.0.0.0:8080").unwrap().is_local());
    for wrong in [
        "",
        "8080",
        ":8080",
        "example.org:80",
        "0.0.0.0",
        "0.0.0.0:70000",
        "::1:8080",
    ] {
        assert_eq!(BindAddress::parse(wrong), Err(UrlError::NotAnAddress), "{wrong}");
    }
}
