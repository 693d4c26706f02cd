#!/usr/bin/env bash
# What `make test` needs: the build's needs, etcd and etcdctl (the daemon is not started: tests start their own on free ports), and
# kube-apiserver, kube-controller-manager and their etcd, built from Go modules (some 6 minutes, once) unless KUBEBUILDER_ASSETS has them;
# helm and kubectl, which render the packages (some 4 minutes, once).
# With `--e2e` also what the real-Dynamo tests need: Python, npm (a tokenizer comes from there) and the tools for network namespaces;
# and the rest of a Kubernetes node (some 8 more minutes, once) where this user may run one.
# Safe to run again: says nothing when nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

"$here/install-build-deps.sh"

packages=()
command -v etcd >/dev/null || packages+=(etcd-server)
command -v etcdctl >/dev/null || packages+=(etcd-client)
command -v curl >/dev/null || packages+=(curl ca-certificates)
if [ "${1:-}" = --e2e ]; then
  command -v ip >/dev/null || packages+=(iproute2)
  command -v unshare >/dev/null || packages+=(util-linux)
  command -v npm >/dev/null || packages+=(npm)
  find_python >/dev/null || packages+=(python3 python3-venv)
  if may_run_a_node; then
    # The node's own: containers, their network, and the tools that scripts/kube/up.sh calls.
    command -v containerd >/dev/null || packages+=(containerd)
    command -v runc >/dev/null || packages+=(runc)
    command -v nft >/dev/null || packages+=(nftables)
    command -v iptables >/dev/null || packages+=(iptables)
    command -v openssl >/dev/null || packages+=(openssl)
    command -v busybox >/dev/null || packages+=(busybox-static)
    [ -x "${KUBE_CNI_BIN:-/usr/lib/cni}/ptp" ] || packages+=(containernetworking-plugins)
  fi
fi
[ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"

kube=()
[ -x "${KUBEBUILDER_ASSETS:-}/etcd" ] || kube+=(etcd)
[ -x "${KUBEBUILDER_ASSETS:-}/kube-apiserver" ] || kube+=(kube-apiserver)
[ -x "${KUBEBUILDER_ASSETS:-}/kube-controller-manager" ] || kube+=(kube-controller-manager)
# What renders the chart and the overlays.
kube+=(kubectl helm)
if [ "${1:-}" = --e2e ]; then
  ! may_run_a_node || kube+=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy coredns pause)
fi
if [ ${#kube[@]} != 0 ]; then
  # A distribution's Go is welcome where it is new enough to fetch the newer one that Kubernetes wants.
  use_go || ! apt-cache show golang-go 2>/dev/null | grep -qE '^Version: 2:1\.(2[1-9]|[3-9][0-9])' || apt_install golang-go
  "$here/kube/build.sh" "${kube[@]}"
fi
