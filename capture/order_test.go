package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// collect gathers what an order emits.
type collect struct {
	times     []int64
	unordered int
	broken    int // packets whose bytes are not their own
}

func (c *collect) emit(e *entry, data []byte) {
	c.times = append(c.times, e.time)
	if e.unordered {
		c.unordered++
	}
	if int64(binary.LittleEndian.Uint64(data)) != e.time {
		c.broken++
	}
}

func packetOf(time int64) (entry, []byte) {
	return entry{time: time}, binary.LittleEndian.AppendUint64(nil, uint64(time))
}

// TestOrderSorts feeds many taps whose packets come in blocks, at random times
// within the hold-back window.
func TestOrderSorts(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		var c collect
		const base, hold = int64(1e18), int64(80e6)
		o := newOrder(base, 1<<30, c.emit)
		var want []int64
		for now := base; now < base+2e9; now += 10e6 {
			for range 100 {
				time := max(base, now-random.Int64N(hold))
				want = append(want, time)
				o.add(packetOf(time))
			}
			o.release(now - hold)
		}
		o.releaseAll()
		slices.Sort(want)
		if !slices.Equal(c.times, want) || c.unordered != 0 || c.broken != 0 {
			t.Fatalf("seed %d: %d of %d packets, sorted %v, %d marked, %d broken", seed, len(c.times),
				len(want), slices.IsSorted(c.times), c.unordered, c.broken)
		}
		if o.held != 0 {
			t.Errorf("%d bytes held in the end", o.held)
		}
	}
}

func TestOrderMarksLatePackets(t *testing.T) {
	var c collect
	o := newOrder(0, 1<<30, c.emit)
	o.add(packetOf(500e6))
	o.release(400e6)
	o.add(packetOf(100e6)) // too late: what is before 400 ms is written
	o.releaseAll()
	if !slices.Equal(c.times, []int64{100e6, 500e6}) || c.unordered != 1 {
		t.Errorf("times %v, %d marked", c.times, c.unordered)
	}
}

func TestOrderHoldsNoMoreThanItMay(t *testing.T) {
	var c collect
	const most = 100 * (entrySize + 8)
	o := newOrder(0, most, c.emit)
	for i := range int64(1000) {
		o.add(packetOf(i * 100_000))
		if o.held > most {
			t.Fatalf("%d bytes held", o.held)
		}
	}
	if len(c.times) < 800 || c.unordered != 0 {
		t.Errorf("%d packets written early, %d marked", len(c.times), c.unordered)
	}
}

// TestOrderClockJumps lets the clock jump far ahead and back.
func TestOrderClockJumps(t *testing.T) {
	var c collect
	o := newOrder(0, 1<<30, c.emit)
	for _, time := range []int64{1e9, 1000e9, 2e9, 1001e9} {
		o.add(packetOf(time))
	}
	o.releaseAll()
	if len(c.times) != 4 || c.unordered != 1 {
		t.Errorf("times %v, %d marked", c.times, c.unordered)
	}
}

// slowWriter takes its time until it is released.
type slowWriter struct {
	release chan struct{}
	out     bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.release
	return w.out.Write(p)
}

func TestSpoolWaitsForRoom(t *testing.T) {
	w := &slowWriter{release: make(chan struct{})}
	s := newSpool(w, 100, func() {})
	var written atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			if _, err := s.Write(bytes.Repeat([]byte{byte('a' + i)}, 30)); err != nil {
				t.Error(err)
			}
			written.Add(30)
		}
	}()
	w.release <- struct{}{} // one is written
	for written.Load() < 120 {
	}
	if held := written.Load(); held > 130 {
		t.Errorf("%d bytes taken, of which 30 are written and 100 may wait", held)
	}
	close(w.release)
	<-done
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 20 {
		want.WriteString(strings.Repeat(string(rune('a'+i)), 30))
	}
	if w.out.String() != want.String() {
		t.Errorf("wrote %q", w.out.String())
	}
}

// TestSpoolWritesWhenWoken, although fewer bytes wait than wake it by themselves.
func TestSpoolWritesWhenWoken(t *testing.T) {
	in, out := io.Pipe()
	s := newSpool(out, 100, func() {})
	if _, err := s.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := s.wake(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 10)
	if n, err := in.Read(buffer); err != nil || string(buffer[:n]) != "text" {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestSpoolKeepsTheError(t *testing.T) {
	s := newSpool(&failing{writes: 1}, 1000, func() {})
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err == nil || !strings.Contains(err.Error(), "write capture") {
		t.Errorf("close says %v", err)
	}
	if _, err := s.Write([]byte("x")); err == nil || !errors.Is(err, s.wake()) {
		t.Errorf("Write says %v", err)
	}
}

func TestMemoryIsDivided(t *testing.T) {
	for _, taps := range []int{1, 4, 24, 600, 3000} {
		for _, budget := range []int{0, 64 << 20, taps*minRing + minOrder + minSpool} {
			s, err := divideMemory(budget, taps)
			if err != nil {
				if budget == 64<<20 && taps > 900 {
					continue // 64 MiB are not enough for so many
				}
				t.Errorf("%d bytes for %d taps: %v", budget, taps, err)
				continue
			}
			total := taps*s.ring + s.order + s.spool
			if s.ring < minRing || s.order < minOrder || s.spool < minSpool || budget != 0 && total > budget {
				t.Errorf("%d bytes for %d taps: %+v, in all %d", budget, taps, s, total)
			}
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	var emitted int
	o := newOrder(0, 1<<30, func(*entry, []byte) { emitted++ })
	random := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now := int64(i) * 2000
		o.add(entry{time: max(0, now-random.Int64N(40e6))}, data)
		if i%1000 == 0 {
			o.release(now - 80e6)
		}
	}
}

// TestOrderFollowsAClockThatIsSet has packets of years ahead and behind, which cost no
// more than others.
func TestOrderFollowsAClockThatIsSet(t *testing.T) {
	const year = int64(365 * 24 * 3600 * 1e9)
	var c collect
	o := newOrder(year, 1<<30, c.emit)
	o.add(packetOf(year))
	o.add(packetOf(30 * year))
	o.release(30*year + 1e6)
	o.restart(2 * year)
	o.add(packetOf(2*year + 5e6))
	o.add(packetOf(2 * year))
	o.releaseAll()
	if want := []int64{year, 30 * year, 2 * year, 2*year + 5e6}; !slices.Equal(c.times, want) ||
		c.unordered != 0 || o.held != 0 {
		t.Errorf("times %v, %d marked, %d bytes held; want %v", c.times, c.unordered, o.held, want)
	}
}
