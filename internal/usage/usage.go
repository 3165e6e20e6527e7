// Package usage reads what the kernel counts of a node: the packets that its network stack dropped, and the
// processor time that its programs had and waited for. The counters start with the node.
package usage

import "time"

// Reasons for which a node's kernel drops packets. Beside each are the counters that it sums up, and the
// functions of Linux that count (net/ipv4, of the same names with v6 in net/ipv6). Each of these functions
// frees the packet that it counts.
const (
	// UDPReceiveBuffer: the socket had no room. RcvbufErrors, by __udp_queue_rcv_skb. A multicast datagram
	// counts for each socket.
	UDPReceiveBuffer = "udp-receive-buffer"
	// UDPNoSocket: no socket has the port. NoPorts, by __udp4_lib_rcv.
	UDPNoSocket = "udp-no-socket"
	// UDPChecksum and TCPChecksum: InCsumErrors, by udp_queue_rcv_one_skb, by udp_recvmsg through
	// __first_packet_length, and by tcp_v4_rcv.
	UDPChecksum = "udp-checksum"
	TCPChecksum = "tcp-checksum"
	// TCPListenQueue: a listener's queue was full or it had no memory. ListenDrops, by tcp_conn_request and
	// tcp_v4_syn_recv_sock, for each SYN and each last ACK.
	TCPListenQueue = "tcp-listen-queue"
	// TCPReceiveQueue: TCPBacklogDrop, by tcp_add_backlog; TCPRcvQDrop, by tcp_data_queue; TCPOFODrop, by
	// tcp_data_queue_ofo. RcvPruned is left out: tcp_prune_queue counts there the segments that these two
	// then count.
	TCPReceiveQueue = "tcp-receive-queue"
	// IPReceive: the header was damaged, the TTL ended (ip_forward), the address is another host's, or
	// memory was short. InHdrErrors, InAddrErrors, and InDiscards of IPv4. ip6_rcv_core counts in InDiscards
	// of IPv6 whatever reaches an interface without IPv6, such as the discovery of neighbours.
	IPReceive = "ip-receive"
	// IPNoRoute: OutNoRoutes, by ip_queue_xmit and udp_sendmsg, of packets that the node itself sends;
	// InNoRoutes, by ip_error, of packets that it forwards.
	IPNoRoute = "ip-no-route"
	// IPTooBig: larger than the MTU of the next link, and not to be fragmented. FragFails, by ip_forward and
	// ip_fragment.
	IPTooBig = "ip-too-big"
	// IPReversePath: the way back to the source leads through another interface. IPReversePathFilter, by
	// ip_rcv_finish_core.
	IPReversePath = "ip-reverse-path"
	// IPReassembly counts datagrams of which fragments are missing, not fragments. ReasmFails, by ip_expire
	// and ip_frag_queue. The drop of the missing fragment counts at its own place.
	IPReassembly = "ip-reassembly"
)

// Counters with such names that are no drops: SndbufErrors and OutDiscards. udp_sendmsg, __ip_append_data and
// raw_send_hdrinc count in them each send that returns EAGAIN, ENOBUFS or EPERM to its program, which still
// has the datagram. A datagram that a queue dropped is in both, too, but the queue's own counter has it
// (net_xmit_errno).

// Reasons are all reasons.
var Reasons = []string{UDPReceiveBuffer, UDPNoSocket, UDPChecksum, TCPChecksum, TCPListenQueue,
	TCPReceiveQueue, IPReceive, IPNoRoute, IPTooBig, IPReversePath, IPReassembly}

// Forwarding are the reasons for which a stack drops packets that it would forward.
var Forwarding = []string{IPReceive, IPNoRoute, IPTooBig, IPReversePath}

// Stack has the counts of a node's network stack.
type Stack struct {
	// Received counts IP packets that came in, of IPv4 and IPv6 (RFC 4293, ipIfStatsInReceives).
	Received uint64 `json:"received"`
	// Drops counts packets by reason. A reason without packets is absent.
	Drops map[string]uint64 `json:"drops,omitempty"`
}

// Output counts what a node's stack had to send. Behind these counters a queue without a carrier drops each
// packet (noop_enqueue). Older kernels, such as Linux 6.1, count these drops nowhere, and newer ones in the
// interface's tx_dropped.
type Output struct {
	// Requests counts IP packets of programs and of the stack itself (RFC 4293, ipIfStatsOutRequests). It has
	// neither forwarded packets nor those of packet sockets.
	Requests uint64 `json:"requests"`
	// Groups counts IP packets to multicast groups and to all hosts. Kernels send some by themselves: they
	// look for routers and report their groups.
	Groups uint64 `json:"groups"`
	// Passed counts the frames that interfaces sent, the loopback among them.
	Passed uint64 `json:"passed"`
}

// Unsent is the number of IP packets since before that were to be sent and that no interface sent. It is too
// small if an interface sent fragments or segments of some packets, or ARP.
func (o Output) Unsent(before Output) uint64 {
	requests, passed := o.Requests-before.Requests, o.Passed-before.Passed
	return requests - min(requests, passed)
}

// Programs is the processor time of a node's programs, of all threads together.
type Programs struct {
	// Ran is the time on a processor.
	Ran time.Duration `json:"ran_ns"`
	// Waited is the time in which a thread could have run and had no processor
	// (Documentation/scheduler/sched-stats.rst of Linux).
	Waited time.Duration `json:"waited_ns"`
	// Throttled is the time in which the node's limit of CPUs held its programs back, over all CPUs. Waited
	// has it, too.
	Throttled time.Duration `json:"throttled_ns,omitempty"`
}

// Busy is a program that used processors.
type Busy struct {
	// Name is the name of its executable, at most 15 bytes long (comm in proc_pid_stat(5)).
	Name string `json:"name"`
	// CPUs is the number of processors that its processes kept busy, on average.
	CPUs float64 `json:"cpus"`
}
