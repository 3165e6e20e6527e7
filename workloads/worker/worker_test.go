package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/internal/frame"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/transports/rd/privacy"
	"railbed/workloads/rank"
)

// The tests start processes of this executable, hundreds of them.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// asWorker makes the test binary a worker process.
const asWorker = "RAILBED_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		channel, err := rank.Inherited()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(Main(channel, os.Stderr))
	}
	os.Exit(hosttest.MainAlone(m, "rd-ports"))
}

// goroutines runs workers as goroutines of the test.
type goroutines struct {
	options rank.Options
	refuse  string // node on which nothing starts
	started func(node string, p *goroutineProcess)
}

// before runs workers as goroutines that call f within the measured time of each round.
func before(f func(rank int, id rank.OperationID)) goroutines {
	return goroutines{options: rank.Options{BeforeOperation: f}}
}

// after runs workers as goroutines that call f with each result before they check it.
func after(f func(rank int, id rank.OperationID, result []byte)) goroutines {
	return goroutines{options: rank.Options{AfterOperation: f}}
}

type goroutineProcess struct {
	channel, inside net.Conn
	ended           chan struct{}
	code            int
	stderr          bytes.Buffer
}

func (g goroutines) Launch(_ context.Context, node string, args []string) (Process, error) {
	if node == g.refuse {
		return nil, errors.New("no such node")
	}
	if !strings.HasPrefix(strings.Join(args, " "), "worker collective") {
		return nil, fmt.Errorf("arguments %q", args)
	}
	p := &goroutineProcess{ended: make(chan struct{})}
	p.channel, p.inside = net.Pipe()
	go func() {
		defer close(p.ended)
		o := g.options
		o.Works = works
		p.code = rank.Main(p.inside, &p.stderr, o)
	}()
	if g.started != nil {
		g.started(node, p)
	}
	return p, nil
}

func (p *goroutineProcess) Channel() io.ReadWriteCloser { return p.channel }

func (p *goroutineProcess) Wait() error {
	<-p.ended
	if p.code != 0 {
		return fmt.Errorf("exit code %d", p.code)
	}
	return nil
}

func (p *goroutineProcess) Kill() error { return p.inside.Close() }

// processes runs workers as processes of the test binary.
type processes struct {
	started func(node string, p *realProcess)
}

type realProcess struct {
	command *exec.Cmd
	channel *os.File
}

func (l processes) Launch(_ context.Context, node string, _ []string) (Process, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(pair[0], true); err != nil {
		return nil, err
	}
	p := &realProcess{channel: os.NewFile(uintptr(pair[0]), "channel")}
	inside := os.NewFile(uintptr(pair[1]), "inside")
	defer inside.Close()
	p.command = exec.Command("/proc/self/exe")
	p.command.Env = append(os.Environ(), asWorker+"=1")
	p.command.ExtraFiles = []*os.File{inside}
	p.command.Stderr = os.Stderr
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(err, p.channel.Close())
	}
	if l.started != nil {
		l.started(node, p)
	}
	return p, nil
}

func (p *realProcess) Channel() io.ReadWriteCloser { return p.channel }
func (p *realProcess) Wait() error                 { return p.command.Wait() }
func (p *realProcess) Kill() error                 { return p.command.Process.Kill() }

// basePort gives each job of the tests ports of its own.
var basePort atomic.Int32

func init() { basePort.Store(20000) }

// loopback is an address of the loopback that no other package's tests take blocks of
// ports of.
var loopback = netip.MustParseAddr("127.87.0.1")

// job is on nodes h0, h1, ..., all of them the loopback.
func job(ranks int, size units.Bytes) Job {
	j := Job{
		Name: "ar", Kind: spec.AllReduce, Size: size, Iterations: 2, Warmup: 1,
		Timeout: 30 * time.Second, BasePort: int(basePort.Add(int32(Ports(ranks)))) - Ports(ranks),
	}
	for i := range ranks {
		j.Ranks = append(j.Ranks, plan.Rank{Rank: i, Node: fmt.Sprintf("h%d", i), NIC: "lo",
			Addr4: loopback, Addr6: netip.IPv6Loopback()})
	}
	return j
}

func TestJobs(t *testing.T) {
	hosttest.MarkTest(t, hosttest.Raced)
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		for _, size := range []units.Bytes{0, 4, 1<<20 + 4, units.Bytes(ranks) << 16} {
			for _, family := range []int{4, 6} {
				t.Run(fmt.Sprintf("ranks=%d/size=%v/ip=%d", ranks, size, family), func(t *testing.T) {
					j := job(ranks, size)
					j.Family = family
					j.InPlace = family == 6
					var seen []Progress
					result, err := Run(t.Context(), j, goroutines{}, func(p Progress) {
						seen = append(seen, p)
					})
					if err != nil {
						t.Fatal(err)
					}
					checkResult(t, j, result)
					if want := len(result.Operations); len(seen) != want || seen[want-1].Done != want ||
						seen[0].Total != want {
						t.Errorf("progress %+v over %d operations", seen, want)
					}
				})
			}
		}
	}
}

// checkResult holds a result against closed formulas.
func checkResult(t *testing.T, j Job, result *Result) {
	t.Helper()
	n, size := uint64(len(j.Ranks)), uint64(j.Size)
	operations := uint64(j.Warmup + j.Iterations)
	if j.InPlace {
		operations *= 2
	}
	if uint64(len(result.Operations)) != operations || result.Wrong() != 0 {
		t.Errorf("%d operations with %d wrong elements, want %d with none", len(result.Operations),
			result.Wrong(), operations)
	}
	var sent, received uint64
	for i, r := range result.PerRank {
		sent, received = sent+r.Payload.Sent, received+r.Payload.Received
		if size/4%n == 0 {
			if want := operations * 2 * (n - 1) * size / n; r.Payload.Sent != want ||
				r.Payload.Received != want {
				t.Errorf("rank %d: payload %+v, want %d each way", i, r.Payload, want)
			}
			share := uint64(j.Warmup)
			if j.InPlace {
				share *= 2
			}
			if want := share * 2 * (n - 1) * size / n; r.Warmup.Sent != want {
				t.Errorf("rank %d: warm-up %+v, want %d", i, r.Warmup, want)
			}
		}
		checkFlows(t, j, result, i)
	}
	if want := operations * 2 * (n - 1) * size; sent != want || received != want {
		t.Errorf("%d bytes sent and %d received, want %d", sent, received, want)
	}
	m := result.Row().OutOfPlace
	if m.Time <= 0 || result.OutOfPlace.Min > result.OutOfPlace.Avg ||
		result.OutOfPlace.Avg > result.OutOfPlace.Max {
		t.Errorf("times %+v, measure %+v", result.OutOfPlace, m)
	}
	if result.Row().Count != int(size/4) || (result.Row().InPlace != nil) != j.InPlace {
		t.Errorf("row %+v", result.Row())
	}
	checkRankTimes(t, j, result)
}

// checkRankTimes holds the ranks' times of the slowest and the last operation against the times of all.
func checkRankTimes(t *testing.T, j Job, result *Result) {
	t.Helper()
	if result.Last == nil || result.Slowest == nil {
		t.Fatalf("no times of ranks: %+v, %+v", result.Last, result.Slowest)
	}
	slowest := max(result.OutOfPlace.Max, result.Slowest.Time)
	if last := result.Operations[len(result.Operations)-1]; result.Last.Operation != last ||
		result.Slowest.Time != slowest {
		t.Errorf("the last operation is %+v, want %+v; the slowest took %v, want %v", result.Last.Operation,
			last,
			result.Slowest.Time, slowest)
	}
	for _, spans := range []*Spans{result.Last, result.Slowest} {
		var longest time.Duration
		for _, s := range spans.Ranks {
			longest = max(longest, s.Took)
			if s.Start.Before(spans.Start) || s.Waited > s.Took {
				t.Errorf("a rank has %+v in an operation that began at %v", s, spans.Start)
			}
			for _, w := range s.Waits {
				if w.From < 0 || w.To < w.From || w.To > s.Took {
					t.Errorf("a rank waited from %v to %v of %v", w.From, w.To, s.Took)
				}
			}
			if s.Waited > 0 && len(s.Waits) == 0 {
				t.Errorf("a rank waited for %v at unknown times", s.Waited)
			}
		}
		if longest != spans.Time || len(spans.Ranks) != len(j.Ranks) {
			t.Errorf("%d ranks took %v at most, want %d and %v", len(spans.Ranks), longest, len(j.Ranks),
				spans.Time)
		}
	}
}

// checkFlows holds the connections against the plan of ports: data and
// permissions, with n = 2 both to the one peer.
func checkFlows(t *testing.T, j Job, result *Result, rank int) {
	t.Helper()
	n := len(j.Ranks)
	if n == 1 {
		if flows := result.PerRank[0].Flows; len(flows) != 0 {
			t.Errorf("one rank has flows %+v", flows)
		}
		return
	}
	next, prev := (rank+1)%n, (rank+n-1)%n
	connecting := map[int]int{}
	for _, f := range result.PerRank[rank].Flows {
		listener, client := f.Local.Port(), f.Remote.Port()
		if f.Connecting {
			listener, client = client, listener
			connecting[f.PeerRank]++
			if want := uint16(j.BasePort + f.PeerRank); listener != want {
				t.Errorf("rank %d sends to port %d, want %d", rank, listener, want)
			}
			if want := uint16(j.BasePort + n + rank*sourcePorts); client != want {
				t.Errorf("rank %d sends from port %d, want %d", rank, client, want)
			}
		}
		mirrored := false
		for _, other := range result.PerRank[f.PeerRank].Flows {
			if other.Local == f.Remote && other.Remote == f.Local && other.Connecting != f.Connecting &&
				other.PeerRank == rank {
				mirrored = true
			}
		}
		if !mirrored {
			t.Errorf("rank %d has the flow %+v, its peer has not", rank, f)
		}
	}
	// Without data there is nothing to send to the next rank.
	if connecting[prev] != 1 || connecting[next] != 1 && j.Size > 0 {
		t.Errorf("rank %d connected to %v, want once to %d and %d", rank, connecting, next, prev)
	}
}

// Streams: hello, headers, payload, replies and goodbyes, each byte counted
// by both ends.
func TestStreamBytesAgree(t *testing.T) {
	result, err := Run(t.Context(), job(3, 3<<20), goroutines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sent, received uint64
	for _, r := range result.PerRank {
		sent, received = sent+r.Stream.Sent, received+r.Stream.Received
		if r.Stream.Sent < r.Payload.Sent || float64(r.Stream.Sent) > 1.01*float64(r.Payload.Sent) {
			t.Errorf("rank %d: stream of %d bytes for %d bytes of payload", r.Rank, r.Stream.Sent,
				r.Payload.Sent)
		}
	}
	if sent != received {
		t.Errorf("streams: %d bytes sent, %d received", sent, received)
	}
}

func TestRealProcesses(t *testing.T) {
	j := job(4, 1<<20)
	result, err := Run(t.Context(), j, processes{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, j, result)
	// At once again on the same ports: nothing may be left in TIME_WAIT.
	if result, err = Run(t.Context(), j, processes{}, nil); err != nil {
		t.Fatal(err)
	}
	checkResult(t, j, result)
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(`"busbw_gb_s":`)) {
		t.Errorf("JSON without busbw: %s", text)
	}
}

// A worker whose coordinator dies must not stay behind.
func TestClosedChannelEndsWorkers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	j := job(3, 1<<20)
	j.Iterations = 1 << 20
	_, err := Run(ctx, j, processes{}, func(p Progress) {
		if p.Done == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled job: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "killed") {
		t.Errorf("workers did not end by themselves: %v", err)
	}
}

// TestWrongResultIsCounted damages one element on one rank.
func TestWrongResultIsCounted(t *testing.T) {
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && id.Index == 2 {
			result[20]++
			clear(result[308:312])
		}
	})
	result, err := Run(t.Context(), job(3, 4096), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Wrong() != 2 || result.Row().OutOfPlace.Wrong != 2 || result.PerRank[1].Wrong != 2 ||
		result.Operations[2].Wrong != 2 {
		t.Errorf("two wrong elements: %+v", result.Row())
	}
}

func TestBadJobs(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"kind":      func(j *Job) { j.Kind = "gossip" },
		"algorithm": func(j *Job) { j.Algorithm = "star" },
		"transport": func(j *Job) { j.Transport = "homa" },
		"rd blocks": func(j *Job) { *j = job(rdSlots+1, 4096); j.Transport = RD },
		"size":      func(j *Job) { j.Size = 6 },
		"half size": func(j *Job) { j.Type, j.Size = element.Float16, 7 },
		"type":      func(j *Job) { j.Type = "quad" },
		"operation": func(j *Job) { j.Op = "xor" },
		"root":      func(j *Job) { j.Kind, j.Root = string(schedule.Reduce), len(j.Ranks) },
		"averages": func(j *Job) {
			j.Type, j.Op, j.Ranks = element.Uint8, element.Average, job(256, 4).Ranks
		},
		"ranks":      func(j *Job) { j.Ranks = nil },
		"order":      func(j *Job) { j.Ranks[0], j.Ranks[1] = j.Ranks[1], j.Ranks[0] },
		"family":     func(j *Job) { j.Family = 5 },
		"address":    func(j *Job) { j.Ranks[1].Addr4 = netip.Addr{} },
		"ports":      func(j *Job) { j.BasePort = 65530 },
		"iterations": func(j *Job) { j.Iterations = -1 },
	} {
		j := job(2, 4096)
		change(&j)
		l := goroutines{started: func(string, *goroutineProcess) {
			t.Errorf("%s: a worker was started", name)
		}}
		if _, err := Run(t.Context(), j, l, nil); err == nil {
			t.Errorf("%s: the job was run", name)
		}
	}
}

func TestFailuresNameTheRank(t *testing.T) {
	j := job(3, 4096)
	_, err := Run(t.Context(), j, goroutines{refuse: "h1"}, nil)
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 1 || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("a worker that does not start: %v", err)
	}

	taken, err := net.Listen("tcp", fmt.Sprintf("%v:%d", loopback, j.BasePort+2))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Run(t.Context(), j, goroutines{}, nil)
	if !errors.As(err, &rank) || rank.Rank != 2 || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port that is taken: %v", err)
	}

	// A worker that says nothing: the timeout names it.
	j = job(3, 4096)
	j.Timeout = 300 * time.Millisecond
	_, err = Run(t.Context(), j, silent{}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 2 on h2") ||
		strings.Contains(err.Error(), "rank 1 on h1,") {
		t.Errorf("a silent worker: %v", err)
	}
}

// silent has one worker that never answers, on h2.
type silent struct{}

func (silent) Launch(ctx context.Context, node string, args []string) (Process, error) {
	if node != "h2" {
		return goroutines{}.Launch(ctx, node, args)
	}
	p := &goroutineProcess{ended: make(chan struct{}), code: 1}
	p.channel, p.inside = net.Pipe()
	go func() {
		defer close(p.ended)
		io.Copy(io.Discard, p.inside)
		p.inside.Close()
	}()
	return p, nil
}

// TestCollectiveThatNoWorkerDoes holds that a rank refuses a kind that the coordinator let pass.
func TestCollectiveThatNoWorkerDoes(t *testing.T) {
	coordinator, inside := net.Pipe()
	defer coordinator.Close()
	code := make(chan int, 1)
	go func() { code <- Main(inside, io.Discard) }()
	first := rank.Message{Config: &rank.Config{Work: rank.Assignment{Work: collectiveWork{Kind: "gossip"}}}}
	if err := frame.NewWriter(coordinator).WriteJSON(frame.Message, first); err != nil {
		t.Fatal(err)
	}
	m, err := rank.ReadMessage(frame.NewReader(coordinator))
	if err != nil || m.Failed == nil || !strings.Contains(m.Failed.Error, "this worker cannot do gossip") {
		t.Errorf("%+v, %v", m, err)
	}
	if got := <-code; got != 1 {
		t.Errorf("exit code %d", got)
	}
}

// What a job says of its reliable datagrams reaches the endpoints, and what they
// cannot be is an error.
func TestSettingsOfReliableDatagrams(t *testing.T) {
	j := job(2, 1<<20)
	j.Transport = RD
	j.RD = &spec.RD{Engines: 3, Paths: 2, Spray: "weighted", Weights: []int{3, 1}, Grain: 2}
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range result.PerRank {
		if r.Engines != 3 || result.Wrong() != 0 {
			t.Errorf("rank %d has %d engines, and %d elements are wrong; want 3 and none", r.Rank, r.Engines,
				result.Wrong())
		}
	}
	for _, readable := range []bool{false, true} {
		e := job(3, 1<<18)
		e.Transport, e.RD = RD, &spec.RD{Encrypt: true, ReadableHeaders: readable}
		if result, err := Run(t.Context(), e, goroutines{}, nil); err != nil || result.Wrong() != 0 {
			t.Errorf("encrypted: %v", err)
		}
		e.Secret = e.Secret[:0:0]
		if _, err := Run(t.Context(), e, goroutines{}, nil); err != nil {
			t.Errorf("encrypted, with a secret of its own: %v", err)
		}
		e.Secret = privacy.Material{1, 2, 3}
		if _, err := Run(t.Context(), e, goroutines{}, nil); err == nil ||
			!strings.Contains(err.Error(), "take secret: 3 bytes") {
			t.Errorf("a short secret: %v", err)
		}
	}
	j.RD.Weights = []int{1}
	if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil ||
		!strings.Contains(err.Error(), "1 weights: want one for each of 2 paths") {
		t.Errorf("weights that are too few: %v", err)
	}
}

// A job over reliable datagrams: every rank in its block of ports, every byte
// counted once.
func TestReliableDatagrams(t *testing.T) {
	const ranks, size = 4, 1 << 20
	for _, family := range []int{4, 6} {
		j := job(ranks, size)
		j.Transport, j.Family, j.Ordinal = RD, family, 1
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if result.Wrong() != 0 || result.Transport != RD {
			t.Errorf("%d elements of %s are wrong", result.Wrong(), result.Transport)
		}
		for i, r := range result.PerRank {
			// Empty messages, which are permissions to send, have no bytes.
			if want := uint16(wire.PortRD + wire.RDEngines*(ranks+i)); r.Port != want || r.Engines != 1 ||
				r.Stream.Sent != r.Payload.Sent || r.Stream.Received != r.Payload.Received {
				t.Errorf("rank %d at port %d with %d engines sent %d and received %d bytes; want port %d, "+
					"and %+v", i, r.Port, r.Engines, r.Stream.Sent, r.Stream.Received, want, r.Payload)
			}
		}
	}
}

// A job over QUIC: every rank at its planned port, every byte counted once.
func TestQUIC(t *testing.T) {
	for _, family := range []int{4, 6} {
		j := job(4, 1<<20)
		j.Transport, j.Family = QUIC, family
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if result.Wrong() != 0 || result.Transport != QUIC {
			t.Errorf("%d elements of %s are wrong", result.Wrong(), result.Transport)
		}
		for i, r := range result.PerRank {
			if want := uint16(j.BasePort + i); r.Port != want || r.Stream.Sent != r.Payload.Sent ||
				r.Stream.Received != r.Payload.Received || len(r.Flows) != 0 {
				t.Errorf("rank %d at port %d sent %d and received %d bytes in flows %v; want port %d, and "+
					"%+v", i, r.Port, r.Stream.Sent, r.Stream.Received, r.Flows, want, r.Payload)
			}
		}
	}
}
