{{- define "c5c3.selector" -}}
app.kubernetes.io/name: c5c3-orders
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "c5c3.labels" -}}
app.kubernetes.io/name: c5c3-orders
app.kubernetes.io/part-of: c5c3-orders
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* A file of the chart that must be there: an empty rule or dashboard would say that all is well. */}}
{{- define "c5c3.file" -}}
{{- $text := .root.Files.Get .path }}
{{- if not $text }}{{ fail (printf "the chart has no %s: package it anew from deploy/chart" .path) }}{{ end }}
{{- $text }}
{{- end }}

{{- define "c5c3.image" -}}
{{- $repository := required "Set image.repository: where you pushed the image that deploy/image builds." .Values.image.repository }}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "c5c3.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "c5c3.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "c5c3.variable" -}}
- {name: {{ index . 0 }}, value: {{ index . 1 | quote }}}
{{- end }}

{{- /* Settings of both programs. */}}
{{- define "c5c3.settings" -}}
{{- $v := .Values }}
{{- if ne (empty $v.encryption.secretName) (empty $v.encryption.activeKey) }}
{{- fail "encryption.secretName and encryption.activeKey belong together: set both or neither." }}
{{- end }}
{{- if ne (empty $v.worker.versioning.deploymentName) (empty $v.worker.versioning.buildId) }}
{{- fail "worker.versioning.deploymentName and worker.versioning.buildId belong together: set both or neither." }}
{{- end }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_ADDRESS" (required "Set temporal.address: HOST:PORT of the Temporal frontend." $v.temporal.address)) }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_NAMESPACE" $v.temporal.namespace) }}
{{ include "c5c3.variable" (list "C5C3_TASK_QUEUE" $v.temporal.taskQueue) }}
{{- if $v.temporal.tls.enabled }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_TLS" "true") }}
{{- end }}
{{- if $v.temporal.tls.caSecretName }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_TLS_CA" "/etc/c5c3/temporal-ca/ca.crt") }}
{{- end }}
{{- if $v.temporal.tls.clientSecretName }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_TLS_CERT" "/etc/c5c3/temporal-client/tls.crt") }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_TLS_KEY" "/etc/c5c3/temporal-client/tls.key") }}
{{- end }}
{{- if $v.temporal.tls.serverName }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_TLS_SERVER_NAME" $v.temporal.tls.serverName) }}
{{- end }}
{{- if $v.temporal.apiKey.secretName }}
{{ include "c5c3.variable" (list "C5C3_TEMPORAL_API_KEY_FILE" (printf "/etc/c5c3/temporal-api-key/%s" $v.temporal.apiKey.key)) }}
{{- end }}
{{- if $v.encryption.secretName }}
{{ include "c5c3.variable" (list "C5C3_PAYLOAD_KEYS_DIR" "/etc/c5c3/payload-keys") }}
{{ include "c5c3.variable" (list "C5C3_PAYLOAD_KEY" $v.encryption.activeKey) }}
{{- end }}
{{ include "c5c3.variable" (list "C5C3_LOG_LEVEL" $v.logging.level) }}
{{- if $v.otlp.endpoint }}
{{ include "c5c3.variable" (list "C5C3_OTLP_ENDPOINT" $v.otlp.endpoint) }}
{{- end }}
{{ include "c5c3.variable" (list "C5C3_HTTP_ADDRESS" (printf ":%v" $v.metrics.port)) }}
{{ include "c5c3.variable" (list "C5C3_CLUSTERS_NAMESPACE" $v.clustersNamespace.name) }}
{{ include "c5c3.variable" (list "C5C3_OPERATOR_NAMESPACE" .Release.Namespace) }}
{{- end }}

{{- /* Where the pods of a program may run. */}}
{{- define "c5c3.placed" -}}
{{- $program := . }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $program $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Secrets that become files. Each is [name of the mount, name of the Secret]. */}}
{{- define "c5c3.secrets" -}}
{{- range list (list "temporal-ca" .Values.temporal.tls.caSecretName) (list "temporal-client" .Values.temporal.tls.clientSecretName) (list "temporal-api-key" .Values.temporal.apiKey.secretName) (list "payload-keys" .Values.encryption.secretName) }}
{{- if index . 1 }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
