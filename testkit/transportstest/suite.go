// Package transportstest is the conformance suite of package transports. Each implementation of
// Endpoint passes it. The suite's own tests show that it rejects endpoints with one defect each.
// Its Fabric is the reference implementation, in memory.
package transportstest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// Suite describes how to make and end the endpoints under test.
type Suite struct {
	// Open makes an endpoint that can reach all others that Open made. The suite closes it.
	Open func(testing.TB) transports.Endpoint
	// Kill ends an endpoint as the death of its process would. Default: Close.
	Kill func(testing.TB, transports.Endpoint)
	// Bound is the longest time that any expected event may take, the detection of a dead peer
	// included. Default hosttest.Bound.
	Bound time.Duration
}

// Run runs every case as a subtest.
func (s Suite) Run(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { s.run(t, c.run) })
	}
}

type testCase struct {
	name string
	run  func(*rig)
}

var cases = []testCase{
	{"addresses", testAddresses},
	{"placement", testPlacement},
	{"write-is-silent", testWriteIsSilent},
	{"empty-messages", testEmptyMessages},
	{"immediate-after-bytes", testImmediateAfterBytes},
	{"completion-after-bytes", testCompletionAfterBytes},
	{"buffer-returns-with-completion", testBufferOwnership},
	{"many-outstanding", testManyOutstanding},
	{"back-pressure", testBackPressure},
	{"large-message", testLargeMessage},
	{"gather-lists", testGatherLists},
	{"unsignaled", testUnsignaled},
	{"inline", testInline},
	{"cancel-waiting", testCancelWaiting},
	{"cancel-moving", testCancelMoving},
	{"droppable", testDroppable},
	{"several-peers", testSeveralPeers},
	{"self", testSelf},
	{"late-peer", testLatePeer},
	{"concurrency", testConcurrency},
	{"context", testContext},
	{"malformed-requests", testMalformedRequests},
	{"refused-access", testRefusedAccess},
	{"revoked-region", testRevokedRegion},
	{"dead-peer", testDeadPeer},
	{"dead-sender", testDeadSender},
	{"unreachable-peer", testUnreachablePeer},
	{"close", testClose},
	{"close-of-a-receiver", testCloseOfReceiver},
	{"close-beside-posts", testCloseBesidePosts},
	{"nothing-left", testNothingLeft},
}

func (s Suite) run(t testing.TB, run func(*rig)) {
	if s.Bound == 0 {
		s.Bound = hosttest.Bound
	}
	if s.Kill == nil {
		s.Kill = func(_ testing.TB, e transports.Endpoint) { e.Close() }
	}
	r := &rig{TB: t, suite: s}
	defer r.closeAll()
	run(r)
}

// rig holds one case's endpoints.
type rig struct {
	testing.TB
	suite Suite
	nodes []*node
}

// node is an endpoint with all completions that it has reported so far.
type node struct {
	transports.Endpoint
	rig      *rig
	sent     []transports.Completion // OpWrite, OpWriteImm
	received []transports.Completion // OpReceive
	down     []transports.Completion // OpPeerDown
	deaf     bool                    // not polled by the rig
}

func (r *rig) open() *node {
	n := &node{Endpoint: r.suite.Open(r.TB), rig: r}
	r.nodes = append(r.nodes, n)
	return n
}

// pair opens two endpoints and adds each to the other.
func (r *rig) pair() (a, b *node, ab, ba transports.Peer) {
	a, b = r.open(), r.open()
	ab, ba = a.add(b), b.add(a)
	return a, b, ab, ba
}

func (r *rig) closeAll() {
	for _, n := range r.nodes {
		if err := n.Close(); err != nil {
			r.Errorf("close endpoint: %v", err)
		}
	}
}

func (n *node) add(other *node) transports.Peer {
	peer, err := n.AddPeer(other.Address())
	if err != nil {
		n.rig.Fatalf("add peer: %v", err)
	}
	return peer
}

// poll takes the ready completions and reports whether there were any.
func (n *node) poll() bool {
	var batch [16]transports.Completion
	got := n.Poll(batch[:])
	for _, c := range batch[:got] {
		switch c.Op {
		case transports.OpWrite, transports.OpWriteImm:
			if n.isDown(c.Peer) {
				n.rig.Errorf("request %d completed after the end of peer %d was reported", c.ID, c.Peer)
			}
			n.sent = append(n.sent, c)
		case transports.OpReceive:
			n.received = append(n.received, c)
		case transports.OpPeerDown:
			if n.isDown(c.Peer) {
				n.rig.Errorf("the end of peer %d was reported twice", c.Peer)
			}
			n.down = append(n.down, c)
		default:
			n.rig.Fatalf("completion with operation %v: %+v", c.Op, c)
		}
	}
	return got > 0
}

// isDown reports whether the end of a peer was reported.
func (n *node) isDown(peer transports.Peer) bool {
	return slices.ContainsFunc(n.down, func(c transports.Completion) bool { return c.Peer == peer })
}

func (r *rig) pollAll() bool {
	progress := false
	for _, n := range r.nodes {
		if !n.deaf && n.poll() {
			progress = true
		}
	}
	return progress
}

// until polls every endpoint until done holds, and fails after the bound.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	deadline := time.Now().Add(r.suite.Bound)
	for !done() {
		if r.pollAll() {
			continue
		}
		if time.Now().After(deadline) {
			r.Fatalf("waited %v for %s", r.suite.Bound, what)
		}
		runtime.Gosched()
		time.Sleep(10 * time.Microsecond)
	}
}

// quietTime is how long quiet looks for completions that should not come.
const quietTime = 20 * time.Millisecond

// quiet checks that no more completions are reported. A case waits first for each completion that
// is still to come.
func (r *rig) quiet() {
	r.Helper()
	r.unchanged(func(n *node) string {
		return fmt.Sprintf("sent %d, received %d, down %d", len(n.sent), len(n.received), len(n.down))
	})
}

// quietUnlessDown is quiet, but peers may fail.
func (r *rig) quietUnlessDown() {
	r.Helper()
	r.unchanged(func(n *node) string {
		return fmt.Sprintf("sent %d, received %d", len(n.sent), len(n.received))
	})
}

// unchanged checks that the counts of the endpoints stay as they are while they are polled.
func (r *rig) unchanged(counts func(*node) string) {
	r.Helper()
	all := func() (text string) {
		for i, n := range r.nodes {
			text += fmt.Sprintf("[%d: %s]", i, counts(n))
		}
		return text
	}
	before := all()
	for end := time.Now().Add(quietTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.pollAll()
	}
	if after := all(); after != before {
		r.Errorf("completions after everything was complete: before %s; after %s", before, after)
	}
}

// post posts all requests, waiting while there is back-pressure.
func (n *node) post(requests ...transports.Request) {
	n.rig.Helper()
	deadline := time.Now().Add(n.rig.suite.Bound)
	for len(requests) > 0 {
		taken, err := n.Post(context.Background(), requests)
		if err != nil {
			n.rig.Fatalf("post: %v", err)
		}
		requests = requests[taken:]
		if len(requests) > 0 && !n.rig.pollAll() {
			if time.Now().After(deadline) {
				n.rig.Fatalf("post: back-pressure for %v with %d requests left", n.rig.suite.Bound,
					len(requests))
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// succeeded checks that exactly the requests 0..count-1 completed, once and without an error.
func (n *node) succeeded(count int) {
	n.rig.Helper()
	seen := make(map[uint64]bool)
	for _, c := range n.sent {
		if c.Err != nil {
			n.rig.Fatalf("request %d: %v", c.ID, c.Err)
		}
		if seen[c.ID] || c.ID >= uint64(count) {
			n.rig.Fatalf("request %d of %d completed twice or was never posted", c.ID, count)
		}
		if c.Missing != 0 {
			n.rig.Fatalf("request %d: %d bytes missing", c.ID, c.Missing)
		}
		seen[c.ID] = true
	}
	if len(seen) != count {
		n.rig.Fatalf("%d of %d requests completed", len(seen), count)
	}
}

// guard is how many bytes before and after a region must not change.
const guard = 256

const canary = 0xa5

// area is registered memory between two guards.
type area struct {
	rig    *rig
	all    []byte
	buf    []byte
	region transports.Region
	remote []byte
}

func (n *node) area(size int) *area { return n.areaWith(size, transports.RemoteWrite) }

func (n *node) areaWith(size int, access transports.Access) *area {
	n.rig.Helper()
	a := &area{rig: n.rig, all: make([]byte, size+2*guard)}
	for i := range a.all {
		a.all[i] = canary
	}
	a.buf = a.all[guard:][:size:size]
	region, err := n.Register(a.buf, access)
	if err != nil {
		n.rig.Fatalf("register %d bytes: %v", size, err)
	}
	a.region, a.remote = region, region.Remote()
	if len(a.remote) > 64 {
		n.rig.Fatalf("region handle of %d bytes, limit 64", len(a.remote))
	}
	return a
}

// untouched checks that bytes [from, to) of the area and its guards are unchanged.
func (a *area) untouched(from, to int) {
	a.rig.Helper()
	a.canaries(a.all[guard+from:guard+to], from)
	a.canaries(a.all[:guard], -guard)
	a.canaries(a.all[len(a.all)-guard:], len(a.buf))
}

func (a *area) canaries(part []byte, offset int) {
	a.rig.Helper()
	for i, b := range part {
		if b != canary {
			a.rig.Fatalf("byte at offset %d of a region of %d bytes was written: %#x", offset+i, len(a.buf),
				b)
		}
	}
}

// fill writes bytes that depend on the message and the position. The step is odd and the multiplier
// prime to 256. So bytes that are shifted by any number of bytes up to 64 KiB, or that belong to
// another message, differ.
func fill(buf []byte, message int) {
	for i := range buf {
		buf[i] = pattern(message, i)
	}
}

func pattern(message, i int) byte {
	return byte(i*7 + i>>8*13 + i>>16*31 + message*97 + message>>8*11)
}

// holds checks that buf holds a message.
func (r *rig) holds(buf []byte, message int) {
	r.Helper()
	r.holdsFrom(buf, message, 0)
}

// refused checks that err is the error of a refused request.
func (r *rig) refused(err error) {
	r.Helper()
	if !errors.Is(err, transports.ErrAccess) {
		r.Errorf("refused request: got %v, want an error that is ErrAccess", err)
	}
}
