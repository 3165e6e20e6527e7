package pcapng_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"railbed/capture/pcapng"
)

// inParts returns a recording in several files, one after the other. The n-th has n packets of the first tap,
// and the n-th tap. Each tap says that it lost as many packets as the file's number.
func inParts(t testing.TB, files int) []byte {
	t.Helper()
	var all bytes.Buffer
	for n := 1; n <= files; n++ {
		note := pcapng.SectionNote{Dilation: 1, Recording: 7, Part: n}
		w, err := pcapng.NewWriter(&all, pcapng.Section{Comments: []string{string(note.AppendTo(nil))}})
		if err != nil {
			t.Fatal(err)
		}
		for tap := range n {
			i := pcapng.Interface{Name: string('a' + rune(tap)), LinkType: 1}
			if _, err := w.AddInterface(i); err != nil {
				t.Fatal(err)
			}
		}
		for k := range n {
			if err := w.WritePacket(&pcapng.Packet{Time: int64(10*n + k), Data: []byte{1, 2}}); err != nil {
				t.Fatal(err)
			}
		}
		for tap := range n {
			counted := pcapng.TapNote{Annotated: uint64(n)}
			if n < files {
				counted.Continued = n + 1
			}
			if err := w.WriteStatistics(pcapng.Statistics{Interface: tap, Start: int64(10 * n),
				End: int64(10*n + 9), Dropped: uint64(n),
				Has:      pcapng.HasStart | pcapng.HasEnd | pcapng.HasDropped,
				Comments: []string{string(counted.AppendTo(nil))}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}

// TestPartsAddUp reads several files as one section: each tap is described once, and its counts are sums.
func TestPartsAddUp(t *testing.T) {
	r, err := pcapng.NewReader(bytes.NewReader(inParts(t, 3)))
	if err != nil {
		t.Fatal(err)
	}
	packets, err := readAll(r)
	if !errors.Is(err, io.EOF) || len(packets) != 6 || len(r.Interfaces()) != 3 || len(r.Missing()) != 0 {
		t.Errorf("%d packets of %+v, missing %q, %v", len(packets), r.Interfaces(), r.Missing(), err)
	}
	want := []pcapng.Part{{Number: 1}, {Number: 2, Before: 1}, {Number: 3, Before: 3}}
	if !slices.Equal(r.Parts()[0], want) {
		t.Errorf("files %+v, want %+v", r.Parts()[0], want)
	}
	for tap, want := range []struct {
		start int64
		lost  uint64
	}{{10, 1 + 2 + 3}, {20, 2 + 3}, {30, 3}} {
		s := r.Statistics()[tap]
		note, _ := pcapng.ParseTapNote([]byte(s.Comments[0]))
		if s.Start != want.start || s.End != 39 || s.Dropped != want.lost || len(s.Comments) != 1 ||
			note != (pcapng.TapNote{Annotated: want.lost}) {
			t.Errorf("tap %d: %+v, want start %d and %d lost", tap, s, want.start, want.lost)
		}
	}
}
