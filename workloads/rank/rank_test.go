package rank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/frame"
	"railbed/internal/units"
	"railbed/testkit/hosttest"
	"railbed/workloads/collective"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// counting is a Work whose operations only count.
type counting struct {
	First int `json:"first"`
}

func (c counting) Run(ctx context.Context, p *Process) error {
	return p.ThroughLanes(func() error {
		tables, err := p.Meet(ctx, func(_ int, l *Lane) (*Rendezvous, error) {
			handles, err := l.Register(collective.Memory[[]byte]{Output: make([]byte, 8)})
			return &Rendezvous{Output: handles.Output}, err
		})
		if err != nil {
			return err
		}
		if len(tables) != 1 || len(tables[0]) != 1 || len(tables[0][0].Output) == 0 {
			return fmt.Errorf("tables %+v", tables)
		}
		return p.Do(ctx, func(size int) (Part, []byte, error) {
			return &counter{count: c.First}, make([]byte, size), nil
		})
	})
}

// counter is the part of a rank in a counting job.
type counter struct{ filled, count int }

func (c *counter) Fill(OperationID) { c.filled++ }

func (c *counter) Operate(context.Context, OperationID, bool) (collective.Traffic, error) {
	c.count++
	return collective.Traffic{Sent: 10}, nil
}

func (c *counter) Lost() []collective.Loss { return nil }

func (c *counter) Check(OperationID, []collective.Loss) (wrong, short uint64) { return 7, 0 }

func (c *counter) Tell() (any, error) { return c.count, nil }

// started runs Main, and returns the coordinator's end of its channel and its exit code.
func started(t *testing.T, o Options) (net.Conn, <-chan int) {
	t.Helper()
	coordinator, inside := net.Pipe()
	t.Cleanup(func() { coordinator.Close() })
	code := make(chan int, 1)
	go func() { code <- Main(inside, io.Discard, o) }()
	return coordinator, code
}

// on is the configuration of the only rank of a job on an address.
func on(addr string) *Config {
	return &Config{Work: Assignment{Work: counting{First: 3}}, Transport: TCP,
		PlaceConfig: PlaceConfig{Ranks: 1, Addr: netip.MustParseAddr(addr), Unbound: true},
		RoundsConfig: RoundsConfig{Sizes: []units.Bytes{0, 0}, Warmup: 2, Iterations: 4, Together: true,
			Checks: 1}}
}

// TestJobOfOneRank plays the coordinator of a job with two sizes.
func TestJobOfOneRank(t *testing.T) {
	var before, results []int
	coordinator, code := started(t, Options{Works: []Work{counting{}},
		BeforeOperation: func(_ int, id OperationID) { before = append(before, id.Index) },
		AfterOperation: func(_ int, _ OperationID, result []byte) {
			results = append(results, len(result))
		}})
	in, out := frame.NewReader(coordinator), frame.NewWriter(coordinator)
	exchange := func(m Message) *Message {
		t.Helper()
		if err := out.WriteJSON(frame.Message, m); err != nil {
			t.Fatal(err)
		}
		answer, err := ReadMessage(in)
		if err != nil || answer.Failed != nil {
			t.Fatalf("%+v, %v", answer, err)
		}
		return answer
	}
	ready := exchange(Message{Config: on("127.87.2.1")}).Ready
	if ready == nil || ready.PID != os.Getpid() {
		t.Fatalf("ready as %+v", ready)
	}
	if exchange(Message{Alive: &struct{}{}}).Alive == nil {
		t.Error("the rank did not say that it is alive")
	}
	answer := exchange(Message{Table: []Rendezvous{*ready}})
	for i, want := range []struct {
		before, sent, wrong uint64
		own                 string
	}{{20, 40, 0, "9"}, {0, 10, 7, "10"}, {20, 40, 0, "9"}, {0, 10, 7, "10"}} {
		if answer.Prepared == nil || answer.Prepared.Index != i {
			t.Fatalf("before round %d: %+v", i, answer)
		}
		d := exchange(Message{Start: answer.Prepared}).Done
		if d == nil || d.Index != i || d.Before.Sent != want.before || d.Traffic.Sent != want.sent ||
			d.Wrong != want.wrong || string(d.Own) != want.own || d.Time <= 0 {
			t.Errorf("round %d: %+v, want %+v", i, d, want)
		}
		if i < 3 {
			var err error
			if answer, err = ReadMessage(in); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f := exchange(Message{End: &struct{}{}}).Finished; f == nil || len(f.Flows) != 0 {
		t.Errorf("finished as %+v", f)
	}
	if got := <-code; got != 0 || !slices.Equal(before, []int{0, 1, 2, 3}) ||
		!slices.Equal(results, []int{0, 0, 1, 1}) {
		t.Errorf("exit code %d, operations %v with results of %v bytes", got, before, results)
	}
}

// TestFirstMessages holds that a rank that cannot begin reports why.
func TestFirstMessages(t *testing.T) {
	other := on("127.87.2.1")
	other.Work.Work = struct{ counting }{}
	homa := on("127.87.2.1")
	homa.Transport = "homa"
	for name, test := range map[string]struct {
		first Message
		want  string
	}{
		"no configuration":  {Message{End: &struct{}{}}, "not a configuration"},
		"no work":           {Message{Config: &Config{}}, "no work"},
		"unknown work":      {Message{Config: other}, "no work of type"},
		"unknown transport": {Message{Config: homa}, "unknown transport"},
		"address of nobody": {Message{Config: on("192.0.2.1")}, "192.0.2.1"},
	} {
		coordinator, code := started(t, Options{Works: []Work{counting{}}})
		if err := frame.NewWriter(coordinator).WriteJSON(frame.Message, test.first); err != nil {
			t.Fatal(err)
		}
		m, err := ReadMessage(frame.NewReader(coordinator))
		if err != nil || m.Failed == nil || !strings.Contains(m.Failed.Error, test.want) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if got := <-code; got != 1 {
			t.Errorf("%s: exit code %d", name, got)
		}
	}
}

// TestCoordinatorThatEnds holds that a rank ends with its channel.
func TestCoordinatorThatEnds(t *testing.T) {
	coordinator, code := started(t, Options{Works: []Work{counting{}}})
	first := Message{Config: on("127.87.2.1")}
	if err := frame.NewWriter(coordinator).WriteJSON(frame.Message, first); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMessage(frame.NewReader(coordinator)); err != nil || m.Ready == nil {
		t.Fatalf("%+v, %v", m, err)
	}
	coordinator.Close()
	if got := <-code; got != 1 {
		t.Errorf("exit code %d", got)
	}
}

// TestRounds compares the rounds of jobs with and without rounds of several operations.
func TestRounds(t *testing.T) {
	for _, test := range []struct {
		of   RoundsConfig
		want string
	}{
		{RoundsConfig{Sizes: make([]units.Bytes, 1), Warmup: 1, Iterations: 1, InPlace: true},
			"[{{0 out-of-place} 0 0 1 false true} {{1 out-of-place} 0 0 1 true true} " +
				"{{2 in-place} 0 0 1 false true} {{3 in-place} 0 0 1 true true}]"},
		{RoundsConfig{Sizes: make([]units.Bytes, 2), Warmup: 1, Iterations: 9, Together: true, Checks: 1},
			"[{{0 out-of-place} 0 1 9 true false} {{1 out-of-place} 0 0 1 false true} " +
				"{{2 out-of-place} 1 1 9 true false} {{3 out-of-place} 1 0 1 false true}]"},
	} {
		if got := fmt.Sprint((&Config{RoundsConfig: test.of}).Rounds()); got != test.want {
			t.Errorf("%+v: %s, want %s", test.of, got, test.want)
		}
	}
}

// TestDevice holds that sockets are bound to the NIC unless the configuration says otherwise.
func TestDevice(t *testing.T) {
	c := &Config{PlaceConfig: PlaceConfig{NIC: "eth0"}}
	if got := c.device(); got != "eth0" {
		t.Errorf("bound to %q", got)
	}
	c.Unbound = true
	if got := c.device(); got != "" {
		t.Errorf("unbound, and bound to %q", got)
	}
}

// TestWhenFree holds that a rank waits for a port that another process still has, and for nothing else.
func TestWhenFree(t *testing.T) {
	const want = 3
	tries := 0
	got, err := WhenFree(func() (int, error) {
		if tries++; tries < want {
			return 0, &net.OpError{Err: syscall.EADDRINUSE}
		}
		return tries, nil
	})
	if err != nil || got != want {
		t.Errorf("%d, %v after %d tries", got, err, tries)
	}
	refused := errors.New("refused")
	began := time.Now()
	if _, err := WhenFree(func() (int, error) { return 0, refused }); !errors.Is(err, refused) ||
		time.Since(began) > portPatience/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
