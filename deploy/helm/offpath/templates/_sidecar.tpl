{{/*
A checker beside a service of yours, in its pod. In a chart that has this one among its dependencies, with checker.kind Sidecar:

  spec:
    initContainers:
      {{- include "offpath.sidecar" .Subcharts.offpath | nindent 6 }}
    containers: …
    volumes:
      {{- include "offpath.sidecarVolumes" .Subcharts.offpath | nindent 6 }}

The pod needs an fsGroup in its securityContext, any one, if there are Secrets with files: only that group may read them.

It answers before the service starts, and stops after it (Kubernetes 1.29 and newer); the service asks it at 127.0.0.1:8080.
*/}}
{{- define "offpath.sidecar" -}}
- restartPolicy: Always
  {{- include "offpath.checkerContainer" (list . "127.0.0.1") | nindent 2 }}
{{- end -}}

{{- define "offpath.sidecarVolumes" -}}
{{- include "offpath.checkerVolumes" . -}}
{{- end -}}
