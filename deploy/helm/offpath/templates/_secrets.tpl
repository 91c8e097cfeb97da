{{/*
Files of Secrets: certificates, keys, credentials, passwords. Each is a directory below /etc/offpath, so that what changes in the Secret changes
there too, and is read again without a restart. They are readable by root and by the group that the pod's fsGroup gives its containers. Each template takes (list . PART), where PART is "checker" or "aggregator".
*/}}

{{/* The directories that a part needs, as JSON: {"DIRECTORY": "SECRET"}. */}}
{{- define "offpath.secretDirs" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $p := index $.Values $part -}}
{{- $nats := index $.Values.nats $part -}}
{{- $dirs := dict -}}
{{- if or $nats.credsKey $nats.nkeyKey $nats.passwordKey }}{{- $_ := set $dirs "nats" $nats.secret }}{{- end }}
{{- with $.Values.nats.tls.secret }}{{- $_ := set $dirs "nats-tls" . }}{{- end }}
{{- with $p.adminTLS.secret }}{{- $_ := set $dirs "admin-tls" . }}{{- end }}
{{- if eq $part "aggregator" }}
{{- if $.Values.redis.passwordKey }}{{- $_ := set $dirs "redis" $.Values.redis.secret }}{{- end }}
{{- with $.Values.redis.tls.secret }}{{- $_ := set $dirs "redis-tls" . }}{{- end }}
{{- with $p.consoleTokens.secret }}{{- $_ := set $dirs "console" . }}{{- end }}
{{- with $p.entriesSigningKey.secret }}{{- $_ := set $dirs "entries-key" . }}{{- end }}
{{- else }}
{{- with $p.tls.secret }}{{- $_ := set $dirs "api-tls" . }}{{- end }}
{{- with $p.keyHash.secret }}{{- $_ := set $dirs "key-hash" . }}{{- end }}
{{- with $p.receiptKey.secret }}{{- $_ := set $dirs "receipt-key" . }}{{- end }}
{{- end }}
{{- toJson $dirs -}}
{{- end -}}

{{/* A client's flags: (list "nats" .Values.nats.tls). */}}
{{- define "offpath.clientTLSArgs" -}}
{{- $server := index . 0 -}}
{{- $tls := index . 1 -}}
{{- if $tls.secret }}
{{- range $flag, $file := dict "ca" $tls.ca "cert" $tls.cert "key" $tls.key }}
{{- if $file }}
- --{{ $server }}-{{ $flag }}=/etc/offpath/{{ $server }}-tls/{{ $file }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The flags that name these files, and public keys. */}}
{{- define "offpath.secretArgs" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $p := index $.Values $part -}}
{{- $nats := index $.Values.nats $part -}}
{{- include "offpath.clientTLSArgs" (list "nats" $.Values.nats.tls) }}
{{- with $nats.credsKey }}
- --nats-creds=/etc/offpath/nats/{{ . }}
{{- end }}
{{- with $nats.nkeyKey }}
- --nats-nkey=/etc/offpath/nats/{{ . }}
{{- end }}
{{- with $nats.user }}
- {{ printf "--nats-user=%s" . | quote }}
{{- end }}
{{- with $nats.passwordKey }}
- --nats-password-file=/etc/offpath/nats/{{ . }}
{{- end }}
{{- with $.Values.trust.rulesPublicKeys }}
- --rules-public-keys={{ join "," . }}
{{- end }}
{{- with $.Values.trust.entriesPublicKeys }}
- --entries-public-keys={{ join "," . }}
{{- end }}
{{- with $p.adminTLS }}
{{- if .secret }}
- --admin-cert=/etc/offpath/admin-tls/{{ .cert }}
- --admin-key=/etc/offpath/admin-tls/{{ .key }}
{{- end }}
{{- end }}
{{- if eq $part "aggregator" }}
{{- include "offpath.clientTLSArgs" (list "redis" $.Values.redis.tls) }}
{{- with $.Values.redis.user }}
- {{ printf "--redis-user=%s" . | quote }}
{{- end }}
{{- with $.Values.redis.passwordKey }}
- --redis-password-file=/etc/offpath/redis/{{ . }}
{{- end }}
{{- if $p.consoleTokens.secret }}
- --console-token-file=/etc/offpath/console/{{ $p.consoleTokens.key }}
{{- end }}
{{- if $p.entriesSigningKey.secret }}
- --entries-signing-key-file=/etc/offpath/entries-key/{{ $p.entriesSigningKey.key }}
{{- end }}
{{- else }}
{{- if $p.tls.secret }}
{{- range $api := ternary (list "listen" "grpc") (list "listen") $p.grpc }}
- --{{ $api }}-cert=/etc/offpath/api-tls/{{ $p.tls.cert }}
- --{{ $api }}-key=/etc/offpath/api-tls/{{ $p.tls.key }}
{{- with $p.tls.clientCA }}
- --{{ $api }}-client-ca=/etc/offpath/api-tls/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- if $p.keyHash.secret }}
- --key-hash=/etc/offpath/key-hash/{{ $p.keyHash.key }}
{{- end }}
{{- if $p.receiptKey.secret }}
- --receipt-key-file=/etc/offpath/receipt-key/{{ $p.receiptKey.key }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the container has them. */}}
{{- define "offpath.secretMounts" -}}
{{- range $dir, $_ := include "offpath.secretDirs" . | fromJson }}
- {name: offpath-{{ $dir }}, mountPath: /etc/offpath/{{ $dir }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* The pod's volumes of them. */}}
{{- define "offpath.secretVolumes" -}}
{{- range $dir, $secret := include "offpath.secretDirs" . | fromJson }}
- name: offpath-{{ $dir }}
  secret: {secretName: {{ $secret | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}
