{{- define "whence.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The roles of the mode: name, values, ports, and the roles that call them and that they call. "edge" roles serve clients. */}}
{{- define "whence.roles" -}}
{{- if eq .Values.mode "gateway" }}
- {name: gateway, values: gateway, edge: true, caller: "", callee: llm-worker, port: 8080, link: 0, metrics: 9080}
- {name: llm-worker, values: llmWorker, edge: false, caller: gateway, callee: "", port: 8082, link: 8092, metrics: 9082}
{{- else }}
- {name: api-service, values: apiService, edge: true, caller: "", callee: chat-service, port: 8080, link: 0, metrics: 9080}
- {name: chat-service, values: chatService, edge: false, caller: api-service, callee: llm-worker, port: 8081, link: 8091, metrics: 9081}
- {name: llm-worker, values: llmWorker, edge: false, caller: chat-service, callee: "", port: 8082, link: 8092, metrics: 9082}
{{- end }}
{{- end -}}

{{/* Labels that select the pods of a role: include "whence.selector" (list $ "llm-worker") */}}
{{- define "whence.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end -}}

{{- define "whence.labels" -}}
{{ include "whence.selector" . }}
app.kubernetes.io/part-of: whence
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end -}}

{{/* Name of the Secret with the API keys; empty without keys. */}}
{{- define "whence.keysSecret" -}}
{{- if .Values.keys.existingSecret -}}
{{ .Values.keys.existingSecret }}
{{- else if .Values.keys.file -}}
{{ include "whence.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the other secrets; empty without secrets. */}}
{{- define "whence.secret" -}}
{{- with .Values.secrets -}}
{{- if .existingSecret -}}
{{ .existingSecret }}
{{- else if or .operatorKey .tokenKey .redisURL .upstreamKey -}}
{{ include "whence.fullname" $ }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name in the certificate of a role: include "whence.peer" (list $ "llm-worker") */}}
{{- define "whence.peer" -}}
{{- $ := index . 0 }}
{{- default (printf "%s-%s.%s.svc" (include "whence.fullname" $) (index . 1) $.Release.Namespace) (index $.Values.mtls.names (index . 1)) -}}
{{- end -}}

{{/* Name of the Secret with the certificate of a role; empty without mutual TLS. */}}
{{- define "whence.certificate" -}}
{{- $ := index . 0 }}
{{- if $.Values.mtls.enabled -}}
{{- default (printf "%s-%s-tls" (include "whence.fullname" $) (index . 1)) (index $.Values.mtls.secrets (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/* Flags of a role: include "whence.args" (list $ role) */}}
{{- define "whence.args" -}}
{{- $ := index . 0 }}
{{- $role := index . 1 }}
{{- $values := index $.Values $role.values }}
{{- $fullname := include "whence.fullname" $ }}
- --name={{ if $role.edge }}api-service{{ else }}{{ $role.name }}{{ end }}/$(POD_NAME)
- --listen=0.0.0.0:{{ $role.port }}
{{- with $role.link }}
- --link-port={{ . }}
{{- end }}
- --metrics-listen=0.0.0.0:{{ $role.metrics }}
- --drain={{ $values.drain }}s
- --log-json
{{- with $.Values.otlp }}
- --otlp={{ . }}
{{- end }}
{{- if $.Values.mtls.enabled }}
- --mtls-cert=/etc/whence/mtls/tls.crt
- --mtls-key=/etc/whence/mtls/tls.key
- --mtls-ca=/etc/whence/mtls/ca.crt
{{- with $role.caller }}
- --mtls-callers={{ include "whence.peer" (list $ .) }}
{{- end }}
{{- with $role.callee }}
- --mtls-callees={{ include "whence.peer" (list $ .) }}
{{- end }}
{{- end }}
{{- if eq $role.name "api-service" }}
- --chat=dns:///{{ $fullname }}-chat-service:8081
{{- end }}
{{- if has $role.name (list "chat-service" "gateway") }}
- --worker=dns:///{{ $fullname }}-llm-worker:8082
{{- with $.Values.chatService.queueStreams }}
- --queue-streams={{ . }}
{{- end }}
{{- end }}
{{- if and $role.edge (include "whence.keysSecret" $) }}
- --keys=/etc/whence/keys/keys.yaml
{{- end }}
{{- if ne $role.name "api-service" }}
{{- if $.Values.model.existingClaim }}
- --model=/model
{{- end }}
{{- with $.Values.model.name }}
- --model-name={{ . }}
{{- end }}
{{- end }}
{{- if eq $role.name "llm-worker" }}
- --engine={{ $values.engine }}
{{- with $values.upstream }}
- --upstream={{ . }}
{{- end }}
- --max-running={{ $values.maxRunning }}
{{- end }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
