{{- define "sealog.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "sealog.selector" -}}
app.kubernetes.io/name: sealog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sealog.labels" -}}
{{ include "sealog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sealog.scheme" -}}
{{- if .Values.tls.existingSecret }}HTTPS{{ else }}HTTP{{ end -}}
{{- end }}

{{/* The pod, the same for both stores. */}}
{{- define "sealog.pod" -}}
metadata:
  labels:
    {{- include "sealog.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  automountServiceAccountToken: false
  # What Kubernetes would say of services is no setting.
  enableServiceLinks: false
  # Requests under way are finished within nine seconds, then everything is synced.
  terminationGracePeriodSeconds: 30
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: sealog
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: ["serve"]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      env:
        - name: SEALOG_LISTEN
          value: "0.0.0.0:8080"
        - name: SEALOG_METRICS_LISTEN
          value: "0.0.0.0:{{ .Values.metrics.port }}"
        - name: SEALOG_DATA_DIR
          value: /data
        {{- with .Values.baseUrl }}
        - name: SEALOG_BASE_URL
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.trustedProxies }}
        - name: SEALOG_TRUSTED_PROXIES
          value: {{ join "," . | quote }}
        {{- end }}
        {{- if eq .Values.store "postgres" }}
        - name: SEALOG_LIMITS_NODES
          value: {{ .Values.replicas | quote }}
        {{- end }}
        {{- if .Values.existingSecret }}
        # Files by the names of settings, as systemd hands them over.
        - name: CREDENTIALS_DIRECTORY
          value: /run/secrets/sealog
        {{- end }}
        {{- if .Values.tls.existingSecret }}
        - name: SEALOG_TLS_CERT
          value: /run/secrets/sealog-tls/tls.crt
        - name: SEALOG_TLS_KEY
          value: /run/secrets/sealog-tls/tls.key
        {{- end }}
        {{- range $key, $value := .Values.settings }}
        - name: SEALOG_{{ $key | replace "." "_" | upper }}
          value: {{ $value | toString | quote }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        - name: metrics
          containerPort: {{ .Values.metrics.port }}
      # Recovery of a large store, or a database that is not there yet: up to an hour.
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ include "sealog.scheme" . }}}
        periodSeconds: 5
        failureThreshold: 720
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ include "sealog.scheme" . }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        # Reads go on while events are refused: a full disk must not take the dashboard away, where there is only one server.
        httpGet: {path: {{ if eq .Values.store "postgres" }}/readyz{{ else }}/healthz{{ end }}, port: http, scheme: {{ include "sealog.scheme" . }}}
        periodSeconds: 5
        timeoutSeconds: 5
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - name: data
          mountPath: /data
        {{- if .Values.existingSecret }}
        - name: secrets
          mountPath: /run/secrets/sealog
          readOnly: true
        {{- end }}
        {{- if .Values.tls.existingSecret }}
        - name: tls
          mountPath: /run/secrets/sealog-tls
          readOnly: true
        {{- end }}
  {{- if or .Values.existingSecret .Values.tls.existingSecret }}
  volumes:
    {{- if .Values.existingSecret }}
    - name: secrets
      secret:
        secretName: {{ .Values.existingSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if .Values.tls.existingSecret }}
    - name: tls
      secret:
        secretName: {{ .Values.tls.existingSecret }}
        defaultMode: 0440
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
