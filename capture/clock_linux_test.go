package capture

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/capture/pcapng"
	"railbed/testkit/hosttest/vmtest"
)

// setClock moves the machine's wall clock.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
}

// TestClockThatIsSet sets the clock of a machine back by an hour while it records, and
// then forward again.
func TestClockThatIsSet(t *testing.T) {
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth"}, CPUs: 2, Timeout: 3 * time.Minute}) {
		return
	}
	l := newLine(t)
	a, b := udp(t, l.a, "10.0.0.0:7000"), udp(t, l.b, "10.0.0.2:7000")
	connect(t, a, b)
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		const before, after = 40, 70
		var file bytes.Buffer
		s := start(t, l.taps(), Options{Filter: "udp port 7000"}, &file)
		send(t, a, b, []byte("before"), before)
		time.Sleep(300 * time.Millisecond)
		setClock(t, by)
		send(t, a, b, []byte("after"), after)
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		stats, err := s.Stop()
		if took := time.Since(began); err != nil || took > 30*time.Second {
			t.Errorf("set by %v: the end took %v, %v", by, took, err)
		}
		addsUp(t, stats)
		if off := stats.ClockStepped - by; off.Abs() > 100*time.Millisecond {
			t.Errorf("set by %v: a step of %v", by, stats.ClockStepped)
		}
		_, r := decode(t, file.Bytes())
		for i, tap := range stats.Taps {
			lost := uint64(0)
			if by < 0 {
				lost = after // their stamps lie before the start
			}
			note, _ := pcapng.ParseTapNote([]byte(r.Statistics()[i].Comments[0]))
			if tap.Received != before+after || tap.Dropped != lost ||
				note.ClockStepped != stats.ClockStepped {
				t.Errorf("set by %v: %+v of %d packets, %d of them after it; note %+v", by, tap, before+after,
					after, note)
			}
		}
	}
}
