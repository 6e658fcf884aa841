{{- define "access.labels" -}}
app.kubernetes.io/name: target-cluster-access
app.kubernetes.io/part-of: c5c3-orders
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "access.namespaces" -}}
{{- concat .Values.assignedNamespaces .Values.keystoneNamespaces | uniq | join "," }}
{{- end }}
