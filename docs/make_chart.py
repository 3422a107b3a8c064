"""Makes packaging/helm/gpudeck of packaging/kubernetes: the chart is the manifests, with values in
place of what a site changes. `python -m docs.make_chart`, which `make docs` calls."""

from pathlib import Path

from gpudeck import __version__

HERE = Path(__file__).resolve().parents[1] / "packaging"
RELEASE = __version__.partition(".dev")[0]
SOURCE, CHART = HERE / "kubernetes", HERE / "helm" / "gpudeck"
# What stands in the manifests, the value that takes its place, and how a template writes it.
VALUES: tuple[tuple[str, str, str], ...] = (
    (f"gpudeck-hub:{RELEASE}", "image.hub", "{{ .Values.image.hub }}"),
    (f"gpudeck-agent:{RELEASE}", "image.agent", "{{ .Values.image.agent }}"),
    ("deck.example.org", "host", "{{ .Values.host }}"),
    ('trusted_proxies = "10.0.0.0/8"', "trustedProxies",
     'trusted_proxies = "{{ .Values.trustedProxies }}"'),
    ("storage: 50Gi", "storage", "storage: {{ .Values.storage }}"),
    ("ingressClassName: nginx", "ingress.className",
     "ingressClassName: {{ .Values.ingress.className }}"),
    ("kubernetes.io/metadata.name: ingress-nginx", "ingress.namespace",
     "kubernetes.io/metadata.name: {{ .Values.ingress.namespace }}"),
    ("runtimeClassName: nvidia", "runtimeClassName",
     "runtimeClassName: {{ .Values.runtimeClassName }}"),
    ('{ nvidia.com/gpu.present: "true" }', "nodeSelector", "{ {{ .Values.nodeSelector }} }"),
    ("namespace: gpudeck", "namespace", "namespace: {{ .Release.Namespace }}"),
)
DEFAULTS = f"""\
# What a site changes; everything else is as in packaging/kubernetes.
host: deck.example.org  # under which people and agents reach the hub, by https
trustedProxies: 10.0.0.0/8  # the pods of the ingress controller
storage: 50Gi  # of the hub's volume
runtimeClassName: nvidia  # empty: the nodes' default
nodeSelector: 'nvidia.com/gpu.present: "true"'  # of nodes with GPUs; empty: all nodes
image:
  hub: gpudeck-hub:{RELEASE}
  agent: gpudeck-agent:{RELEASE}
ingress:
  className: nginx
  namespace: ingress-nginx
prometheusOperator: false  # true: it scrapes the hub, by the secret gpudeck-prometheus
"""
ABOUT = f"""\
apiVersion: v2
name: gpudeck
description: The control room for GPU fleets
type: application
version: {RELEASE}
appVersion: {RELEASE}
"""


def chart() -> dict[str, str]:
    """Return the chart's files by path; without a namespace, which Helm makes."""
    files = {"Chart.yaml": ABOUT, "values.yaml": DEFAULTS}
    for path in sorted(SOURCE.rglob("*.yaml")):
        if path.stem in ("kustomization", "namespace"):
            continue
        text = path.read_text()
        for literal, _, template in VALUES:
            text = text.replace(literal, template)
        # Its kinds are there only where the operator is.
        files[f"templates/{path.name}"] = text if path.parent == SOURCE else (
            "{{- if .Values.prometheusOperator }}\n" + text + "{{- end }}\n")
    return files


if __name__ == "__main__":
    for name, text in chart().items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(text)
