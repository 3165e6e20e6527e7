package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/capture/pcapng"
	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) {
	reexec.Run(Parts())
	os.Exit(hosttest.Main(m))
}

// inProcess makes captures run in this process, as in a program that does not
// play Parts.
func inProcess(t *testing.T) {
	playsParts.Store(false)
	t.Cleanup(func() { playsParts.Store(true) })
}

func TestInProcess(t *testing.T) {
	inProcess(t)
	for name, test := range map[string]func(*testing.T){
		"across":  TestPacketAcrossRouter,
		"limit":   TestLimit,
		"drops":   TestDropsAreCounted,
		"fails":   TestWriterFails,
		"context": TestContextEndsIt,
		"refuses": TestStartRefuses,
	} {
		t.Run(name, test)
	}
}

func start(t testing.TB, taps []Tap, options Options, w io.Writer) *Session {
	t.Helper()
	s, err := Start(t.Context(), taps, options, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

type seen struct {
	tap  string
	out  bool
	time int64
	id   uint64
	size int
	len  int

	dropped uint64 // before it
}

func decode(t testing.TB, data []byte) (packets []seen, r *pcapng.Reader) {
	t.Helper()
	r, err := pcapng.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := r.Next()
		if err == io.EOF {
			return packets, r
		}
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, seen{
			tap: r.Interfaces()[p.Interface].Name, out: p.Flags&pcapng.DirectionMask == pcapng.Outbound,
			time: p.Time, id: p.ID, size: len(p.Data), len: p.Length, dropped: p.DropCount,
		})
	}
}

// TestPacketAcrossRouter sends different and identical packets over IPv4 and IPv6. It requires each
// packet to have one id at its four taps, in the order in which it passed, by one clock.
func TestPacketAcrossRouter(t *testing.T) {
	l := newLine(t)
	a4, b4 := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	a6, b6 := udp(t, l.a, "[fd00:0:0:1::2]:7000"), udp(t, l.b, "[fd00:0:0:2::2]:7000")
	for _, pair := range [][2]*net.UDPConn{{a4, b4}, {a6, b6}, {b4, a4}} {
		connect(t, pair[0], pair[1])
	}

	var file bytes.Buffer
	before := time.Now().UnixNano()
	s := start(t, l.taps(), Options{Filter: "udp port 7000", SnapLen: 400, Dilation: 3,
		Epoch: time.Unix(5, 0), Plan: "4fd0", Testbed: "line"}, &file)
	const count = 50
	for i := range count {
		send(t, a4, b4, bytes.Repeat([]byte{byte(i)}, 1000), 1)
		send(t, a6, b6, bytes.Repeat([]byte{byte(i)}, 1000), 1)
	}
	send(t, a6, b6, []byte("always the same"), count) // IPv6 has no IP id: these agree in every byte
	send(t, b4, a4, []byte("and back"), count)
	stats, err := s.Stop()
	after := time.Now().UnixNano()
	if err != nil {
		t.Fatal(err)
	}
	packets, r := decode(t, file.Bytes())
	if len(packets) != 4*4*count {
		t.Errorf("%d packets, want %d", len(packets), 4*4*count)
	}
	paths := map[uint64][]seen{}
	for i, p := range packets {
		paths[p.id] = append(paths[p.id], p)
		if i > 0 && p.time < packets[i-1].time {
			t.Errorf("packet %d is %d ns before the one that precedes it", i, packets[i-1].time-p.time)
		}
		if p.time < before || p.time > after {
			t.Errorf("packet %d has the time %d, outside the capture", i, p.time)
		}
		if p.size != min(p.len, 400) {
			t.Errorf("packet of %d bytes kept %d", p.len, p.size)
		}
	}
	if len(paths) != 4*count {
		t.Errorf("%d ids, want %d", len(paths), 4*count)
	}
	forward := "[a:eth0 out r:p0 in r:p1 out b:eth0 in]"
	back := "[b:eth0 out r:p1 in r:p0 out a:eth0 in]"
	kinds := map[string]int{}
	for _, path := range paths {
		var steps []string
		for _, p := range path {
			steps = append(steps, p.tap+map[bool]string{true: " out", false: " in"}[p.out])
		}
		kinds[fmt.Sprint(steps)]++
	}
	if kinds[forward] != 3*count || kinds[back] != count || len(kinds) != 2 {
		t.Errorf("paths %v", kinds)
	}
	const want = "railbed dilation=3 epoch=5000000000ns plan=4fd0 testbed=line"
	if r.Section().Comments[0] != want {
		t.Errorf("section comment %q, want %q", r.Section().Comments, want)
	}
	for i, tap := range stats.Taps {
		counted := r.Statistics()[i]
		if tap.Received != 4*count || tap.Written != 4*count || tap.Dropped != 0 ||
			counted.Received != 4*count || counted.Dropped != 0 {
			t.Errorf("stats %+v, in the file %+v", tap, counted)
		}
		if counted.Start > packets[0].time || counted.End < packets[len(packets)-1].time {
			t.Errorf("packets outside %d..%d", counted.Start, counted.End)
		}
	}
	if stats.Bytes != int64(file.Len()) || stats.Unordered != 0 {
		t.Errorf("stats %+v, file of %d bytes", stats, file.Len())
	}
}

func TestTsharkReadsTheCapture(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	name := filepath.Join(t.TempDir(), "x.pcapng")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := start(t, l.taps(), Options{Filter: "udp", SnapLen: 400}, file)
	deliver(t, a, b, make([]byte, 900), 1)
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tshark", "-n", "-r", name, "-T", "fields", "-e", "frame.interface_name", "-e",
		"frame.packet_flags_direction",
		"-e", "frame.len", "-e", "frame.cap_len", "-e", "ip.ttl").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "a:eth0\t0x00000002\t942\t400\t64\nr:p0\t0x00000001\t942\t400\t64\n" +
		"r:p1\t0x00000002\t942\t400\t63\nb:eth0\t0x00000001\t942\t400\t63\n"
	if string(out) != want {
		t.Errorf("tshark says\n%swant\n%s", out, want)
	}
}

// arrivals keeps what was written, for a reader beside the writer.
type arrivals struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (a *arrivals) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buffer.Write(b)
}

// times returns how often a text was written.
func (a *arrivals) times(text string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Count(a.buffer.Bytes(), []byte(text))
}

// TestLive: a packet is written soon, and does not wait for others or for the end. A busy machine holds up
// some packets, and not each.
func TestLive(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	var out arrivals
	start(t, l.taps(), Options{Filter: "udp"}, &out)
	number := 0
	hosttest.Eventually(t, "a packet that is written within 200 ms", func() error {
		number++
		text, sent := fmt.Sprintf("<live %d>", number), time.Now()
		send(t, a, b, []byte(text), 1)
		hosttest.Until(t, "a packet at each tap", func() bool { return out.times(text) == len(l.taps()) })
		if late := time.Since(sent); late > 200*time.Millisecond {
			return fmt.Errorf("packet %d came after %v", number, late)
		}
		return nil
	})
}

func TestLimit(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	var file bytes.Buffer
	s := start(t, l.taps(), Options{Filter: "udp", Limit: 20000}, &file)
	deliver(t, a, b, make([]byte, 1000), 100)
	stats, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	packets, r := decode(t, file.Bytes())
	if file.Len() > 20000 || len(packets) < 10 {
		t.Errorf("file of %d bytes with %d packets", file.Len(), len(packets))
	}
	if stats.Limited() != uint64(400-len(packets)) || stats.Dropped() != 0 {
		t.Errorf("%d packets, stats %+v", len(packets), stats)
	}
	for i, tap := range stats.Taps {
		if tap.Received != 100 {
			t.Errorf("%+v", tap)
		}
		if want := fmt.Sprintf("railbed limited=%d annotated=0 drops=0 marks=0 trims=0 pauses=0",
			tap.Limited); r.Statistics()[i].Comments[0] != want {
			t.Errorf("comment %q, want %q", r.Statistics()[i].Comments, want)
		}
	}
}

// blocked is a writer that stands still from its second call until it is released.
type blocked struct {
	arrivals
	calls           int
	stands, release chan struct{}
}

func (b *blocked) Write(data []byte) (int, error) {
	if b.calls++; b.calls == 2 {
		close(b.stands)
		<-b.release
	}
	return b.arrivals.Write(data)
}

// TestDropsAreCounted lets the writer stand still until the rings are full.
func TestDropsAreCounted(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	out := &blocked{stands: make(chan struct{}), release: make(chan struct{})}
	s := start(t, l.taps(), Options{Filter: "udp", Memory: 4*minRing + minOrder + minSpool}, out)
	send(t, a, b, make([]byte, 1000), 1)
	<-out.stands
	count := uint64(5000)
	send(t, a, b, make([]byte, 1000), int(count))
	close(out.release)
	// Packets behind the dropped packets say how many these are.
	wait := 50 * time.Millisecond
	hosttest.Until(t, "room for packets at all taps", func() bool {
		last := fmt.Sprintf("<behind %d>", count)
		deliver(t, a, b, []byte(last), 1)
		count++
		// A packet that some tap drops does not come later. Other packets are later on a slow host.
		for end := time.Now().Add(wait); out.times(last) < len(l.taps()) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		wait *= 2
		return out.times(last) == len(l.taps())
	})
	stats, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	packets, r := decode(t, out.buffer.Bytes())
	perTap := map[string]uint64{}
	for _, p := range packets {
		perTap[p.tap]++
	}
	for i, tap := range stats.Taps {
		if tap.Dropped == 0 || tap.Received != count+1 || tap.Written+tap.Dropped != count+1 ||
			tap.Written != perTap[tap.Tap] {
			t.Errorf("%+v, in the file %d", tap, perTap[tap.Tap])
		}
		if r.Statistics()[i].Dropped != tap.Dropped || r.Statistics()[i].Received != count+1 {
			t.Errorf("%+v, in the file %+v", tap, r.Statistics()[i])
		}
	}
	marked := uint64(0)
	again, err := pcapng.NewReader(bytes.NewReader(out.buffer.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := again.Next()
		if err != nil {
			break
		}
		marked += p.DropCount
	}
	if marked != stats.Dropped() {
		t.Errorf("packets say that %d were dropped before them, the taps %d", marked, stats.Dropped())
	}
}

func TestLinkGoesDownAndUp(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	var file bytes.Buffer
	s := start(t, l.taps(), Options{Filter: "udp"}, &file)
	connect(t, a, b)
	within(t, l.r, "ip link set p0 down")
	time.Sleep(50 * time.Millisecond)
	within(t, l.r, "ip link set p0 up")
	within(t, l.a, "ip route replace default via 10.0.0.1")
	again := time.Now()
	connect(t, a, b) // a link that comes up carries packets up to a second later
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	packets, _ := decode(t, file.Bytes())
	if !slices.ContainsFunc(packets, func(p seen) bool {
		return p.tap == "r:p0" && p.time > again.UnixNano()
	}) {
		t.Errorf("%d packets, none of them at r:p0 after it was up again", len(packets))
	}
}

type failing struct{ writes int }

func (f *failing) Write(b []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		return 0, os.ErrClosed
	}
	return len(b), nil
}

func TestWriterFails(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	s := start(t, l.taps(), Options{}, &failing{})
	send(t, a, b, []byte("x"), 1)
	select {
	case <-s.Done():
	case <-time.After(hosttest.Bound):
		t.Fatal("the session goes on without its writer")
	}
	for range 2 {
		if _, err := s.Stop(); err == nil || !strings.Contains(err.Error(), "write capture") {
			t.Errorf("Stop says %v", err)
		}
	}
}

func TestContextEndsIt(t *testing.T) {
	l := newLine(t)
	ctx, cancel := context.WithCancel(t.Context())
	var file bytes.Buffer
	s, err := Start(ctx, l.taps(), Options{}, &file)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-s.Done()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, r := decode(t, file.Bytes()); len(r.Statistics()) != 4 {
		t.Errorf("%d statistics", len(r.Statistics()))
	}
}

func TestStartRefuses(t *testing.T) {
	l := newLine(t)
	for name, c := range map[string]struct {
		taps    []Tap
		options Options
		want    string
	}{
		"no taps": {nil, Options{}, "no taps"},
		"no interface": {[]Tap{{Node: "a", Port: "eth9", NS: l.a}}, Options{},
			`open tap a:eth9: find interface "eth9"`},
		"filter":      {l.taps(), Options{Filter: "vlan 3"}, "supported are"},
		"memory":      {l.taps(), Options{Memory: 1000}, "want at least"},
		"limit":       {l.taps(), Options{Limit: 1000}, "limit of 1000 bytes"},
		"snap length": {l.taps(), Options{SnapLen: 20}, "cuts into the headers"},
	} {
		s, err := Start(t.Context(), c.taps, c.options, io.Discard)
		if err == nil {
			s.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
