#!/usr/bin/env bash
# build.sh [NAME...]   Builds the binaries of the tests' Kubernetes from Go modules (versions and checksums: pins/*/go.mod and go.sum)
# into $CONTINUUM_CACHE/kube/bin; without names, all of them. A binary is built again only when its pins, its flags or the Go version
# changed. From nothing: about 12 minutes for all, 5 for kube-apiserver and kube-controller-manager, on two cores.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
kube_version=v1.34.0
all=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl coredns helm pause)

[ $# -gt 0 ] || set -- "${all[@]}"
use_go || die "no Go 1.21 or newer found. Install it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager and kubectl"
for tool in gcc sha256sum flock; do
  command -v "$tool" >/dev/null || die "$tool is missing (scripts/install-test-deps.sh installs it)"
done
mkdir -p "$cache/bin" "$cache/stamp"
# Two builds at a time would only take turns on the cores.
exec 9>"$cache/.lock"
flock 9

cb=k8s.io/component-base/version
kube_ld="-s -w -X $cb.gitVersion=$kube_version -X $cb.gitMajor=1 -X $cb.gitMinor=${kube_version#v1.} -X $cb.gitTreeState=clean -X $cb.gitCommit=module -X $cb.buildDate=1970-01-01T00:00:00Z"
kube_ld=${kube_ld/gitMinor=34.0/gitMinor=34}

# name -> pins directory, package, ldflags
spec() {
  case $1 in
    etcd)    echo "etcd|go.etcd.io/etcd/server/v3|-s -w" ;;
    helm)    echo "helm|helm.sh/helm/v4/cmd/helm|-s -w" ;;
    coredns) echo "coredns|.|-s -w" ;;
    kube-*|kubelet|kubectl) echo "kubernetes|k8s.io/kubernetes/cmd/$1|$kube_ld" ;;
    pause)   echo "pause||" ;;
    *) return 1 ;;
  esac
}

build() {
  local name=$1 s dir pkg ld stamp out=$cache/bin/$1 start=$SECONDS
  s=$(spec "$name") || die "unknown binary: $name (one of: ${all[*]})"
  IFS='|' read -r dir pkg ld <<<"$s"
  stamp=$({ go env GOVERSION GOARCH; echo "$s"; cat "$here/pins/$dir"/*; } | sha256sum | cut -d' ' -f1)
  if [ -x "$out" ] && [ "$(cat "$cache/stamp/$name" 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  say "building $name (minutes, once)"
  rm -f "$out.tmp"
  if [ "$name" = pause ]; then
    gcc -Os -static -s -o "$out.tmp" "$here/pins/pause/pause.c"
  else
    # GOFLAGS is set: a user's -mod=vendor or -tags would break or change the build.
    GOFLAGS=-mod=readonly go build -C "$here/pins/$dir" -trimpath -buildvcs=false -ldflags "$ld" -o "$out.tmp" "$pkg"
  fi
  mv -f "$out.tmp" "$out"
  echo "$stamp" >"$cache/stamp/$name"
  say "built $name: $((SECONDS - start)) s, $(($(stat -c %s "$out") >> 20)) MiB"
}

for name in "$@"; do build "$name"; done
