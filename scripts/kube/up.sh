#!/usr/bin/env bash
# Brings up a one-node Kubernetes inside its own namespaces. Binaries come from build.sh.
#   KUBE_WORK, KUBE_NETNS, KUBE_CNI_BIN   see lib.sh; KUBE_VERBOSE=1 tells where the time goes
# Re-runnable: an earlier cluster under the same name, whole or crashed, is removed first.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
t0=$(date +%s%N)
lap() { [ -z "${KUBE_VERBOSE:-}" ] || printf 'up.sh: %5d ms  %s\n' $((($(date +%s%N) - t0) / 1000000)) "$*" >&2; }

[ "$(id -u)" = 0 ] || die "must be root"
[ -d /sys/fs/cgroup/memory ] || die "needs cgroup v1 mounted at /sys/fs/cgroup"
[ ${#work} -lt 80 ] || die "KUBE_WORK is too long for a unix socket path"
for b in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl coredns pause; do
  [ -x "$bin/$b" ] || die "$bin/$b is missing: run build.sh"
done
for b in containerd ctr runc nft iptables openssl ip nsenter unshare curl python3; do
  command -v "$b" >/dev/null || die "$b is missing: run scripts/install-test-deps.sh --e2e"
done
[ -x "$cni_bin/ptp" ] || die "no CNI plugins in $cni_bin: run scripts/install-test-deps.sh --e2e"

"$here/down.sh"
mkdir -p "$work"/{run,log,etc/cni,pki,var-lib}
rc=0
trap 'rc=$?; [ $rc = 0 ] || { echo "up.sh: failed, cleaning up (logs stay in $work/log)" >&2; "$here/down.sh" --keep-logs || :; }' EXIT

# ---- network namespace: lo, a veth pair that carries the node's address, no way out
ip netns add "$ns"
in_net ip link set lo up
in_net ip link add node0 type veth peer name node0p
in_net ip address add "$node_ip/${node_cidr#*/}" dev node0
in_net ip link set node0 up
in_net ip link set node0p up
in_net ip route add "$service_cidr" dev node0   # so that connect() to a ClusterIP gets as far as kube-proxy's DNAT

# ---- cgroups below the caller's, one per v1 hierarchy
: >"$work/cgroups"
while read -r ctrl dir; do
  mkdir -p "$dir"
  if [ "$ctrl" = cpuset ]; then
    cat "${dir%/*}/cpuset.cpus" >"$dir/cpuset.cpus"
    cat "${dir%/*}/cpuset.mems" >"$dir/cpuset.mems"
    echo 1 >"$dir/cgroup.clone_children"
  fi
  echo "$dir" >>"$work/cgroups"
done < <(cgroups)

# ---- namespaces
echo "nameserver $node_ip" >"$work/etc/resolv.conf"   # CoreDNS; bound over /etc/resolv.conf
(
  while read -r dir; do echo "$BASHPID" >"$dir/cgroup.procs"; done <"$work/cgroups"
  exec env CONTINUUM_CACHE="$CONTINUUM_CACHE" KUBE_WORK="$work" KUBE_NETNS="$ns" setsid nsenter --net="/run/netns/$ns" -- \
    unshare --mount --propagation slave --uts --ipc --pid --cgroup --fork -- "$here/node-init.sh"
) >"$work/log/node-init.log" 2>&1 </dev/null &
disown
wait_for 10 "the namespaces" holder
lap namespaces

# ---- containerd and etcd first: they need no certificates
cat >"$work/etc/cni/10-pod.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pod", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
            "ranges": [[{"subnet": "$pod_cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
cat >"$work/etc/containerd.toml" <<EOF
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$work/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj; runc would fail with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni_bin"
    conf_dir = "$work/etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${KUBE_SNAPSHOTTER:-overlayfs}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
EOF
spawn containerd containerd --config "$work/etc/containerd.toml"
spawn etcd "$bin/etcd" --name node --data-dir /run/etcd --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster node=http://127.0.0.1:2380

# ---- certificates: one CA for everything, a second one for the aggregation layer
pki=$work/pki
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"; }
ca() {
  key "$1"
  openssl req -x509 -new -key "$pki/$1.key" -days 3650 -subj "/CN=$1" -out "$pki/$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}
cert() { # CA NAME SUBJECT [SAN]
  key "$2"
  openssl req -new -key "$pki/$2.key" -subj "$3" -out "$pki/$2.csr"
  openssl x509 -req -in "$pki/$2.csr" -CA "$pki/$1.crt" -CAkey "$pki/$1.key" -days 3650 -out "$pki/$2.crt" \
    -set_serial "0x$(openssl rand -hex 8)" 2>/dev/null \
    -extfile <(printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n%s' "${4:+subjectAltName=$4}")
}
kubeconfig() { # NAME SUBJECT
  [ "$1" = kubelet ] || cert ca "$1" "$2"
  cat >"$work/etc/$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://$node_ip:$api_port", certificate-authority-data: $(base64 -w0 <"$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 <"$pki/$1.crt"), client-key-data: $(base64 -w0 <"$pki/$1.key")}}]
contexts: [{name: e2e, context: {cluster: e2e, user: $1}}]
current-context: e2e
EOF
  chmod 600 "$work/etc/$1.kubeconfig"
}
ca ca
ca front-proxy-ca
openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
cert ca apiserver /CN=kube-apiserver "IP:$node_ip,IP:127.0.0.1,IP:$api_service_ip,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
cert ca apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
cert ca kubelet "/O=system:nodes/CN=system:node:$node_name" "IP:$node_ip,DNS:$node_name"
cert front-proxy-ca front-proxy /CN=front-proxy
kubeconfig admin /O=system:masters/CN=admin
kubeconfig kubelet
kubeconfig controller-manager /CN=system:kube-controller-manager
kubeconfig scheduler /CN=system:kube-scheduler
kubeconfig proxy /CN=system:kube-proxy
kubeconfig coredns /CN=system:coredns
cp "$work/etc/admin.kubeconfig" "$work/kubeconfig"
lap certificates

# ---- control plane
wait_for 20 etcd in_net curl -sf --noproxy '*' http://127.0.0.1:2379/health
lap etcd
spawn kube-apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
  --bind-address="$node_ip" --advertise-address="$node_ip" --secure-port="$api_port" \
  --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
  --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
  --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
  --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --service-cluster-ip-range="$service_cidr" --authorization-mode=Node,RBAC \
  --enable-admission-plugins=NodeRestriction --allow-privileged=true
kubectl() { in_net "$bin/kubectl" --kubeconfig "$work/kubeconfig" "$@"; }
wait_for 40 kube-apiserver in_net curl -sf --noproxy '*' --cacert "$pki/ca.crt" "https://$node_ip:$api_port/readyz"
lap kube-apiserver
spawn kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$work/etc/controller-manager.kubeconfig" \
  --leader-elect=false --use-service-account-credentials --bind-address=127.0.0.1 --node-monitor-period=1s \
  --kube-api-qps=500 --kube-api-burst=1000 \
  --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/sa.key" \
  --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
spawn kube-scheduler "$bin/kube-scheduler" --kubeconfig="$work/etc/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1

# ---- node
"$here/image.py" --name "$pause_image" --entrypoint /pause --static "$bin/pause" --import
cat >"$work/etc/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_ip
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$work/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
clusterDomain: cluster.local
clusterDNS: [$dns_service_ip]
resolvConf: $work/etc/resolv.conf
# ConfigMap and Secret volumes follow within seconds, not a minute.
syncFrequency: 5s
nodeStatusUpdateFrequency: 4s
serializeImagePulls: false
# Never evict or collect because the machine's disk happens to be full.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
EOF
spawn kubelet "$bin/kubelet" --config="$work/etc/kubelet.yaml" --kubeconfig="$work/etc/kubelet.kubeconfig" \
  --hostname-override="$node_name" --node-ip="$node_ip"
cat >"$work/etc/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $pod_cidr
bindAddress: $node_ip
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
hostnameOverride: $node_name
oomScoreAdj: 0
clientConnection: {kubeconfig: $work/etc/proxy.kubeconfig}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms}
EOF
spawn kube-proxy "$bin/kube-proxy" --config="$work/etc/kube-proxy.yaml"
cat >"$work/etc/Corefile" <<EOF
.:53 {
  bind $node_ip
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $work/etc/coredns.kubeconfig
    pods insecure
    ttl 1
  }
}
EOF
sed "s/@DNS_IP@/$dns_service_ip/; s/@NODE_IP@/$node_ip/; s/@NODE@/$node_name/" "$here/manifests/dns.yaml" >"$work/etc/dns.yaml"
kubectl apply -f "$work/etc/dns.yaml" >/dev/null
spawn coredns "$bin/coredns" -conf "$work/etc/Corefile"
lap "node started"
wait_for 60 "the node to be Ready" kubectl wait --for=condition=Ready "node/$node_name" --timeout=5s
lap "node Ready"
wait_for 20 "the default service account" kubectl get serviceaccount default
lap "default service account"
wait_for 20 CoreDNS in_net curl -sf --noproxy '*' http://127.0.0.1:8181/ready
lap CoreDNS
wait_for 20 "the node's taint to go" bash -c "[ -z \"\$(nsenter --net=/run/netns/$ns $bin/kubectl --kubeconfig $work/kubeconfig get node $node_name -o jsonpath='{.spec.taints}')\" ] && exit 0; exit 1"
lap "all ready"
echo "cluster $ns is up in $((($(date +%s%N) - t0) / 1000000)) ms: $here/in.sh kubectl get nodes"
