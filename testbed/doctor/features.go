package doctor

import (
	"os"

	"railbed/internal/kernel"
	"railbed/internal/vmimage"
)

// place is the place in which a feature is tried.
type place int

const (
	// onHost is a child in the caller's own namespaces. It only reads, or changes only itself.
	onHost place = iota
	// inNamespaces is a child in its own network, mount, PID, IPC and UTS namespaces. If the caller
	// is not root it also has its own user namespace.
	inNamespaces
	// asOrdinaryUser is inNamespaces as an ordinary user. Root drops to UID 65534.
	asOrdinaryUser
)

// rootlessCost is the row of a feature in the table of the costs of rootless operation.
type rootlessCost int

const (
	notInTable rootlessCost = iota
	worksRootless
	failsRootless
)

// need is the set of users who need a feature.
type need int

const (
	optional need = iota
	neededByAll
	neededByUsers // by users other than root
)

// feature is a row of the table: the trial, and its meaning for a user.
type feature struct {
	name     string
	place    place
	need     need
	rootless rootlessCost
	tried    string
	gates    string
	remedy   string
	// try returns details, or an error that says why the feature is missing. An error that wraps
	// errUnknown means that the result is unknown.
	try func() (detail string, err error)
}

func (f feature) isNeeded() bool {
	return f.need == neededByAll || f.need == neededByUsers && os.Geteuid() != 0
}

const (
	remedyNamespaces = "a kernel with CONFIG_NAMESPACES; in a container, run it with the capability " +
		"SYS_ADMIN, or run railbed outside"
	remedyUserNS = "sysctl -w kernel.unprivileged_userns_clone=1 (Debian), " +
		"kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces=15000; or run " +
		"railbed as root"
	remedyRoot     = "run railbed as root"
	remedyRealTime = remedyRoot + ", or an rtprio limit in /etc/security/limits.conf. If the kernel " +
		"refuses root, the control group has no share of real-time threads (CONFIG_RT_GROUP_SCHED): run " +
		"railbed from the root group, or boot with rt_group_sched=0"
	remedyModules = "on Ubuntu: apt-get install linux-modules-extra-$(uname -r); elsewhere a kernel " +
		"with the module"
)

// features is the table, in the order in which it is printed. An init sets it because some trials
// run the table's own children.
var features []feature

func init() {
	features = append(features, namespaceFeatures()...)
	features = append(features, linkFeatures()...)
	features = append(features, trafficFeatures()...)
	features = append(features, socketFeatures()...)
	features = append(features, processFeatures()...)
	features = append(features, hostFeatures()...)
	takeOver()
}

func namespaceFeatures() []feature {
	rows := []feature{{
		name:  "user-namespace",
		need:  neededByUsers,
		tried: "clone a user namespace with a network namespace in it, as an ordinary user",
		gates: "every command of a user who is not root", remedy: remedyUserNS, try: tryUserNamespace,
	}}
	for _, row := range []struct{ name, gates string }{
		{"net-namespace", "nodes and switches: each has its own network stack"},
		{"mount-namespace", "nodes: own hosts file, /tmp, /dev/shm and /sys"},
		{"pid-namespace", "lifetime: the kernel ends everything when the supervisor ends"},
		{"ipc-namespace", "nodes: no shared memory between two nodes"},
		{"uts-namespace", "nodes: own host name"},
	} {
		rows = append(rows, feature{
			name: row.name, need: neededByAll, tried: "clone it", gates: row.gates,
			remedy: remedyNamespaces, try: tryNamespace(row.name),
		})
	}
	return append(rows,
		feature{
			name: "proc-mount", place: inNamespaces, need: neededByAll, rootless: worksRootless,
			tried: "mount proc of the new PID namespace", gates: "nodes: they see their own processes only",
			remedy: "in a container: unmask /proc (docker run --security-opt systempaths=unconfined)",
			try:    tryProcMount,
		},
		feature{
			name: "sysfs-mount", place: inNamespaces, need: neededByAll, rootless: worksRootless,
			tried:  "mount sysfs of the new network namespace",
			gates:  "nodes: /sys/class/net shows their own NICs",
			remedy: "in a container: unmask /sys (docker run --security-opt systempaths=unconfined)",
			try:    trySysfsMount,
		},
		feature{
			name:     "run-netns",
			rootless: failsRootless,
			tried:    "check write access to /run/netns, or to /run if it does not exist",
			gates:    "names of nodes for ip netns exec", remedy: remedyRoot, try: tryRunNetns,
		},
	)
}

func linkFeatures() []feature {
	return []feature{
		{
			name:     "veth",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "add a pair",
			gates:    "every link", remedy: "modprobe veth; " + remedyModules, try: quiet(tryVeth),
		},
		{
			name: "offloads", place: inNamespaces, need: neededByAll, rootless: worksRootless,
			tried:  "switch segmentation offload of a veth off and read it back",
			gates:  "frames are packets as on a wire",
			remedy: "a kernel with ethtool support",
			try:    tryOffloads,
		},
		{
			name: "bridge", place: inNamespaces, rootless: worksRootless, tried: "add one",
			gates:  "switches of kind bridge",
			remedy: "modprobe bridge; " + remedyModules,
			try:    quiet(tryBridge),
		},
		{
			name:     "tap",
			place:    inNamespaces,
			rootless: worksRootless,
			tried:    "open /dev/net/tun and make a tap",
			gates:    "NICs of virtual machines",
			remedy: "modprobe tun; chmod 666 /dev/net/tun, as udev does, for ordinary users; in a " +
				"container: --device /dev/net/tun",
			try: tryTap,
		},
	}
}

func trafficFeatures() []feature { return append(shapingFeatures(), routingFeatures()...) }

func shapingFeatures() []feature {
	return []feature{
		{
			name:     "tbf",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "set it on a loopback",
			gates:    "the rate of every link",
			remedy:   "modprobe sch_tbf; " + remedyModules,
			try:      quiet(kernel.ProbeTBF),
		},
		{
			name: "netem", place: inNamespaces, tried: "set it on a loopback",
			gates:  "delay, jitter, loss, duplication and corruption of links",
			remedy: "modprobe sch_netem; " + remedyModules,
			try:    quiet(kernel.ProbeNetem),
		},
		{
			name: "clsact", place: inNamespaces, rootless: worksRootless, tried: "set it on a veth",
			gates:  "NICs of virtual machines",
			remedy: "modprobe sch_ingress; " + remedyModules,
			try:    quiet(tryClsact),
		},
		{
			name:   "psched-clock",
			tried:  "read /proc/net/psched",
			gates:  "precise shaping: tc needs a high-resolution timer",
			remedy: "a kernel with CONFIG_HIGH_RES_TIMERS", try: tryPsched,
		},
	}
}

func routingFeatures() []feature {
	return []feature{
		{
			name:     "ipv6",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "bind a UDP socket to ::1",
			gates:    "every node has an IPv6 address", remedy: "boot without ipv6.disable=1", try: tryIPv6,
		},
		{
			name:     "policy-routing",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "add a rule",
			gates:    "a node's traffic leaves by the NIC of its rank",
			remedy:   "a kernel with CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES",
			try:      quiet(tryRule),
		},
		{
			name:     "forwarding",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "switch it on for IPv4 and IPv6",
			gates:    "switches of kind router", remedy: "make /proc/sys/net writable", try: tryForwarding,
		},
		{
			name:     "ecmp-hash",
			place:    inNamespaces,
			need:     neededByAll,
			rootless: worksRootless,
			tried:    "set fib_multipath_hash_policy to 1 for IPv4 and IPv6",
			gates:    "flows between two nodes spread over equal-cost paths",
			remedy:   "a kernel with CONFIG_IP_ROUTE_MULTIPATH",
			try:      tryECMPHash,
		},
		{
			name: "ecmp-seed", place: inNamespaces, tried: "set fib_multipath_hash_seed",
			gates: "each router hashes flows with its own seed", remedy: "Linux 6.11 or later",
			try: tryECMPSeed,
		},
	}
}

func socketFeatures() []feature {
	return []feature{
		{
			name:     "packet-socket",
			place:    inNamespaces,
			rootless: worksRootless,
			tried:    "open one with a TPACKET_V3 ring",
			gates:    "capture",
			remedy:   "modprobe af_packet; in a container: the capability NET_RAW",
			try:      tryPacketSocket,
		},
		{
			name: "rcvbufforce", place: inNamespaces, rootless: failsRootless, tried: "set SO_RCVBUFFORCE",
			gates:  "socket buffers above net.core.rmem_max (no command needs them yet)",
			remedy: remedyRoot + ", or raise net.core.rmem_max",
			try:    tryReceiveBufferForce,
		},
		{
			name: "af-xdp", place: inNamespaces, tried: "open a socket and register memory with it",
			gates:  "fast packet I/O between nodes and soft switches; otherwise they use packet sockets",
			remedy: "a kernel with CONFIG_XDP_SOCKETS",
			try:    tryXDPSocket,
		},
		{
			name: "kernel-bypass", place: inNamespaces, rootless: worksRootless,
			tried: "share a NIC's queues by a sealed memfd over an abstract socket, and pass a frame each " +
				"way by doorbells",
			gates: "nic-path: bypass, by which ranks over rd, roce and in-network pass by the kernel to " +
				"soft switches",
			remedy: "a kernel with CONFIG_MEMFD_CREATE; in a container: a seccomp profile that allows " +
				"memfd_create and socketpair; or nic-path: kernel",
			try: tryKernelBypass,
		},
		{
			name:     "bpf-tc",
			place:    inNamespaces,
			rootless: failsRootless,
			tried:    "load a program of type SCHED_CLS",
			gates:    "faults of packets at kernel links, bridges and routers",
			remedy:   remedyRoot + ", on a kernel with CONFIG_BPF_SYSCALL",
			try:      tryBPF(bpfSchedCLS),
		},
		{
			name:     "bpf-xdp",
			place:    inNamespaces,
			rootless: failsRootless,
			tried:    "load a program of type XDP",
			gates:    "XDP programs (no command needs them yet)",
			remedy:   remedyRoot + ", on a kernel with CONFIG_BPF_SYSCALL",
			try:      tryBPF(bpfXDP),
		},
	}
}

func processFeatures() []feature {
	return []feature{
		{
			name:     "nice",
			rootless: failsRootless,
			tried:    "set nice -20",
			gates:    "priority for soft switches where real-time threads are not allowed",
			remedy:   remedyRoot + ", or a nice limit of -20 in /etc/security/limits.conf", try: tryNice,
		},
		{
			name:     "sched-rr",
			rootless: failsRootless,
			tried:    "set SCHED_RR",
			gates:    "soft switches and recorders keep time on a busy host",
			remedy:   remedyRealTime, try: tryRR,
		},
		{
			name: "other-users", rootless: failsRootless, tried: "start a process as uid 1",
			gates: "daemons in nodes that drop their privileges", remedy: remedyRoot, try: tryOtherUser,
		},
		{
			name: "cgroup-v2", tried: "make and remove a group", gates: "CPU and memory limits of nodes",
			remedy: remedyRoot + ", or a delegated group: systemd-run --user --scope -p Delegate=yes",
			try:    tryCgroup2,
		},
		{
			name:   "cgroup-v1",
			tried:  "make and remove a group in each hierarchy",
			gates:  "CPU and memory limits of nodes where cgroup-v2 lacks the controllers",
			remedy: "not needed where cgroup-v2 has the controllers cpu and memory", try: tryCgroup1,
		},
		{
			name:   "descriptors",
			need:   neededByAll,
			tried:  "read the hard limit of open files; " + descriptorRule,
			gates:  "the size of a testbed",
			remedy: "raise ulimit -Hn, or LimitNOFILE of the service", try: tryDescriptors,
		},
		{
			name:   "memory",
			tried:  "read MemAvailable; 512 MiB are enough for 8 nodes with a workload",
			gates:  "the size of a testbed",
			remedy: "a machine with more memory", try: tryMemory,
		},
	}
}

func hostFeatures() []feature {
	return []feature{
		{
			name: "docker", tried: "ask its socket", gates: "containers as nodes (runtime: docker), for root",
			remedy: "apt-get install docker.io and start it, or name its socket with " +
				"DOCKER_HOST=unix:///PATH",
			try: tryDocker,
		},
		{
			name:   "cni-plugins",
			tried:  "look for them and for iptables",
			gates:  "management networks of nodes, outside the fabric (management), for root",
			remedy: "apt-get install containernetworking-plugins iptables", try: tryCNIPlugins,
		},
		{
			name:  "kvm",
			tried: "open /dev/kvm and make an empty machine",
			gates: "fast virtual machines as nodes, if they boot with it; otherwise they are 10 to 20 " +
				"times slower",
			remedy: "a host with virtualisation; chgrp kvm /dev/kvm && chmod 660 /dev/kvm, as udev does, " +
				"and the group kvm for an ordinary user",
			try: tryKVM,
		},
		{
			name: "qemu", tried: "run it", gates: "virtual machines as nodes (runtime: vm)",
			remedy: "apt-get install qemu-system-x86", try: tryQEMU,
		},
		{
			name:   "vm-kernel",
			tried:  "look for a kernel with modules that a guest can boot",
			gates:  "virtual machines as nodes (runtime: vm)",
			remedy: vmimage.Remedy, try: tryVMKernel,
		},
		{
			name: "rdma-rxe", place: inNamespaces, tried: "make a device in a network namespace of its own",
			gates: "rdma: rxe in nodes with the host's kernel",
			remedy: "runtime: vm, which has it on any host; or Linux 7.1 or later as root, with modprobe " +
				"rdma_rxe rdma_ucm and rdma system set netns shared",
			try: tryRXE,
		},
		{
			name: "perftest", tried: "look for ib_write_bw", gates: "scenarios that measure RDMA with it",
			remedy: "apt-get install perftest ibverbs-providers", try: tryInstalled("ib_write_bw"),
		},
		{
			name:   "frr",
			tried:  "ask its zebra for the version",
			gates:  "routing: {daemon: frr}, routers that find their routes",
			remedy: "apt-get install --no-install-recommends frr, and root", try: tryFRR,
		},
		{
			name: "tshark", tried: "run it", gates: "reading captures on a terminal; some tests",
			remedy: "apt-get install tshark", try: tryProgram("tshark", "--version"),
		},
		{
			name: "wireshark", tried: "look for it", gates: "watching a live capture in a window",
			remedy: "apt-get install wireshark", try: tryWireshark,
		},
		{
			name: "wireshark-plugin", tried: "look for Railbed's interfaces in the output of tshark -D",
			gates:  "running testbeds in Wireshark's list of interfaces",
			remedy: "railbed wireshark install, and apt-get install tshark", try: tryWiresharkPlugin,
		},
		{
			name: "ping", tried: "run it", gates: "railbed exec NODE -- ping",
			remedy: "apt-get install iputils-ping", try: tryProgram("ping", "-V"),
		},
	}
}
