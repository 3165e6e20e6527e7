// Package perftest measures RDMA as the perftest programs do (ib_write_bw, ib_write_lat,
// ib_send_bw, ib_send_lat, ib_read_bw, ib_atomic_bw), over queue pairs of package roce. It speaks
// their dialogue over TCP, so that the other end can be this package or an unmodified perftest
// program, and prints the same tables.
//
// # Versions
//
// The dialogue is the one of linux-rdma/perftest 5.70 to 6.29. Version 5.70 is the first with which
// later ones interoperate. Debian 12 has 6.06 (4.5+0.17). Up to 6.27 the dialogue is the same. From
// 6.28 on, two programs of at least that version compare a structure in the memory layout of
// libibverbs, which depends on how they were built. So this end announces 6.27, and newer programs
// leave the comparison out, as they do for older peers. The message that an older version sends at
// the end ("done") is ignored.
//
// With -z, the dialogue runs over one more queue pair, which rdma_cm connects: each message is a
// SEND, keys are structures, and nothing goes over TCP. The same holds with -R, where rdma_cm also
// connects the queue pairs that are measured.
//
// # What is missing
//
// UC, UD, XRC, SRQ, events, rate limits, several ports, and infinite runs.
package perftest

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"railbed/internal/infiniband"
)

// Test is a kind of measurement.
type Test uint8

// Tests.
const (
	WriteBW Test = 1 + iota
	WriteLat
	SendBW
	SendLat
	ReadBW
	AtomicBW
)

var testNames = map[Test]string{WriteBW: "write-bw", WriteLat: "write-lat", SendBW: "send-bw",
	SendLat: "send-lat", ReadBW: "read-bw", AtomicBW: "atomic-bw"}

// String returns the name of the test's command.
func (t Test) String() string { return testNames[t] }

// Latency reports whether a test measures round trips rather than bandwidth.
func (t Test) Latency() bool { return t == WriteLat || t == SendLat }

// send reports whether the receiver takes part, by posting receives.
func (t Test) send() bool { return t == SendBW || t == SendLat }

// reads reports whether the peer answers with data.
func (t Test) reads() bool { return t == ReadBW || t == AtomicBW }

// title returns the test's name in the programs' output.
func (t Test) title(c *Config) string {
	switch t {
	case SendBW, SendLat:
		return "Send"
	case ReadBW:
		return "RDMA_Read"
	case AtomicBW:
		if c.CompareSwap {
			return "Atomic CMP_AND_SWAP"
		}
		return "Atomic FETCH_AND_ADD"
	}
	return "RDMA_Write"
}

// Limits, which are perftest's except for maxTxDepth: the most that a queue pair of package
// queuepair accepts.
const (
	maxSize       = 8 << 20
	maxIterations = 100_000_000
	maxTxDepth    = 8192
	maxRxDepth    = 16384
	maxQueuePairs = 1024
	DefaultPort   = 18515
)

// Config configures one run. Only Test is required; zero values stand for perftest's defaults.
type Config struct {
	Test Test
	// Server is the other end's host, to which this end connects. Without it this end is the
	// server.
	Server string
	// Port is the port of TCP and of rdma_cm. Default 18515.
	Port int
	// NIC is the interface whose first address is used. Default: the interface that reaches the
	// peer.
	NIC string
	// MTU is the largest payload of a packet, in bytes. Default: the largest that the link carries.
	MTU int
	// Size is the size of a message in bytes. Default 65536, for latency tests 2, for atomics 8.
	// All selects every power of two from 2 to 8 MiB instead.
	Size int
	All  bool
	// Iterations is the number of messages of each queue pair. Default 1000, for WriteBW 5000.
	Iterations int
	// Duration is the length of the run, in place of Iterations. Margin is left out of the
	// measurement at either end. Default of Margin: a quarter of Duration.
	Duration, Margin time.Duration
	// Infinitely repeats a bandwidth test in one direction until its context ends, with a row after each
	// Duration (default 5 s). Default of Margin then: 0.
	Infinitely bool
	// TxDepth and RxDepth are the requests and receives that are posted at once to a queue pair.
	// Defaults 128 and 512.
	TxDepth, RxDepth int
	// QueuePairs is the number of queue pairs. Default 1.
	QueuePairs int
	// PostList is the number of requests that are posted at a time. Default: as many as there is
	// room for.
	PostList int
	// CQModeration is the number of requests between two recorded times. Default 100.
	CQModeration int
	// Reads is the largest number of READs or atomics in flight. Default 16.
	Reads int
	// Bidirectional makes both ends send.
	Bidirectional bool
	// CompareSwap selects compare-and-swap in place of fetch-and-add.
	CompareSwap bool
	// NoPeak leaves the peak out. With more than 20,000 iterations it is always left out.
	NoPeak bool
	// Gigabits prints Gb/s instead of MiB/s.
	Gigabits bool
	// QPTimeout is the code of the time that an answer may take (IBTA 9.7.6.1.3). Default 14, 67
	// ms.
	QPTimeout int
	// TOS is the traffic class of packets: a DSCP of 6 bits above ECN. Default DSCP 26. Negative
	// stands for 0.
	TOS int
	// GIDIndex is printed only.
	GIDIndex int
	// CM makes rdma_cm connect the queue pairs (-R). ExchangeCM makes rdma_cm connect one more
	// queue pair, which carries the dialogue in place of TCP (-z). CM implies ExchangeCM.
	CM, ExchangeCM bool
	// Verify makes this end check that received data is the data that an end of this package sends.
	Verify bool
}

// complete checks a config and sets defaults.
func (c *Config) complete() error {
	size, iterations, depth := 65536, 1000, 128
	switch {
	case c.Test.Latency():
		size, depth = 2, 1
	case c.Test == AtomicBW:
		size = 8
	case c.Test == WriteBW:
		iterations = 5000
	}
	if c.Test == AtomicBW && (c.All || c.Size != 0 && c.Size != 8) {
		return errors.New("the size of atomic operations is 8 bytes: remove the size")
	}
	if c.Test.Latency() && (c.Bidirectional || c.QueuePairs > 1) {
		return fmt.Errorf("%v has one queue pair, and both ends always send: remove qp and bidirectional",
			c.Test)
	}
	c.Size, c.Iterations, c.TxDepth = cmp.Or(c.Size, size), cmp.Or(c.Iterations, iterations),
		cmp.Or(c.TxDepth, depth)
	c.RxDepth, c.Port, c.QueuePairs = cmp.Or(c.RxDepth, 512), cmp.Or(c.Port, DefaultPort),
		cmp.Or(c.QueuePairs, 1)
	c.ExchangeCM = c.ExchangeCM || c.CM
	c.CQModeration, c.Reads = cmp.Or(c.CQModeration, 100), cmp.Or(c.Reads, 16)
	c.QPTimeout = cmp.Or(c.QPTimeout, 14)
	if c.Infinitely {
		if c.Test.Latency() || c.Bidirectional {
			return errors.New("run_infinitely is for bandwidth in one direction: remove it, or bidirectional")
		}
		c.Duration, c.NoPeak = cmp.Or(c.Duration, 5*time.Second), true
	} else if c.Duration > 0 {
		c.Margin, c.NoPeak = cmp.Or(c.Margin, c.Duration/4), true
	}
	for _, r := range []struct {
		name          string
		value, lo, hi int
	}{
		{"port", c.Port, 1, 65535}, {"size", c.Size, 1, maxSize}, {"iters", c.Iterations, 5, maxIterations},
		{"tx-depth", c.TxDepth, 1, maxTxDepth},
		{"rx-depth", c.RxDepth, 1, maxRxDepth}, {"qp", c.QueuePairs, 1, maxQueuePairs},
		{"cq-mod", c.CQModeration, 1, 1024}, {"outs", c.Reads, 1, 128},
		{"post_list", c.PostList, 0, c.TxDepth}, {"qp-timeout", c.QPTimeout, 1, 31}, {"tos", c.TOS, -1, 255},
	} {
		if r.value < r.lo || r.value > r.hi {
			return fmt.Errorf("%s %d, want %d to %d", r.name, r.value, r.lo, r.hi)
		}
	}
	if c.MTU != 0 && infiniband.MTUCode(c.MTU) == 0 {
		return fmt.Errorf("mtu %d, want 256, 512, 1024, 2048 or 4096", c.MTU)
	}
	if c.Duration < 0 || c.Margin < 0 || c.Duration > 0 && c.Duration <= 2*c.Margin {
		return fmt.Errorf("duration %v, want more than two margins of %v", c.Duration, c.Margin)
	}
	if c.Duration > 0 && c.All {
		return errors.New("a duration and all sizes: want one of them")
	}
	if c.Duration == 0 {
		c.TxDepth, c.RxDepth = min(c.TxDepth, c.Iterations), min(c.RxDepth, c.Iterations)
	}
	c.CQModeration = min(c.CQModeration, c.TxDepth)
	c.NoPeak = c.NoPeak || c.Iterations > 20000
	return nil
}

// sizes returns the sizes of messages, in order.
func (c *Config) sizes() []int {
	if !c.All {
		return []int{c.Size}
	}
	var all []int
	for size := 2; size <= maxSize; size *= 2 {
		all = append(all, size)
	}
	return all
}

// Errors that a caller distinguishes with errors.Is.
var (
	// ErrConfig: the config is invalid.
	ErrConfig = errors.New("invalid options")
	// errPeer: the peer sent something that does not belong to the dialogue.
	errPeer = errors.New("the peer does not speak perftest's dialogue")
	// errData: received data differs from the data that was sent.
	errData = errors.New("wrong data")
)
