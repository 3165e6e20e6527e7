package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports/roce"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// together runs both ends of a test on the loopback device.
func together(t *testing.T, server, client Config) (results [2]*Result, errs [2]error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ready := make(banner, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		results[0], errs[0] = Run(ctx, server, ready)
	}()
	select {
	case <-ready:
	case <-done:
		return results, errs
	}
	client.Server = "127.0.0.1"
	if results[1], errs[1] = Run(ctx, client, io.Discard); errs[1] != nil {
		select {
		case <-done: // it has an error of its own
		case <-time.After(hosttest.Bound):
			cancel()
		}
	}
	<-done
	return results, errs
}

// TestInfinitely: a test that goes on prints a row after each duration, until its context ends. A busy host
// may run neither end for a whole duration, whose row is then 0.
func TestInfinitely(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	for _, test := range []Test{WriteBW, SendBW, ReadBW} {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		ready, done := make(banner, 1), make(chan error, 1)
		config := Config{Test: test, Duration: 50 * time.Millisecond, Infinitely: true}
		go func() {
			_, err := Run(ctx, config, ready)
			done <- err
		}()
		<-ready
		config.Server = "127.0.0.1"
		rows := &rowWriter{after: 3, then: cancel}
		if _, err := Run(ctx, config, rows); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: error %v, want that of the context", test, err)
		}
		if err := <-done; err == nil {
			t.Errorf("%v: the server ended without an error", test)
		}
		for _, row := range rows.all {
			var size, messages int
			var peak, average float64
			if n, _ := fmt.Sscan(row, &size, &messages, &peak, &average); n != 4 || size != 65536 ||
				peak != 0 || (average > 0) != (messages > 0) {
				t.Errorf("%v: row %q, want the messages of 65536 bytes of a duration", test, row)
			}
		}
		if rows.carried < 3 {
			t.Errorf("%v: %d rows of %d with messages, want 3", test, rows.carried, len(rows.all))
		}
		cancel()
	}
	latency := Config{Test: WriteLat, Infinitely: true}
	if _, err := Run(t.Context(), latency, io.Discard); !errors.Is(err, ErrConfig) {
		t.Errorf("latency: %v, want a refusal", err)
	}
}

// rowWriter collects the rows of a table of bandwidth, and calls a function after some with messages.
type rowWriter struct {
	all     []string
	carried int
	after   int
	then    func()
}

func (r *rowWriter) Write(text []byte) (int, error) {
	if strings.HasPrefix(string(text), " 65536") {
		r.all = append(r.all, string(text))
		if strings.Fields(string(text))[1] != "0" {
			r.carried++
		}
		if r.carried == r.after {
			r.then()
		}
	}
	return len(text), nil
}

// banner receives a value when the server prints that it waits.
type banner chan struct{}

func (b banner) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "Waiting") {
		b <- struct{}{}
	}
	return len(text), nil
}

// TestBothEnds runs every test between two ends of this package, which check the received data.
func TestBothEnds(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	for i, c := range []struct {
		config Config
		rows   int
		total  uint64 // iterations in a row
	}{
		{Config{Test: WriteBW, Iterations: 300, Size: 10_000}, 1, 300},
		{Config{Test: WriteBW, Iterations: 10, QueuePairs: 3, MTU: 256, CQModeration: 4}, 1, 30},
		{Config{Test: WriteBW, Iterations: 5, All: true, Bidirectional: true, MTU: 4096}, 23, 5},
		{Config{Test: WriteLat, Iterations: 300, Size: 5}, 1, 300},
		{Config{Test: SendBW, Iterations: 700, Size: 3000}, 1, 700},
		{Config{Test: SendBW, Iterations: 5, All: true, QueuePairs: 2}, 23, 10},
		{Config{Test: SendBW, Iterations: 100, Bidirectional: true, PostList: 8}, 1, 100},
		{Config{Test: SendLat, Iterations: 600}, 1, 600},
		{Config{Test: ReadBW, Iterations: 50, Reads: 2}, 1, 50},
		{Config{Test: ReadBW, Iterations: 50, Bidirectional: true}, 1, 50},
		{Config{Test: AtomicBW, Iterations: 50}, 1, 50},
		{Config{Test: WriteBW, Duration: time.Second}, 1, 0},
		{Config{Test: SendBW, Duration: time.Second}, 1, 0},
		{Config{Test: SendLat, Duration: time.Second}, 1, 0},
		{Config{Test: WriteBW, Iterations: 100, QueuePairs: 3, CM: true, MTU: 512}, 1, 300},
		{Config{Test: WriteLat, Iterations: 50, CM: true}, 1, 50},
		{Config{Test: SendBW, Duration: time.Second, CM: true}, 1, 0},
		{Config{Test: ReadBW, Iterations: 50, ExchangeCM: true, Bidirectional: true}, 1, 50},
	} {
		t.Run(fmt.Sprintf("%d-%v", i, c.config.Test), func(t *testing.T) {
			c.config.Verify = true
			results, errs := together(t, c.config, c.config)
			for i, r := range results {
				if errs[i] != nil {
					t.Fatalf("end %d: %v", i, errs[i])
				}
				rows := len(r.Bandwidth) + len(r.Latency)
				// A server without a part in the test gets a report of the last size only.
				if rows != c.rows || r.Server != (i == 0) || r.Version != 6.27 || r.Sent == 0 ||
					r.BadICRC != 0 {
					t.Errorf("end %d: %d rows, want %d: %+v", i, rows, c.rows, r)
				}
				for _, b := range r.Bandwidth {
					if c.total > 0 && b.Iterations != c.total || b.Average <= 0 || b.Messages <= 0 {
						t.Errorf("end %d: %+v", i, b)
					}
				}
				for _, l := range r.Latency {
					if c.total > 0 && (l.Iterations != c.total || l.Min > l.Typical || l.Typical > l.P99 ||
						l.P99 > l.P999 || l.Min <= 0) || l.Average <= 0 {
						t.Errorf("end %d: %+v", i, l)
					}
				}
			}
		})
	}
}

// TestWrongData: Verify finds what is not what the other end sends: it writes at
// another size's places, and the rest stays empty.
func TestWrongData(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	server, client := Config{Test: SendBW, Iterations: 5, Size: 4000, Verify: true},
		Config{Test: SendBW, Iterations: 5, Size: 3999}
	if _, errs := together(t, server, client); !errors.Is(errs[0], errData) {
		t.Errorf("%v", errs[0])
	}
}

// TestPeers: a run ends with an error that names the cause. The peer speaks another protocol, is
// too old, leaves, or is missing, or the context ends.
func TestPeers(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	words := recorded(t, "testdata/write-bw-6.06.txt")
	var hello string
	for _, w := range words[:10] {
		if w.client {
			hello += w.text
		}
	}
	for name, c := range map[string]struct {
		says string
		want string
	}{
		"another protocol": {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", errPeer.Error()},
		"too old":          {"5.33" + strings.Repeat("\x00", 12), "want 5.70 or later"},
		"nothing":          {"", "EOF"},
		"leaves":           {hello, "exchange keys"},
		"bad keys":         {hello[:len(hello)-30] + "zz" + hello[len(hello)-28:], errPeer.Error()},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ready, done := make(banner, 1), make(chan error, 1)
		go func() {
			_, err := Run(ctx, Config{Test: WriteBW}, ready)
			done <- err
		}()
		<-ready
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", DefaultPort))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, c.says)
		conn.(*net.TCPConn).CloseWrite()
		if err := <-done; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		conn.Close()
	}
	if _, err := Run(t.Context(), Config{Test: WriteBW, Server: "127.0.0.1", Port: 1},
		io.Discard); err == nil {
		t.Error("connected to nobody")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(banner, 1), make(chan error, 1)
	go func() {
		_, err := Run(ctx, Config{Test: WriteBW}, ready)
		done <- err
	}()
	<-ready
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPeersByCM: a run ends with an error that names the cause. The peer connects by rdma_cm and is
// no perftest, or leaves, the server is missing, or the context ends.
func TestPeersByCM(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	here := netip.MustParseAddr("127.0.0.1")
	device, err := roce.OpenDevice(roce.DeviceConfig{Addr: here})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	serve := func(ctx context.Context) chan error {
		ready, done := make(banner, 1), make(chan error, 1)
		go func() {
			_, err := Run(ctx, Config{Test: WriteBW, CM: true}, ready)
			done <- err
		}()
		<-ready
		return done
	}
	for name, c := range map[string]struct {
		says string
		want error
	}{
		"another protocol": {"GET / HTTP/1.1", errPeer},
		"too long":         {strings.Repeat("6", verbsLen+1), queuepair.ErrLength},
		"leaves":           {"", cm.ErrDisconnected},
	} {
		done := serve(t.Context())
		pair, err := device.NewQueuePair(queuepair.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Dial(t.Context(), netip.AddrPortFrom(here, DefaultPort), nil); err != nil {
			t.Fatal(err)
		}
		if c.says == "" {
			pair.Close()
		} else if _, err := pair.Post(
			queuepair.Request{Op: queuepair.Send, Local: [][]byte{[]byte(c.says)}}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		pair.Close()
	}
	if _, err := Run(t.Context(), Config{Test: WriteBW, Server: here.String(), CM: true},
		io.Discard); !errors.Is(err, cm.ErrTimeout) {
		t.Errorf("connected to nobody: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := serve(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := Run(t.Context(), Config{Test: WriteBW, NIC: "none", CM: true}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), `NIC "none"`) {
		t.Errorf("a NIC that is not there: %v", err)
	}
}
