#!/usr/bin/env bash
# Takes the custom resource over into the chart, and renders the chart with its defaults as kustomize/overlays/operator.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

"$here/kube/build.sh" helm
helm=$CONTINUUM_CACHE/kube/bin/helm
chart=charts/continuum-router overlay=kustomize/overlays/operator

if [ -f crds/yaml/routerconfigs.yaml ]; then
  install -D -m 644 crds/yaml/routerconfigs.yaml "$chart/files/crds/routerconfigs.yaml"
fi
{
  echo "# Rendered from $chart by \`make generate\`: do not edit, patch it in kustomization.yaml."
  # The labels of a release are helm's own business.
  "$helm" template continuum "$chart" --namespace continuum-system --skip-tests |
    sed -e '/helm.sh\/chart:/d; /app.kubernetes.io\/managed-by: Helm/d; /^# Source: /d'
} >"$overlay/operator.yaml.new"
mv "$overlay/operator.yaml.new" "$overlay/operator.yaml"
