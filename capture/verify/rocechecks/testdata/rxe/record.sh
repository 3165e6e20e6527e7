#!/bin/sh
# Records what the kernel's rdma_rxe says to itself, as root of a guest that has its
# module: two devices on the ends of a veth pair, in one network namespace, as kernels
# before 7.1 have rxe in the first one only. RDMA has the programs and providers of
# Debian's perftest, ibverbs-utils, ibverbs-providers and rdmacm-utils. Each recording
# is printed in base64.
set -eu
PATH=$RDMA/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LD_LIBRARY_PATH=$RDMA/usr/lib/x86_64-linux-gnu RDMAV_DRIVERS=$RDMA/usr/lib/x86_64-linux-gnu/libibverbs/librxe
cd /tmp

ip link set lo up
ip link add v0 type veth peer name v1
# Both addresses are this host's own. Only what comes in by a device is to find its
# address local, so that what goes out to the other one crosses the pair.
for n in 0 1; do
	sysctl -q -w net.ipv4.conf.v$n.rp_filter=0 net.ipv4.conf.v$n.accept_local=1
	ip link set v$n addr 02:00:00:00:00:0$n
	ip addr add 10.0.0.$((n + 1))/24 dev v$n
	ip addr add fd00::$((n + 1))/64 dev v$n nodad
	ip link set v$n up
	ip rule add pref 1$n iif v$n lookup 100
	ip route add local 10.0.0.$((n + 1)) dev v$n table 100
	ip -6 rule add pref 1$n iif v$n lookup 100
	ip -6 route add local fd00::$((n + 1)) dev v$n table 100
done
sysctl -q -w net.ipv4.conf.all.rp_filter=0
for n in 0 1; do
	ip route del local 10.0.0.$((n + 1)) dev v$n table local
	ip -6 route del local fd00::$((n + 1)) dev v$n table local || ip -6 route show table local >&2
	ip -6 neigh replace fd00::$((2 - n)) lladdr 02:00:00:00:00:0$((1 - n)) dev v$n nud permanent
	ip neigh replace 10.0.0.$((2 - n)) lladdr 02:00:00:00:00:0$((1 - n)) dev v$n nud permanent
	rdma link add rxe$n type rxe netdev v$n
done
sleep 1
ls /dev/infiniband >&2
ibv_devinfo -v 2>&1 | grep -E 'hca_id|state|GID|active_mtu' >&2

# record NAME TAP SERVER CLIENT runs two programs and records an end of the pair.
record() {
	tcpdump -i "$2" -U -w "$1.pcap" --time-stamp-precision=nano udp port 4791 2>/dev/null &
	dump=$!
	sleep 1
	$3 >"$1.server" 2>&1 &
	server=$!
	sleep 2
	$4 >"$1.client" 2>&1 || { echo "$1 failed:"; cat "$1.server" "$1.client"; dmesg | tail -5; } >&2
	wait $server || true
	sleep 1
	kill $dump
	wait $dump || true
	echo "== $1"
	base64 "$1.pcap"
	echo "=="
}

# perftest NAME TAP PROGRAM OPTION... has rxe0 ask and rxe1 answer.
perftest() {
	name=$1 tap=$2 program=$3
	shift 3
	record "$name" "$tap" "$program -d rxe1 -F -t 4 $*" "$program -d rxe0 -F -t 4 $* 127.0.0.1"
}
perftest write v1 ib_write_bw -x 1 -n 5 -s 5000
perftest read v1 ib_read_bw -x 1 -n 5 -s 3000
perftest send v1 ib_send_bw -x 1 -n 5 -s 101
perftest atomic v1 ib_atomic_bw -x 1 -n 5
perftest write-ipv6 v1 ib_write_bw -x 2 -n 5 -s 1500
record rping v1 "rping -s -a 10.0.0.2 -C 3 -S 100" "rping -c -a 10.0.0.2 -I 10.0.0.1 -C 3 -S 100"

# Lost before the tap at the receiver; behind the tap at the sender, in the receiver's
# ingress; and of what comes back, so that parts of READs are asked for again. What an
# egress filter drops rxe is told of, and sends at once again.
tc qdisc add dev v0 root netem loss 8%
perftest write-lost-before v1 ib_write_bw -x 1 -n 20 -s 2000
tc qdisc del dev v0 root
tc qdisc add dev v1 clsact
tc filter add dev v1 ingress matchall action gact pass random determ drop 9
perftest write-lost-behind v0 ib_write_bw -x 1 -n 12 -s 3000
perftest send-lost-behind v0 ib_send_bw -x 1 -n 12 -s 3000
tc qdisc del dev v1 clsact
tc qdisc add dev v0 clsact
tc filter add dev v0 ingress matchall action gact pass random determ drop 7
perftest read-lost v1 ib_read_bw -x 1 -n 12 -s 3000
perftest atomic-lost v1 ib_atomic_bw -x 1 -n 20
tc qdisc del dev v0 clsact
tc qdisc add dev v0 root netem duplicate 10%
perftest write-duplicated v1 ib_write_bw -x 1 -n 12 -s 3000
tc qdisc del dev v0 root

# A packet with ECT gets a mark where another one is lost; rxe does nothing about it.
tc qdisc add dev v0 root netem loss 20% ecn
marked="ib_write_bw -R -F -T 2 -n 8 -s 3000"
record write-marked v1 "$marked -d rxe1" "$marked 10.0.0.2"
