{{/* The name of everything: the release's, with the chart's behind it unless it is in there. */}}
{{- define "offpath.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a part: (list . "checker"). */}}
{{- define "offpath.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ default $.Chart.Name $.Values.nameOverride }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "offpath.labels" -}}
{{- $ := index . 0 -}}
{{ include "offpath.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version }}
{{- end -}}

{{- define "offpath.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{/* What a pod needs to be nobody, and to be left alone. */}}
{{- define "offpath.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "offpath.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Who checkers are to NATS: one token of a subject. */}}
{{- define "offpath.checkerName" -}}
{{ default (include "offpath.fullname" . | replace "." "-") .Values.checker.name }}
{{- end -}}

{{/* Probes on an admin port, by its name: (list "admin" .Values.checker.adminTLS). */}}
{{- define "offpath.probes" -}}
{{- $at := printf "port: %s, scheme: %s" (index . 0) (ternary "HTTPS" "HTTP" (ne (index . 1).secret "")) -}}
livenessProbe:
  httpGet: {path: /healthz, {{ $at }}}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, {{ $at }}}
  periodSeconds: 2
  failureThreshold: 2
{{- end -}}

{{/* A variable from a Secret: (list "OFFPATH_NATS" .Values.nats.checker). */}}
{{- define "offpath.secretEnv" -}}
{{- $ref := index . 1 -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ $ref.secret | quote }}, key: {{ $ref.key | quote }}}
{{- end -}}

{{- define "offpath.serviceAccountName" -}}
{{- default (ternary (include "offpath.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* As whom the pods of a part run, and where: (list . "checker"). */}}
{{- define "offpath.placement" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $p := index $.Values $part -}}
serviceAccountName: {{ include "offpath.serviceAccountName" $ }}
automountServiceAccountToken: false
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $p.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $p.topologySpreadConstraints (ne (dig "kind" "" $p) "DaemonSet") }}
topologySpreadConstraints:
  {{- $pods := dict "labelSelector" (dict "matchLabels" (include "offpath.selector" . | fromYaml)) }}
  {{- range $p.topologySpreadConstraints }}
  - {{- toYaml (merge (deepCopy .) $pods) | nindent 4 }}
  {{- end }}
{{- end }}
{{- with $p.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $p.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Scales a Deployment by the CPU that its pods use: (list . "checker"). */}}
{{- define "offpath.autoscaler" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $a := (index $.Values $part).autoscaling -}}
{{- $name := printf "%s-%s" (include "offpath.fullname" $) $part -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "offpath.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $name }}}
  minReplicas: {{ $a.min }}
  maxReplicas: {{ $a.max }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ $a.cpu }}}
{{- end -}}
