package trace_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"railbed/capture/follow"
	"railbed/capture/trace"
	"railbed/testkit/hosttest"
	"railbed/testkit/verifytest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func ring(t testing.TB) *follow.Recording {
	s := verifytest.NewScene(t)
	s.Small = true
	s.Ring(4)
	s.Now += 1e9
	r, err := follow.Read(t.Context(), bytes.NewReader(s.Write()), follow.Options{Options: s.Options()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fields returns the fields of a protobuf message: numbers and byte strings by field number.
func fields(t *testing.T, message []byte) (numbers map[protowire.Number]uint64,
	parts map[protowire.Number][][]byte) {
	t.Helper()
	numbers, parts = map[protowire.Number]uint64{}, map[protowire.Number][][]byte{}
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		switch kind {
		case protowire.VarintType:
			numbers[field], n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			numbers[field], n = protowire.ConsumeFixed64(message)
		default:
			var part []byte
			part, n = protowire.ConsumeBytes(message)
			parts[field] = append(parts[field], part)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
	}
	return numbers, parts
}

// TestPerfettoSlicesAreTheTransmissions reads the trace by the field numbers of Perfetto's published
// messages. Slices of a track do not overlap, and an arrow leads to every transmission of a packet and ends
// at its last.
func TestPerfettoSlicesAreTheTransmissions(t *testing.T) {
	r := ring(t)
	var out bytes.Buffer
	written, err := trace.Perfetto(&out, r, trace.Options{
		Steps: []trace.Step{{Name: "workload ar", From: r.Start - 5000, To: r.End},
			{Node: "h0", Rank: "rank 0", Name: "operation", From: r.Start, To: r.End},
			{Node: "h0", Rank: "rank 0", Name: "step 1 of 1", From: r.Start, To: r.End}}})
	if err != nil || written.Packets != len(r.Packets) {
		t.Fatalf("%+v of %d packets, %v", written, len(r.Packets), err)
	}
	_, traces := fields(t, out.Bytes())
	described := map[uint64]bool{}
	open, free := map[uint64]uint64{}, map[uint64]uint64{}
	flows, latest, ended := map[uint64]int{}, map[uint64]uint64{}, map[uint64]uint64{}
	slices, sent, sending := 0, uint64(0), uint64(0)
	for _, packet := range traces[1] {
		numbers, parts := fields(t, packet)
		for _, descriptor := range parts[60] {
			track, names := fields(t, descriptor)
			if parent := track[5]; described[track[1]] || parent != 0 && !described[parent] ||
				len(names[2])+len(names[3])+len(names[4]) == 0 {
				t.Fatalf("track %d under %d has no name, no parent or a number that another has", track[1],
					parent)
			}
			described[track[1]] = true
		}
		for _, event := range parts[11] {
			e, _ := fields(t, event)
			at, track := numbers[8], e[11]
			if !described[track] {
				t.Fatalf("an event of track %d comes before its description", track)
			}
			flow := e[47] + e[48]
			switch e[9] {
			case 1: // begins
				if _, is := open[track]; is || at < free[track] {
					t.Fatalf("slices of track %d overlap at %d", track, at)
				}
				open[track] = at
				slices++
				if flow == 0 {
					break
				}
				flows[flow]++
				latest[flow] = max(latest[flow], at)
				if sending = track; e[48] != 0 {
					ended[flow] = at
				}
				sent -= at
			case 2:
				if sending == track {
					sent, sending = sent+at, 0
				}
				free[track] = at
				delete(open, track)
			}
		}
	}
	var serialised int64
	links := map[uint64]int{}
	for i := range r.Packets {
		for _, h := range r.Hops(i) {
			if h.Link {
				links[uint64(i)+1]++
				serialised += h.Account[follow.Serialise]
			}
		}
	}
	for flow, n := range links {
		if flows[flow] != n || ended[flow] != latest[flow] {
			t.Errorf("packet %d has %d arrows, want %d; they end at %d, want %d", flow, flows[flow], n,
				ended[flow],
				latest[flow])
		}
	}
	if len(open) > 0 || slices != written.Slices || sent != uint64(serialised) || len(links) == 0 {
		t.Errorf("%d slices stay open; %d of %d; ports sent for %d ns, want %d", len(open), slices,
			written.Slices, sent,
			serialised)
	}
}

// TestChromeHasTheSame compares the JSON form with the protobuf form, of a window and a choice of packets.
func TestChromeHasTheSame(t *testing.T) {
	r := ring(t)
	o := trace.Options{From: 100 * time.Microsecond, To: time.Millisecond,
		Packet: func(packet int) bool { return packet%2 == 0 }}
	want, err := trace.Perfetto(io.Discard, r, o)
	if err != nil || want.Packets == 0 || want.Packets > len(r.Packets)/2 {
		t.Fatalf("%+v of %d packets, %v", want, len(r.Packets), err)
	}
	var out bytes.Buffer
	written, err := trace.Chrome(&out, r, o)
	if err != nil || written != want {
		t.Fatalf("%+v, %v; want %+v", written, err, want)
	}
	var document struct {
		TraceEvents []struct {
			Phase string  `json:"ph"`
			Time  float64 `json:"ts"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	phases := map[string]int{}
	for _, e := range document.TraceEvents {
		phases[e.Phase]++
		if e.Phase == "X" && e.Time < 100 {
			t.Errorf("a slice at %v us, before the window", e.Time)
		}
	}
	if phases["X"] != want.Slices || phases["C"]+phases["i"] != want.Events || phases["s"] == 0 {
		t.Errorf("%v, want %+v", phases, want)
	}
	out.Reset()
	if _, err := trace.Chrome(&out, &follow.Recording{Dilation: 1}, trace.Options{}); err != nil ||
		!json.Valid(out.Bytes()) {
		t.Errorf("an empty trace is %q, %v", out.Bytes(), err)
	}
}

// BenchmarkPerfetto writes traces of recordings and reports records in a second.
func BenchmarkPerfetto(b *testing.B) {
	r := ring(b)
	records := 0
	for i := range r.Packets {
		records += len(r.Sights(i))
	}
	for b.Loop() {
		if _, err := trace.Perfetto(io.Discard, r, trace.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(records*b.N)/b.Elapsed().Seconds(), "records/s")
}
