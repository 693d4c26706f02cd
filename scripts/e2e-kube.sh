#!/usr/bin/env bash
# e2e-kube.sh [pytest arguments]   The operator and its routers on real Kubernetes, in front of real Dynamo pods.
#
# As root (with cgroup v1) the tests bring up a node of their own in namespaces of their own: see scripts/kube/. Otherwise they use the
# cluster of KUBECONFIG, with images that its nodes can pull: E2E_ROUTER_IMAGE, E2E_CONTROLLER_IMAGE, E2E_DYNAMO_IMAGE (and E2E_DYNAMO_MODEL,
# the model's folder in it). With neither, nothing is tested and the run says so; where CI is set, that is a failure.
# E2E_KEEP=1 leaves the node up for a look: scripts/kube/in.sh kubectl get pods -A; scripts/kube/down.sh ends it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

own_node=''
if may_run_a_node; then
  own_node=1
elif [ -z "${KUBECONFIG:-}" ]; then
  [ -z "${CI:-}" ] || die "Kubernetes cannot be tested: needs root with the right to make namespaces, and cgroup v1; or KUBECONFIG"
  say "NOT TESTED: Kubernetes. Needs root with the right to make namespaces, and cgroup v1; or KUBECONFIG with E2E_*_IMAGE (see the top of this script)"
  exit 0
fi

"$here/install-test-deps.sh" --e2e
"$here/install-dynamo.sh" 1.6.1 1.4.2
python=$CONTINUUM_CACHE/dynamo/client/bin/python
tests=("$python" -m pytest -p no:cacheprovider "${@:-e2e/kube}")

if [ -z "$own_node" ]; then
  : "${E2E_ROUTER_IMAGE:?}" "${E2E_CONTROLLER_IMAGE:?}" "${E2E_DYNAMO_IMAGE:?}"
  PATH="$CONTINUUM_CACHE/kube/bin:$PATH" exec "${tests[@]}"
fi

cargo build -p continuum-router -p continuum-controller
E2E_BINARIES=$(target_dir)/e2e-kube
mkdir -p "$E2E_BINARIES"
for name in continuum-router continuum-controller; do
  strip -o "$E2E_BINARIES/$name" "$(target_dir)/debug/$name"
done
export E2E_BINARIES E2E_ROUTER_IMAGE=localhost/continuum/router:dev E2E_CONTROLLER_IMAGE=localhost/continuum/controller:dev

unset KUBECONFIG
export KUBE_WORK=${KUBE_WORK:-/tmp/continuum-e2e}
[ -n "${E2E_KEEP:-}" ] || trap '"$here/kube/down.sh"' EXIT
"$here/kube/up.sh" >&2
image() { "$here/kube/in.sh" "$here/kube/image.py" --import "$@"; }
image --name "$E2E_ROUTER_IMAGE" --user 65532 "$E2E_BINARIES/continuum-router"
image --name "$E2E_CONTROLLER_IMAGE" --user 65532 "$E2E_BINARIES/continuum-controller"
# The README's commands take the chart's own image names, which nothing here could pull.
"$here/kube/in.sh" helm template continuum charts/continuum-router |
  sed -n 's/.*image: *"\{0,1\}\([^" ]*\)"\{0,1\} *$/\1/p; s/.*--router-image[= ]\([^" ]*\).*/\1/p' | sort -u |
  while read -r name; do
    case $name in
    *controller*) image --name "$name" --user 65532 "$E2E_BINARIES/continuum-controller" ;;
    *router*) image --name "$name" --user 65532 "$E2E_BINARIES/continuum-router" ;;
    esac
  done
# Holds nothing: Dynamo's pods run this machine's files through host paths.
image --name localhost/continuum/userland:dev
E2E_IN_CLUSTER_NETWORK=1 "$here/kube/in.sh" "${tests[@]}"
