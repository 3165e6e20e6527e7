package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/tcp"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func ring(t testing.TB, r Ring) *Ring {
	t.Helper()
	made, err := NewRing(r)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func addPeer(t testing.TB, e, other transports.Endpoint) transports.Peer {
	t.Helper()
	peer, err := e.AddPeer(other.Address())
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

// floats is the data of a sum of float32.
func floats(rank, ranks int) *Pattern {
	p, err := NewPattern(PatternConfig{Rank: rank, Ranks: ranks})
	if err != nil {
		panic(err) // there are so few
	}
	return p
}

func register(t testing.TB, e transports.Endpoint, memory []byte) []byte {
	t.Helper()
	region, err := e.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	return region.Remote()
}

func openMemory(seed uint64) func() transports.Endpoint {
	fabric := transportstest.NewFabric(seed)
	return func() transports.Endpoint { return fabric.Open() }
}

func openTCP(t testing.TB) func() transports.Endpoint {
	return func() transports.Endpoint {
		e, err := tcp.Open(tcp.Config{Addr: netip.MustParseAddr("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// TestAllReduceAgainstSum compares with a plain sum over the ranks, for data
// of its own that are exact in a float32, over a transport without any order.
func TestAllReduceAgainstSum(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 1))
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		counts := []int{0, 1, ranks - 1, ranks, ranks + 1, 1023, 262145, random.IntN(100_000),
			random.IntN(1_000_000)}
		for _, count := range counts {
			t.Run(fmt.Sprintf("ranks=%d/count=%d", ranks, count), func(t *testing.T) {
				runners := newRunners(t, ring(t, Ring{Ranks: ranks, Count: count}), openMemory(seed))
				for _, mode := range []Mode{OutOfPlace, InPlace, InPlace, OutOfPlace} {
					checkAgainstSum(t, runners, mode, random)
				}
			})
		}
	}
}

func checkAgainstSum(t *testing.T, runners []*Runner, mode Mode, random *rand.Rand) {
	t.Helper()
	ranks, count := len(runners), len(Floats(runners[0].config.Memory.Input))
	want := make([]float32, count)
	for _, r := range runners {
		from := Floats(r.config.Memory.Input)
		if mode == InPlace {
			from = Floats(r.config.Memory.Output)
		}
		for i := range from {
			from[i] = float32(random.IntN(1<<20) - 1<<19)
			want[i] += from[i]
		}
	}
	traffic, err := runAll(t.Context(), runners, mode)
	if err != nil {
		t.Fatal(err)
	}
	var sent, received uint64
	for rank, r := range runners {
		for i, value := range Floats(r.config.Memory.Output) {
			if value != want[i] {
				t.Fatalf("%v: rank %d element %d is %v, want %v", mode, rank, i, value, want[i])
			}
		}
		if count%ranks == 0 && traffic[rank].Sent != uint64(2*(ranks-1)*count/ranks*floatSize) {
			t.Errorf("%v: rank %d sent %d bytes for %d elements over %d ranks", mode, rank,
				traffic[rank].Sent, count, ranks)
		}
		sent += traffic[rank].Sent
		received += traffic[rank].Received
	}
	// Every chunk crosses n-1 links twice, whatever the chunks' lengths.
	if want := uint64(2 * (ranks - 1) * count * floatSize); sent != want || received != want {
		t.Errorf("%v: %d bytes sent, %d received, want %d", mode, sent, received, want)
	}
}

// TestBackToBack runs operations without any barrier between them: ranks that
// are ahead must not touch the memory of those behind.
func TestBackToBack(t *testing.T) {
	const ranks, count, rounds = 4, 100_003, 30
	for _, transport := range []struct {
		name string
		open func() transports.Endpoint
	}{{"memory", openMemory(9)}, {"tcp", openTCP(t)}} {
		t.Run(transport.name, func(t *testing.T) {
			runners := newRunners(t, ring(t, Ring{Ranks: ranks, Count: count}), transport.open)
			group, ctx := errgroup.WithContext(t.Context())
			for rank, r := range runners {
				group.Go(func() error {
					pattern := floats(rank, ranks)
					random := rand.New(rand.NewPCG(uint64(rank), 0))
					for round := range rounds {
						mode := Mode(round % 2)
						if mode == InPlace {
							pattern.Fill(r.config.Memory.Output, round, 0)
						} else {
							pattern.Fill(r.config.Memory.Input, round, 0)
						}
						time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
						if _, err := r.Run(ctx, mode); err != nil {
							return err
						}
						time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
						if wrong := pattern.Wrong(r.config.Memory.Output, round, 0); wrong > 0 {
							return fmt.Errorf("rank %d round %d: %d wrong", rank, round, wrong)
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPeerDeathEndsEveryRank(t *testing.T) {
	const ranks = 4
	runners := newRunners(t, ring(t, Ring{Ranks: ranks, Count: 1 << 20}), openTCP(t))
	if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make([]error, ranks)
	for i := range ranks - 1 {
		all.Go(func() { _, errs[i] = runners[i].Run(t.Context(), OutOfPlace) })
	}
	runners[ranks-1].config.Endpoint.Close()
	// Neighbours of the dead learn it from the transport; the others only
	// when these end, as their processes do.
	for _, i := range []int{0, 2, 1} {
		if i == 1 {
			runners[0].config.Endpoint.Close()
			runners[2].config.Endpoint.Close()
		}
	}
	all.Wait()
	for i := range ranks - 1 {
		if !errors.Is(errs[i], transports.ErrPeerFailed) && !errors.Is(errs[i], transports.ErrClosed) {
			t.Errorf("rank %d: %v", i, errs[i])
		}
	}
	if !errors.Is(errs[1], transports.ErrPeerFailed) {
		t.Errorf("rank 1 between two that closed: %v", errs[1])
	}
}

func TestContextEndsAllReduce(t *testing.T) {
	runners := newRunners(t, ring(t, Ring{Ranks: 2, Count: 1000}), openTCP(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := runners[0].Run(ctx, OutOfPlace); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("all-reduce with a rank that never comes: %v", err)
	}
}

// TestUnexpectedMessages sends what a wrong rank would send.
func TestUnexpectedMessages(t *testing.T) {
	made := ring(t, Ring{Ranks: 3, Count: 1 << 16})
	r := newRunners(t, made, openMemory(1))[0]
	if err := r.begin(t.Context(), OutOfPlace, false); err != nil {
		t.Fatal(err)
	}
	r.work()
	prev, next := r.config.Peers[2], r.config.Peers[1]
	l := made.layout()
	good := transports.Completion{Op: transports.OpReceive, Peer: prev, Imm: 0,
		Bytes: 21845 * floatSize / slicesPerChunk}
	from, to := l.part(2, 0)
	good.Bytes = (to - from) * floatSize
	if err := r.driver.take(good, r.handle); err != nil {
		t.Fatalf("the first slice: %v", err)
	}
	for name, change := range map[string]func(*transports.Completion){
		"twice":           func(*transports.Completion) {},
		"number":          func(c *transports.Completion) { c.Imm = uint32(l.steps() * l.slices) },
		"length":          func(c *transports.Completion) { c.Imm, c.Bytes = 1, c.Bytes-4 },
		"empty":           func(c *transports.Completion) { c.Imm, c.Bytes = 1, 0 },
		"sender":          func(c *transports.Completion) { c.Imm, c.Peer = 1, next },
		"holes":           func(c *transports.Completion) { c.Imm, c.Missing = 1, 4 },
		"ready too far":   func(c *transports.Completion) { c.Imm, c.Peer = clearToSend|7, next },
		"ready from prev": func(c *transports.Completion) { c.Imm = clearToSend | 1 },
		"request error": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpWriteImm, transports.ErrAccess
		},
		"peer is not here": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpPeerDown, transports.ErrPeerFailed
		},
	} {
		bad := good
		change(&bad)
		if err := r.driver.take(bad, r.handle); err == nil {
			t.Errorf("%s: %+v was taken", name, bad)
		}
	}
}

func TestNewRingRefuses(t *testing.T) {
	for name, bad := range map[string]Ring{"no ranks": {}, "elements": {Ranks: 3, Count: -1},
		"messages": {Ranks: 1 << 16, Count: 1 << 50}} {
		if _, err := NewRing(bad); err == nil {
			t.Errorf("%s: made a ring", name)
		}
	}
	made := ring(t, Ring{Ranks: 2, Count: 3})
	good := newRunners(t, made, openMemory(1))[0].config
	for name, change := range map[string]func(*RunnerConfig){
		"rank":      func(c *RunnerConfig) { c.Rank = 2 },
		"negative":  func(c *RunnerConfig) { c.Rank = -1 },
		"lengths":   func(c *RunnerConfig) { c.Memory.Output = make([]byte, 16) },
		"one empty": func(c *RunnerConfig) { c.Memory.Output = nil },
	} {
		bad := good
		change(&bad)
		if _, err := NewRunner(bad); err == nil {
			t.Errorf("%s: made a runner of a ring", name)
		}
	}
}
