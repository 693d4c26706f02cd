{{/* Names. The operator and what belongs to it: <release>-controller. */}}
{{- define "continuum.controller.name" -}}
{{ printf "%s-controller" .Release.Name }}
{{- end }}

{{/* A name of the whole cluster: two releases of one name in two namespaces do not meet. */}}
{{- define "continuum.controller.clusterName" -}}
{{ printf "%s-%s-controller" .Release.Namespace .Release.Name }}
{{- end }}

{{/* The router that nobody operates. A RouterConfig's routers are named after it, so these never meet. */}}
{{- define "continuum.router.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end }}
{{- end }}

{{/* Labels by which things are selected: (dict "root" $ "component" NAME). */}}
{{- define "continuum.selector" -}}
app.kubernetes.io/name: continuum-router
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* All labels: (dict "root" $ "component" NAME). */}}
{{- define "continuum.labels" -}}
{{ include "continuum.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* An image: (dict "root" $ "image" VALUES). */}}
{{- define "continuum.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Where RouterConfigs are served, as a JSON list. Empty names are left out: --set x={} makes a list of one. */}}
{{- define "continuum.watchNamespaces" -}}
{{- .Values.watchNamespaces | default list | compact | default (list .Release.Namespace) | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* Fleets elsewhere, as a JSON list: namespaces that are watched need no Role of their own. */}}
{{- define "continuum.fleetNamespaces" -}}
{{- $watched := include "continuum.watchNamespaces" . | fromJsonArray -}}
{{- $more := list -}}
{{- range .Values.fleetNamespaces | default list | compact | uniq | sortAlpha }}{{ if not (has . $watched) }}{{ $more = append $more . }}{{ end }}{{ end -}}
{{- $more | toJson -}}
{{- end }}

{{/* Secret with the certificates of the push port; empty when the operator makes them. */}}
{{- define "continuum.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.certManager.enabled -}}
{{ include "continuum.controller.name" . }}-tls
{{- end -}}
{{- end }}

{{- define "continuum.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "continuum.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What a fleet's discovery reads: pods, and with metadata what the workers write. The same rules as in a router's own Role. */}}
{{- define "continuum.podReader" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}
{{- define "continuum.metadataReader" -}}
- apiGroups: [nvidia.com]
  resources: [dynamoworkermetadatas]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{/* A Role for a router in its fleet's namespace. Nobody may grant what they do not hold: the reading rules stand beside this. */}}
{{- define "continuum.granting" -}}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}

{{/* What the operator does where RouterConfigs are served. */}}
{{- define "continuum.watching" -}}
# RouterConfigs: their spec is read; a patch adds the finalizer of routers that have a Role in another namespace.
- apiGroups: [router.continuum.dev]
  resources: [routerconfigs]
  verbs: [get, list, watch, patch]
- apiGroups: [router.continuum.dev]
  resources: [routerconfigs/status]
  verbs: [get, patch, update]
# Owner references of children block the owner's deletion.
- apiGroups: [router.continuum.dev]
  resources: [routerconfigs/finalizers]
  verbs: [update]
# Children: server-side apply is a patch, and a create where nothing is yet.
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
{{ include "continuum.granting" . }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# The fleet of that namespace.
{{ include "continuum.fleet" . }}
{{- end }}

{{/* A fleet that the operator watches: all that a router could be given the right to. */}}
{{- define "continuum.fleet" -}}
{{ include "continuum.podReader" . }}
{{ include "continuum.metadataReader" . }}
{{- end }}
