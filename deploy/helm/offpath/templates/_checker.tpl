{{/*
The checker's container: (list . HOST), where its APIs listen; its admin port listens everywhere, for probes. With a host it is one of
several containers of somebody's pod, in which names of ports must be unique: then it has but one, for probes.
*/}}
{{- define "offpath.checkerContainer" -}}
{{- $ := index . 0 -}}
{{- $host := index . 1 -}}
{{- $c := $.Values.checker -}}
name: checker
image: {{ include "offpath.image" $ | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
command: [/usr/local/bin/checker]
args:
  - --name={{ include "offpath.checkerName" $ }}
  - --namespace={{ $.Values.namespace }}
  - --log-level={{ $.Values.logLevel }}
  - --rules={{ if eq $.Values.rules.from "nats" }}nats{{ else }}/etc/offpath/rules/{{ $.Values.rules.configMap.key }}{{ end }}
  - --listen={{ $host }}:8080
  - --grpc={{ if $c.grpc }}{{ $host }}:8081{{ else }}none{{ end }}
  - --admin=:9090
  - --cache-dir=/var/cache/offpath
  {{- with $c.trustedProxies }}
  - {{ printf "--trusted-proxies=%s" . | quote }}
  {{- end }}
  {{- if not $host }}
  # Until services and proxies have seen that this pod leaves, it answers, and asks for no further connection. A sidecar is told to
  # stop when nobody is left who would ask it.
  - --stop-delay=5s
  {{- end }}
  {{- if ne $c.decisionLog.to "none" }}
  - --decision-log={{ $c.decisionLog.to }}
  - --decision-log-sample={{ $c.decisionLog.sample }}
  {{- end }}
  {{- with include "offpath.secretArgs" (list $ "checker") | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- range $c.extraArgs }}
  - {{ . | quote }}
  {{- end }}
env:
  {{- include "offpath.secretEnv" (list "OFFPATH_NATS" $.Values.nats.checker) | nindent 2 }}
  {{- with $c.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if $host }}
  - {name: offpath-admin, containerPort: 9090}
  {{- else }}
  - {name: http, containerPort: 8080}
  {{- if $c.grpc }}
  - {name: grpc, containerPort: 8081}
  {{- end }}
  - {name: admin, containerPort: 9090}
  {{- end }}
{{ include "offpath.probes" (list (ternary "offpath-admin" "admin" (ne $host "")) $c.adminTLS) }}
{{- if $host }}
# What comes after it in the pod waits until it answers, which it does whether or not NATS is there.
startupProbe:
  httpGet: {path: /healthz, port: offpath-admin, scheme: {{ ternary "HTTPS" "HTTP" (ne $c.adminTLS.secret "") }}}
  periodSeconds: 1
  failureThreshold: 60
{{- end }}
securityContext:
  {{- include "offpath.containerSecurity" $ | nindent 2 }}
resources:
  {{- toYaml $c.resources | nindent 2 }}
volumeMounts:
  {{- include "offpath.checkerMounts" $ | trim | nindent 2 }}
{{- end -}}

{{/* What the container mounts, as a list. */}}
{{- define "offpath.checkerMounts" -}}
# The rules and blocks to begin with while NATS is away.
- {name: offpath-cache, mountPath: /var/cache/offpath}
{{- if ne .Values.rules.from "nats" }}
# The whole directory: a single file in it would never change.
- {name: offpath-rules, mountPath: /etc/offpath/rules, readOnly: true}
{{- end }}
{{- include "offpath.secretMounts" (list . "checker") }}
{{- with .Values.checker.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes that the container needs, as a list. */}}
{{- define "offpath.checkerVolumes" -}}
- name: offpath-cache
  {{- toYaml (default (dict "emptyDir" (dict "sizeLimit" "512Mi")) .Values.checker.cacheVolume) | nindent 2 }}
{{- if ne .Values.rules.from "nats" }}
- name: offpath-rules
  configMap: {name: {{ .Values.rules.configMap.name | quote }}}
{{- end }}
{{- include "offpath.secretVolumes" (list . "checker") }}
{{- with .Values.checker.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
