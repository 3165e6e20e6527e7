package live_test

import (
	"testing"
	"time"

	"railbed/fabric/softswitch/live"
	"railbed/internal/feed"
	"railbed/plan"
)

// A frame arrives at a NIC after it left the switch, also in the records.
func TestBypassRecordsInOrder(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 40gbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	link := p.Links[1] // of h1
	recording, err := f.Record([]plan.End{link.A, link.B}, live.RecordOptions{Snap: 64, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := feed.NewReader(recording.File)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	const frames = 50
	for range frames {
		left.send(t, right.addr, bypassPort, time.Time{}, []byte("x"))
		right.receive(t)
	}
	if err := recording.Close(); err != nil {
		t.Fatal(err)
	}
	departed, compared := map[uint64]int64{}, 0
	for n := 1; n > 0; {
		if n, err = reader.Read(1<<20, func(r *feed.Record) {
			switch at, known := departed[r.Serial]; {
			case r.Tap == 1 && r.Event == feed.Send:
				departed[r.Serial] = r.Time
			case r.Tap == 0 && r.Event == feed.Receive && known:
				if compared++; r.Time < at {
					t.Errorf("frame %d arrived %v before it left", r.Serial, time.Duration(at-r.Time))
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if compared != frames {
		t.Errorf("%d frames were compared, want %d", compared, frames)
	}
}
