package transportstest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func memorySuite(seed uint64, broken flaws) Suite {
	fabric := NewFabric(seed)
	fabric.flaws = broken
	return Suite{Open: func(testing.TB) transports.Endpoint { return fabric.Open() }}
}

func TestFabricConforms(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			hosttest.Long(t)
			memorySuite(seed, flaws{}).Run(t)
		})
	}
}

// A fabric that delivered in order would hide code that relies on order.
func TestFabricReorders(t *testing.T) {
	fabric := NewFabric(1)
	a, b := fabric.Open(), fabric.Open()
	defer a.Close()
	defer b.Close()
	peer, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]transports.Request, 40)
	for i := range requests {
		requests[i] = transports.Request{Op: transports.OpWriteImm, Peer: peer, Imm: uint32(i)}
	}
	if n, err := a.Post(t.Context(), requests); n != len(requests) || err != nil {
		t.Fatal(n, err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	var order []uint32
	for len(order) < len(requests) {
		if err := b.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		var batch [8]transports.Completion
		for _, c := range batch[:b.Poll(batch[:])] {
			order = append(order, c.Imm)
		}
	}
	if slices.IsSorted(order) {
		t.Errorf("40 messages came in the order in which they were posted")
	}
}

// recorder is a testing.TB that remembers failures instead of reporting them.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failures runs one case against a suite and returns what it complained of.
func failures(t *testing.T, s Suite, name string) []string {
	i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(r, cases[i].run)
	}()
	<-done
	return r.failures
}

// TestBrokenEndpointsAreRejected breaks the fabric in one way at a time; the
// case that is there for it must go red.
func TestBrokenEndpointsAreRejected(t *testing.T) {
	broken := []struct {
		name  string
		flaws flaws
		cases []string
		racy  bool // the flaw is a data race, which -race would report first
	}{
		{"immediate before its bytes", flaws{immBeforeData: true}, []string{"immediate-after-bytes"}, true},
		{"completion before the bytes", flaws{completeBeforeData: true}, []string{"completion-after-bytes"},
			true},
		{"buffer read after its completion", flaws{readAfterCompletion: true},
			[]string{"buffer-returns-with-completion"}, true},
		{"completion lost", flaws{loseCompletion: true},
			[]string{"many-outstanding", "several-peers", "write-is-silent"}, false},
		{"immediate lost", flaws{loseImm: true},
			[]string{"many-outstanding", "several-peers", "back-pressure"}, false},
		{"completion twice", flaws{doubleCompletion: true},
			[]string{"many-outstanding", "concurrency", "several-peers"}, false},
		{"immediate twice", flaws{doubleImm: true}, []string{"many-outstanding", "concurrency"}, false},
		{"byte misplaced", flaws{misplace: true}, []string{"placement", "large-message", "self"}, false},
		{"last byte missing", flaws{truncate: true}, []string{"placement", "large-message"}, false},
		{"wrong immediate", flaws{wrongImm: true}, []string{"placement", "empty-messages"}, false},
		{"wrong peer", flaws{wrongPeer: true}, []string{"several-peers"}, false},
		{"bounds not checked", flaws{ignoreBounds: true}, []string{"refused-access"}, false},
		{"key not checked", flaws{ignoreKey: true}, []string{"refused-access"}, false},
		{"rights not checked", flaws{ignoreAccess: true}, []string{"refused-access"}, false},
		{"revocation ignored", flaws{ignoreRevocation: true}, []string{"revoked-region"}, false},
		{"access error without its name", flaws{accessAsPeerFailure: true},
			[]string{"refused-access", "revoked-region"}, false},
		{"WRITE reported to the receiver", flaws{writeReported: true}, []string{"write-is-silent"}, false},
		{"requests to the dead forgotten", flaws{forgetDeadPeer: true},
			[]string{"dead-peer", "unreachable-peer"}, false},
		{"death not reported", flaws{noPeerDown: true},
			[]string{"dead-peer", "dead-sender", "unreachable-peer"}, false},
		{"the dead are posted to", flaws{postToDeadPeer: true}, []string{"dead-peer"}, false},
		{"requests forgotten at close", flaws{forgetOnClose: true}, []string{"close"}, false},
		{"wait deaf to its context", flaws{waitIgnoresContext: true}, []string{"context"}, false},
		{"post deaf to its context", flaws{postIgnoresContext: true}, []string{"context"}, false},
		{"no back-pressure", flaws{noBackPressure: true}, []string{"back-pressure"}, false},
		{"immediates dropped when full", flaws{dropWhenFull: true}, []string{"back-pressure"}, false},
		{"inline bytes not copied", flaws{keepInline: true}, []string{"inline"}, true},
		{"pieces swapped", flaws{swapPieces: true}, []string{"gather-lists"}, false},
		{"only the first piece", flaws{firstPieceOnly: true}, []string{"gather-lists"}, false},
		{"any number of pieces", flaws{tooManyPieces: true}, []string{"gather-lists"}, false},
		{"cancellation ignored", flaws{ignoreCancel: true}, []string{"cancel-waiting"}, false},
		{"canceled requests forgotten", flaws{loseCanceled: true},
			[]string{"cancel-waiting", "cancel-moving"}, false},
		{"canceled requests delivered", flaws{deliverCanceled: true}, []string{"cancel-waiting"}, true},
		{"holes not told of", flaws{hideHoles: true}, []string{"droppable"}, false},
		{"holes elsewhere", flaws{moveHoles: true}, []string{"droppable"}, false},
		{"more holes than allowed", flaws{dropMore: true}, []string{"droppable"}, false},
		{"holes where there may be none", flaws{dropAnything: true}, []string{"droppable", "large-message"},
			false},
		{"strangers not held back", flaws{dropUnknown: true}, []string{"late-peer"}, false},
	}
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			if b.racy && raceEnabled {
				t.Skip("the flaw is a data race: runs without -race")
			}
			t.Parallel()
			for _, name := range b.cases {
				s := memorySuite(1, b.flaws)
				s.Bound = 500 * time.Millisecond
				if found := failures(t, s, name); len(found) == 0 {
					t.Errorf("case %s passes an endpoint with this flaw: %s", name, b.name)
				} else {
					t.Logf("%s: %s", name, found[0])
				}
			}
		})
	}
}

// The case for leaks counts goroutines of the process and so runs alone.
func TestLeakIsRejected(t *testing.T) {
	s := memorySuite(1, flaws{})
	s.Bound = 500 * time.Millisecond
	open := s.Open
	release := make(chan struct{})
	var leaked sync.WaitGroup
	s.Open = func(t testing.TB) transports.Endpoint {
		leaked.Go(func() { <-release })
		return open(t)
	}
	if found := failures(t, s, "nothing-left"); len(found) == 0 {
		t.Errorf("a goroutine for each endpoint stays and the suite passes")
	}
	close(release)
	leaked.Wait()
}
