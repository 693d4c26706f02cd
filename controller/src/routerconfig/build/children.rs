//! The children, kind by kind.

use continuum_config::model::DiscoverySource;
use continuum_crds::{RouterConfig, spec::ServicePort, spec::ServiceType};
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource, ResourceExt as _,
    core::{ApiResource, DynamicObject, ObjectMeta, TypeMeta},
};
use serde_json::{Value, json};

use super::{Child, Files, pod_monitor};
use crate::routerconfig::{
    OWNER_NAMESPACE, OWNER_UID, Settings, child_name,
    kept::{self, SPEC_KEY, UNPROVEN},
    labels,
    render::{CA_KEY, CONFIG_KEY, HTTP_PORT, METRICS_PORT},
    selector,
    validate::{Accepted, Fleet},
};

/// The ports of the API server, behind and in front of its Service.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];

pub(super) fn all(
    object: &RouterConfig,
    accepted: &Accepted,
    settings: &Settings,
    files: Files<'_>,
) -> Vec<Child> {
    let make = Make {
        object,
        accepted,
        settings,
    };
    let mut children = vec![make.own::<ServiceAccount>(json!({ "automountServiceAccountToken": false }))];
    children.extend(make.rbac());
    children.push(config_map(
        object,
        files,
        kept::spec_of(object, files.config.len()),
    ));
    children.push(make.service());
    children.push(make.deployment());
    children.extend(make.disruption_budget());
    children.extend(make.autoscaler());
    children.extend(make.network_policy());
    children.extend(make.monitor());
    children
}

pub(super) fn config_map(object: &RouterConfig, files: Files<'_>, kept: Option<String>) -> Child {
    let data = without_null(json!({
        CONFIG_KEY: files.config,
        CA_KEY: files.ca,
        SPEC_KEY: kept,
    }));
    let mut child = own(
        object,
        ApiResource::erase::<ConfigMap>(&()),
        json!({ "data": data }),
    );
    if !files.proven {
        child
            .object
            .annotations_mut()
            .insert(UNPROVEN.to_owned(), "true".to_owned());
    }
    child
}

pub(super) fn with_authority(object: &RouterConfig, there: &DynamicObject, ca: &str) -> Child {
    let mut data = kept::strings(&there.data);
    data.insert(CA_KEY.to_owned(), ca.to_owned());
    let kind = ApiResource::erase::<ConfigMap>(&());
    let mut child = own(object, kind, json!({ "data": data }));
    if let Some(unproven) = there.annotations().get(UNPROVEN) {
        let annotations = child.object.annotations_mut();
        annotations.insert(UNPROVEN.to_owned(), unproven.clone());
    }
    child
}

/// The ports of the Service.
pub(super) fn ports(object: &RouterConfig) -> Vec<ServicePort> {
    let written = object
        .spec
        .router
        .service
        .as_ref()
        .map(|service| service.ports.as_slice());
    match written {
        Some([]) | None => vec![ServicePort {
            name: "http".to_owned(),
            port: 80,
            node_port: None,
        }],
        Some(ports) => ports.to_vec(),
    }
}

struct Make<'a> {
    object: &'a RouterConfig,
    accepted: &'a Accepted,
    settings: &'a Settings,
}

impl Make<'_> {
    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": selector(self.name()) })
    }

    /// A child in the RouterConfig's namespace, which it goes with.
    fn own<K: Resource<DynamicType = ()>>(&self, data: Value) -> Child {
        own(self.object, ApiResource::erase::<K>(&()), data)
    }

    /// A child in the fleet's namespace.
    fn beside_fleet<K: Resource<DynamicType = ()>>(&self, namespace: &str, data: Value) -> Child {
        if namespace == self.namespace() {
            return self.own::<K>(data);
        }
        let mut labels = labels(self.name());
        labels.insert(OWNER_NAMESPACE.to_owned(), self.namespace().to_owned());
        if let Some(uid) = &self.object.metadata.uid {
            labels.insert(OWNER_UID.to_owned(), uid.clone());
        }
        let metadata = ObjectMeta {
            // Two RouterConfigs of one name may read one fleet from two namespaces.
            name: Some(format!("{}.{}", self.namespace(), child_name(self.name()))),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        child(ApiResource::erase::<K>(&()), metadata, data, true)
    }

    /// What routers that read Kubernetes themselves may read. Where views are pushed there is nothing.
    fn rbac(&self) -> Vec<Child> {
        let Fleet::Local {
            source,
            namespace: Some(namespace),
        } = &self.accepted.fleet
        else {
            return Vec::new();
        };
        let read = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"] });
        let mut rules = vec![read("", "pods")];
        if *source == DiscoverySource::Kubernetes {
            rules.push(read("nvidia.com", "dynamoworkermetadatas"));
            rules.push(read("discovery.k8s.io", "endpointslices"));
        }
        let role = self.beside_fleet::<Role>(namespace, json!({ "rules": rules }));
        let binding = self.beside_fleet::<RoleBinding>(
            namespace,
            json!({
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": role.object.metadata.name.clone(),
                },
                "subjects": [{
                    "kind": "ServiceAccount",
                    "name": child_name(self.name()),
                    "namespace": self.namespace(),
                }],
            }),
        );
        vec![role, binding]
    }

    fn service(&self) -> Child {
        let written = self.object.spec.router.service.clone().unwrap_or_default();
        let ports: Vec<Value> = ports(self.object)
            .iter()
            .map(|port| {
                without_null(json!({
                    "name": port.name,
                    "port": port.port,
                    "protocol": "TCP",
                    "targetPort": "http",
                    "nodePort": port.node_port,
                }))
            })
            .collect();
        let ranges = &written.load_balancer_source_ranges;
        let mut child = self.own::<Service>(json!({ "spec": without_null(json!({
            "type": written.kind.unwrap_or(ServiceType::ClusterIP).as_str(),
            "selector": selector(self.name()),
            "ports": ports,
            "loadBalancerClass": written.load_balancer_class,
            "loadBalancerSourceRanges": (!ranges.is_empty()).then_some(ranges),
            "externalTrafficPolicy": written.external_traffic_policy.map(|policy| policy.as_str()),
        })) }));
        let metadata = &mut child.object.metadata;
        if !written.annotations.is_empty() {
            metadata.annotations = Some(written.annotations);
        }
        let own = metadata.labels.take().unwrap_or_default();
        metadata.labels = Some(written.labels.into_iter().chain(own).collect());
        child
    }

    fn deployment(&self) -> Child {
        self.own::<Deployment>(json!({ "spec": {
            "replicas": self.object.spec.router.replicas,
            "revisionHistoryLimit": 3,
            "selector": self.selector(),
            // A rollout never has fewer routers than are wanted.
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
            "template": self.accepted.template,
        } }))
    }

    fn disruption_budget(&self) -> Option<Child> {
        let written = self
            .object
            .spec
            .router
            .pod_disruption_budget
            .clone()
            .unwrap_or_default();
        if written.enabled == Some(false) {
            return None;
        }
        let unavailable = match (&written.min_available, &written.max_unavailable) {
            (None, None) => Some(json!(1)),
            (_, unavailable) => unavailable.as_ref().map(|value| json!(value)),
        };
        Some(
            self.own::<PodDisruptionBudget>(json!({ "spec": without_null(json!({
            "selector": self.selector(),
            "minAvailable": written.min_available,
            "maxUnavailable": unavailable,
        })) })),
        )
    }

    /// It scales the RouterConfig, so that the number of routers has one home.
    fn autoscaler(&self) -> Option<Child> {
        let written = self.object.spec.router.autoscaling.as_ref()?;
        let metrics = if written.metrics.is_empty() {
            json!([{
                "type": "Resource",
                "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } },
            }])
        } else {
            json!(written.metrics)
        };
        let least = written
            .min_replicas
            .unwrap_or(continuum_crds::spec::DEFAULT_REPLICAS.min(written.max_replicas));
        Some(
            self.own::<HorizontalPodAutoscaler>(json!({ "spec": without_null(json!({
            "scaleTargetRef": {
                "apiVersion": RouterConfig::api_version(&()),
                "kind": RouterConfig::kind(&()),
                "name": self.name(),
            },
            "minReplicas": least,
            "maxReplicas": written.max_replicas,
            "metrics": metrics,
            "behavior": written.behavior,
        })) })),
        )
    }

    fn network_policy(&self) -> Option<Child> {
        if self
            .object
            .spec
            .router
            .network_policy
            .as_ref()
            .is_some_and(|written| written.enabled == Some(false))
        {
            return None;
        }
        let tcp = |ports: &[u16]| -> Vec<Value> {
            ports
                .iter()
                .map(|port| json!({ "protocol": "TCP", "port": port }))
                .collect()
        };
        let mut inside = vec![HTTP_PORT, METRICS_PORT];
        let bus = &self.accepted.config.dynamo.event_bus;
        if bus.enabled {
            inside.push(bus.listen.port());
        }
        let mut outside = vec![json!({ "ports": [
            { "protocol": "UDP", "port": 53 },
            { "protocol": "TCP", "port": 53 },
        ] })];
        if let Some(port) = self
            .settings
            .push_endpoint
            .rsplit(':')
            .next()
            .and_then(|port| port.parse::<u16>().ok())
        {
            outside.push(json!({ "ports": tcp(&[port]) }));
        }
        if matches!(
            self.accepted.fleet,
            Fleet::Local {
                namespace: Some(_),
                ..
            }
        ) {
            outside.push(json!({ "ports": tcp(&API_SERVER_PORTS) }));
        }
        // Frontends, publishers, etcd: their ports are behind Services or chosen by workers, so none is left out.
        outside.push(json!({ "ports": [{ "protocol": "TCP" }] }));
        Some(self.own::<NetworkPolicy>(json!({ "spec": {
            "podSelector": self.selector(),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "ports": tcp(&inside) }],
            "egress": outside,
        } })))
    }

    fn monitor(&self) -> Option<Child> {
        let written = self.object.spec.router.monitoring.clone().unwrap_or_default();
        if !self.settings.pod_monitors || written.enabled == Some(false) {
            return None;
        }
        let mut child = own(
            self.object,
            pod_monitor(),
            json!({ "spec": {
                "selector": self.selector(),
                "podMetricsEndpoints": [without_null(json!({
                    "port": "metrics",
                    "path": "/metrics",
                    "interval": written.interval,
                }))],
            } }),
        );
        let own = child.object.metadata.labels.take().unwrap_or_default();
        child.object.metadata.labels = Some(written.labels.into_iter().chain(own).collect());
        Some(child)
    }
}

fn own(object: &RouterConfig, resource: ApiResource, data: Value) -> Child {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(child_name(name)),
        namespace: object.metadata.namespace.clone(),
        labels: Some(labels(name)),
        owner_references: object.controller_owner_ref(&()).map(|owner| {
            // Deletion in the foreground waits for what belongs to the object.
            vec![OwnerReference {
                block_owner_deletion: Some(true),
                ..owner
            }]
        }),
        ..ObjectMeta::default()
    };
    child(resource, metadata, data, false)
}

fn child(resource: ApiResource, metadata: ObjectMeta, data: Value, foreign: bool) -> Child {
    Child {
        object: DynamicObject {
            types: Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            }),
            metadata,
            data,
        },
        resource,
        foreign,
    }
}

/// The object without the fields that are null.
pub(super) fn without_null(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}
