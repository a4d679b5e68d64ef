{{- define "streamhouse.labels" -}}
app.kubernetes.io/name: streamhouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: streamhouse
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamhouse.agents" -}}
app.kubernetes.io/name: streamhouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "streamhouse.secret" -}}
{{- .Values.secrets.existing | default (printf "%s-secrets" .Release.Name) }}
{{- end }}

{{- define "streamhouse.hasTls" -}}
{{- if hasSuffix "SSL" .Values.security.protocol }}yes{{ end }}
{{- end }}
