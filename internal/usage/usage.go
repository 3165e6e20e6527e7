// Package usage reads what the kernel counts of a node: the packets that its network stack dropped, and the
// processor time that its programs had and waited for. The counters start with the node.
package usage

import "time"

// Reasons for which a node's kernel drops packets. Beside each are the kernel's counters that it sums up
// (Documentation/networking/snmp_counter.rst of Linux, RFC 4113 for UDP, RFC 4293 for IP).
const (
	UDPReceiveBuffer = "udp-receive-buffer" // the socket had no room: RcvbufErrors.
	UDPSendBuffer    = "udp-send-buffer"    // SndbufErrors.
	UDPNoSocket      = "udp-no-socket"      // no socket has the port: NoPorts.
	UDPChecksum      = "udp-checksum"       // InCsumErrors.
	TCPListenQueue   = "tcp-listen-queue"   // full, or without memory: ListenDrops.
	TCPReceiveQueue  = "tcp-receive-queue"  // TCPBacklogDrop, TCPRcvQDrop, RcvPruned, TCPOFODrop.
	IPReceive        = "ip-receive"         // InDiscards, InHdrErrors, InAddrErrors.
	IPSend           = "ip-send"            // OutDiscards, OutNoRoutes.
	IPReassembly     = "ip-reassembly"      // ReasmFails.
)

// Reasons are all reasons.
var Reasons = []string{UDPReceiveBuffer, UDPSendBuffer, UDPNoSocket, UDPChecksum, TCPListenQueue,
	TCPReceiveQueue, IPReceive, IPSend, IPReassembly}

// Stack has the counts of a node's network stack.
type Stack struct {
	// Received counts IP packets that came in, of IPv4 and IPv6 (RFC 4293, ipIfStatsInReceives).
	Received uint64 `json:"received"`
	// Drops counts packets by reason. A reason without packets is absent.
	Drops map[string]uint64 `json:"drops,omitempty"`
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
