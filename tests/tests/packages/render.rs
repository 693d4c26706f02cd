//! Rendering, as users do it: `helm template` and `kubectl kustomize`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use continuum_testkit::kube::binary;
use serde::Deserialize as _;
use serde_json::Value;

/// Every pod template that is looked at for its hardening is of one of these.
pub(crate) const STANDALONE: [&str; 4] = [
    "--set=controller.enabled=false,router.enabled=true,crds.install=false",
    "--set=dynamoPodDiscovery.enabled=true,dynamoPodDiscovery.namespace=dynamo",
    "--set=router.config.backends[0].name=frontend,router.config.backends[0].url=http://frontend.dynamo.svc:8000",
    "--set=router.config.dynamo.enabled=true,router.config.dynamo.discovery.source=kubernetes",
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/continuum-router")
}

/// What `helm template` prints, or why it does not.
pub(crate) fn template(release: &str, namespace: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary("helm"));
    command
        .args(["template", release])
        .arg(chart())
        .args(["--namespace", namespace]);
    said(command.args(arguments))
}

/// The objects of a release.
pub(crate) fn helm(release: &str, namespace: &str, arguments: &[&str]) -> Vec<Value> {
    let text = template(release, namespace, arguments);
    objects(&text.unwrap_or_else(|error| panic!("helm template {arguments:?}: {error}")))
}

/// The objects of an overlay.
pub(crate) fn kustomize(overlay: &str) -> Vec<Value> {
    let mut command = Command::new(binary("kubectl"));
    let text = said(
        command
            .arg("kustomize")
            .arg(root().join("kustomize/overlays").join(overlay)),
    );
    objects(&text.unwrap_or_else(|error| panic!("kubectl kustomize {overlay}: {error}")))
}

/// Runs a command: its output, or its complaint.
pub(crate) fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents =
        serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// Kind, namespace and name.
pub(crate) fn id(object: &Value) -> (String, String, String) {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The one object of this kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| {
        let (its_kind, _, its_name) = id(object);
        its_kind == kind && its_name == name
    });
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "more than one {kind} {name}");
    one
}

/// The text of a YAML stream, for the API server.
pub(crate) fn yaml(objects: &[Value]) -> String {
    let documents = objects
        .iter()
        .map(|object| serde_yaml_ng::to_string(object).unwrap());
    documents.collect::<Vec<_>>().join("---\n")
}
