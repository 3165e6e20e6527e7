package capture

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"railbed/capture/filter"
	"railbed/capture/pcapng"
	"railbed/internal/feed"
	"railbed/testkit/hosttest"
)

// fed is a feed and the taps of a soft switch that come by it.
func fed(t testing.TB, size int, names ...string) (*feed.Writer, []Tap, Options) {
	t.Helper()
	file, err := feed.Create(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	w, err := feed.NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	var taps []Tap
	for i, name := range names {
		taps = append(taps, Tap{Node: "leaf1", Port: name, Link: "l" + name, Soft: true, Fed: true,
			Number: uint16(i)})
	}
	return w, taps, Options{Feed: file, Serials: true}
}

// frame is the record of a frame whose content is its number.
func frame(number int, at int64) *feed.Record {
	data := bytes.Repeat([]byte{0xAA}, 60)
	data[20], data[21], data[22], data[23] = byte(number>>24), byte(number>>16), byte(number>>8), byte(number)
	return &feed.Record{Time: at, Length: len(data), Event: feed.Receive, Data: data}
}

// addsUp holds that each packet of a tap is accounted for in exactly one way.
func addsUp(t *testing.T, s Stats) {
	t.Helper()
	for _, tap := range s.Taps {
		if tap.Received != tap.Written+tap.Limited+tap.Dropped {
			t.Errorf("%+v does not add up", tap)
		}
	}
}

// TestFeedIsReadToItsEnd ends a recording while several hundred thousand records wait
// in the feed, more than are read in the hold-back window at some thousands a tick.
func TestFeedIsReadToItsEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		passes int // of so many records one is for the joiner alone
	}{{"all have room", 64 << 20, 0}, {"most have none", 8 << 20, 0},
		{"most for the joiner have none", 8 << 20, 2}} {
		t.Run(c.name, func(t *testing.T) {
			count := 400_000
			w, taps, options := fed(t, c.size, "p0")
			var file bytes.Buffer
			s := start(t, taps, options, &file)
			passed := uint64(0)
			for i := range count {
				record := frame(i, time.Now().UnixNano())
				if c.passes > 0 && i%c.passes == 0 {
					record.Event = feed.Enter
				}
				if w.Write(record) && record.Event == feed.Enter {
					passed++
				}
			}
			// A record after those that were lost carries their number.
			for attempts := 0; ; attempts++ {
				count++
				if w.Write(frame(count, time.Now().UnixNano())) {
					break
				}
				if attempts == 2000 {
					t.Fatal("the recorder does not empty the feed")
				}
				time.Sleep(10 * time.Millisecond)
			}
			stats, err := s.Stop()
			if err != nil {
				t.Fatal(err)
			}
			addsUp(t, stats)
			tap := stats.Taps[0]
			if tap.Written+tap.Dropped+passed != uint64(count) || tap.Written == 0 ||
				c.size == 64<<20 && tap.Dropped > 0 {
				t.Errorf("%+v of %d records", tap, count)
			}
			packets, r := decode(t, file.Bytes())
			before := uint64(0)
			for _, p := range packets {
				before += p.dropped
			}
			if before != tap.Dropped {
				t.Errorf("records have %d lost before them, of %d", before, tap.Dropped)
			}
			if in := r.Statistics()[0]; uint64(len(packets)) != tap.Written || in.Dropped != tap.Dropped ||
				in.Delivered != tap.Written {
				t.Errorf("%d packets in the file and %+v, of %+v", len(packets), in, tap)
			}
		})
	}
}

// TestWriteFailureLosesCounted fails the writing while records come: those that wait
// for their turn and those in the feed are lost, by count.
func TestWriteFailureLosesCounted(t *testing.T) {
	inProcess(t)
	w, taps, options := fed(t, 64<<20, "p0")
	s := start(t, taps, options, &failing{})
	count := uint64(0)
	for ended := false; !ended; count++ {
		select {
		case <-s.Done():
			ended = true
		default:
			w.Write(frame(int(count), time.Now().UnixNano()))
			if count%1000 == 999 {
				time.Sleep(time.Millisecond) // the recorder reads meanwhile, under the race detector too
			}
		}
	}
	stats, err := s.Stop()
	addsUp(t, stats)
	if tap := stats.Taps[0]; err == nil || tap.Received > count || tap.Dropped == 0 {
		t.Errorf("%+v of %d records, %v", tap, count, err)
	}
}

// TestOpenBlockIsRead has a ring whose blocks the kernel's timer closes too late.
func TestOpenBlockIsRead(t *testing.T) {
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	rings, err := openRings(l.taps()[:1])
	if err != nil {
		t.Fatal(err)
	}
	r := rings[0]
	defer r.close()
	program, err := filter.Compile("udp port 7000", defaultSnap)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.setup(program, defaultSnap, minRing, 60_000); err != nil {
		t.Fatal(err)
	}
	if err := r.activate(); err != nil {
		t.Fatal(err)
	}
	const first, then = 7, 4
	send(t, a, b, []byte("before the end"), first)
	end := time.Now().UnixNano()
	send(t, a, b, []byte("after the end"), then)
	count := func(fn func(func(*captured))) (seen int) {
		fn(func(*captured) { seen++ })
		return seen
	}
	closed := count(func(fn func(*captured)) {
		if _, err := r.drain(r.blocks, fn); err != nil {
			t.Fatal(err)
		}
	})
	if open := count(func(fn func(*captured)) { r.drainOpen(end, fn) }); closed != 0 || open != first {
		t.Errorf("%d packets in closed blocks and %d in the open one, want 0 and %d", closed, open, first)
	}
	// Once its blocks have gone round, the next one is free and holds a former round's
	// packets until the kernel opens it.
	r.number = 1 << 40
	if open := count(func(fn func(*captured)) { r.drainOpen(end, fn) }); open != 0 {
		t.Errorf("%d packets of a block that is not open", open)
	}
}

func TestClockWatch(t *testing.T) {
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		looks []clocks
		want  []time.Duration // sum of steps after each look
	}{
		"steady": {[]clocks{{0, 50 * second, 10}, {second, 51*second + 5, second + 10},
			{2 * second, 52 * second, 2*second + 20}}, []time.Duration{0, 0, 0}},
		"held up": {[]clocks{{0, 50 * second, 10}, {second, 51 * second, 3 * second},
			{4 * second, 57 * second, 8 * second}}, []time.Duration{0, 0, 0}},
		"backwards": {[]clocks{{0, 50 * second, 0}, {second, 41 * second, second},
			{2 * second, 42 * second, 2 * second}}, []time.Duration{0, -10 * time.Second, -10 * time.Second}},
		"and back": {[]clocks{{0, 50 * second, 0}, {second, 41 * second, second},
			{2 * second, 52 * second, 2 * second}}, []time.Duration{0, -10 * time.Second, 0}},
		"forwards": {[]clocks{{0, 50 * second, 0}, {second, 151 * second, second}},
			[]time.Duration{0, 100 * time.Second}},
		"small": {[]clocks{{0, 50 * second, 0}, {second, 51*second + 1e6, second}},
			[]time.Duration{0, time.Millisecond}},
	} {
		at := 0
		w := clockWatch{read: func() clocks { at++; return c.looks[at-1] }}
		ever := false
		for i, want := range c.want {
			now, stepped := w.readClocks()
			changed := i > 0 && want != c.want[i-1]
			ever = ever || changed
			if now != c.looks[i] || stepped != changed || w.by != want || w.stepped != ever {
				t.Errorf("%s: look %d says %v, stepped %v by %v, ever %v; want %v", name, i, now, stepped,
					w.by, w.stepped, want)
			}
		}
	}
	// The host's own clocks, under whatever load, have no steps.
	w := clockWatch{read: readClocks}
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
		if _, stepped := w.readClocks(); stepped {
			t.Fatalf("a step of %v, want none", w.by)
		}
	}
}

// TestClockStepIsCounted sets the clock that stamps packets in the middle of a recording. The step
// is so large that all later packets lie before the recording's start, or that all earlier packets
// lie years before its end.
func TestClockStepIsCounted(t *testing.T) {
	for name, by := range map[string]time.Duration{"backwards": -time.Hour,
		"forwards": 10 * 365 * 24 * time.Hour, "in the end": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			inEnd := name == "in the end" // after Stop, before all packets were read
			const before, after = 300, 500
			w, taps, options := fed(t, 8<<20, "p0", "p1")
			var file bytes.Buffer
			r, err := newRecorder(taps, make([]*ring, len(taps)), options, &file)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var step, looks atomic.Int64
			seesEnd := false
			r.clock.read = func() clocks {
				now := readClocks()
				if inEnd && seesEnd {
					now.real += int64(by)
				}
				seesEnd = seesEnd || ctx.Err() != nil
				now.real += step.Load()
				looks.Add(1)
				return now
			}
			done := make(chan error)
			go func() { done <- r.run(ctx) }()
			write := func(count int) {
				for i := range count {
					w.Write(frame(i, time.Now().UnixNano()+step.Load()))
				}
				before := looks.Load() // the recorder reads after each look
				hosttest.Until(t, "the recorder's reads", func() bool { return looks.Load() >= before+3 })
			}
			write(before)
			if !inEnd {
				step.Store(int64(by))
			}
			write(after)
			began := time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > hosttest.Bound {
				t.Errorf("the end took %v", took)
			}
			stats := r.stats()
			addsUp(t, stats)
			if tap := stats.Taps[0]; tap.Written+tap.Dropped != before+after ||
				by < 0 && !inEnd && tap.Dropped < after/2 || (by > 0 || inEnd) && tap.Dropped > 0 {
				t.Errorf("%+v of %d packets before the step and %d after it", tap, before, after)
			}
			if off := stats.ClockStepped - by; off.Abs() > time.Millisecond {
				t.Errorf("a step of %v, want %v", stats.ClockStepped, by)
			}
			_, read := decode(t, file.Bytes())
			for i, statistics := range read.Statistics() {
				note, ok := pcapng.ParseTapNote([]byte(statistics.Comments[0]))
				if !ok || note.ClockStepped != stats.ClockStepped {
					t.Errorf("tap %d has the note %q, want a step of %v", i, statistics.Comments,
						stats.ClockStepped)
				}
			}
		})
	}
}

// TestNotesCountAnnotations has one record of each kind and reads the counts in the
// tap's note.
func TestNotesCountAnnotations(t *testing.T) {
	w, taps, options := fed(t, 1<<20, "p0", "p1")
	options.Reasons, options.Plan = []string{"", "tail"}, "4fd0"
	var file bytes.Buffer
	s := start(t, taps, options, &file)
	for i, kind := range []struct {
		event   feed.Event
		verdict feed.Verdict
	}{
		{feed.Receive, feed.Plain}, {feed.Send, feed.Mark}, {feed.Send, feed.Mark}, {feed.Send, feed.Trim},
		{feed.Drop, feed.Plain}, {feed.Lose, feed.Mark},
		{feed.Refuse, feed.Plain}, {feed.Receive, feed.Pause}, {feed.Send, feed.Resume},
		{feed.Receive, feed.Slow}, {feed.Send, feed.Plain},
	} {
		record := frame(i, time.Now().UnixNano())
		record.Event, record.Verdict, record.Reason = kind.event, kind.verdict, 1
		w.Write(record)
	}
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	_, r := decode(t, file.Bytes())
	for i, want := range []string{
		"railbed limited=0 annotated=10 drops=3 marks=2 trims=1 pauses=3",
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0",
	} {
		if got := r.Statistics()[i].Comments; len(got) != 1 || got[0] != want {
			t.Errorf("tap %d has the notes %q, want %q", i, got, want)
		}
	}
	if n, ok := pcapng.ParseSectionNote([]byte(r.Section().Comments[0])); !ok || n.Plan != "4fd0" ||
		n.Testbed != "" {
		t.Errorf("section %q", r.Section().Comments)
	}
	for _, word := range []string{"two words", "\x1b[31m"} {
		options.Testbed = word
		if s, err := Start(t.Context(), taps, options, io.Discard); err == nil {
			s.Stop()
			t.Errorf("testbed %q was accepted", word)
		}
	}
}

// TestEqualPacketsKeepTheirIDs has packets that are alike in every byte cross a switch,
// which drops the second, doubles the third and trims the fourth.
func TestEqualPacketsKeepTheirIDs(t *testing.T) {
	w, taps, options := fed(t, 1<<20, "p0", "p1")
	options.Reasons = []string{"", "tail"}
	var file bytes.Buffer
	s := start(t, taps, options, &file)
	write := func(tap uint16, event feed.Event, serial uint64) {
		record := frame(0, time.Now().UnixNano())
		record.Tap, record.Event, record.Serial = tap, event, serial
		if event == feed.Send && serial == 4 {
			record.Verdict, record.Length, record.Data = feed.Trim, 40, record.Data[:40]
		}
		w.Write(record)
	}
	for serial := range uint64(5) {
		write(0, feed.Receive, serial+1)
	}
	for _, serial := range []uint64{1, 3, 3, 4, 5} {
		if serial == 3 {
			write(1, feed.Drop, 2)
		}
		write(1, feed.Send, serial)
	}
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	packets, _ := decode(t, file.Bytes())
	var entered []uint64
	left := map[uint64]int{}
	for _, p := range packets {
		if p.tap == "leaf1:p0" {
			entered = append(entered, p.id)
		} else {
			left[p.id]++
		}
	}
	if len(entered) != 5 {
		t.Fatalf("%d packets entered, want 5", len(entered))
	}
	for i, want := range []int{1, 2, 2, 1, 1} { // sendings and drops
		if left[entered[i]] != want {
			t.Errorf("packet %d has %d records at the second port, want %d: %#x in %#x", i+1,
				left[entered[i]], want, entered[i], left)
		}
	}
}
