package pcapng_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
)

// seen is a packet of a test recording.
type seen struct {
	tap     string
	time    int64
	id      uint64
	data    string
	comment string
}

// recorded describes a test recording.
type recorded struct {
	taps       []string
	filter     string
	start, end int64
	lost       uint64 // at each tap
	plan       string
	packets    []seen
}

func (r recorded) write(t testing.TB) []byte {
	t.Helper()
	var file bytes.Buffer
	note := pcapng.SectionNote{Dilation: 1, Plan: r.plan}
	w, err := pcapng.NewWriter(&file, pcapng.Section{Comments: []string{string(note.AppendTo(nil))}})
	for _, tap := range r.taps {
		_, added := w.AddInterface(pcapng.Interface{Name: tap, LinkType: 1, Filter: r.filter})
		err = errors.Join(err, added)
	}
	for _, p := range r.packets {
		one := pcapng.Packet{Interface: slices.Index(r.taps, p.tap), Time: p.time, ID: p.id, Length: 6,
			Data: []byte(p.data), Has: pcapng.HasID | pcapng.HasFlags, Flags: pcapng.Outbound}
		if p.comment != "" {
			one.Comments = [][]byte{[]byte(p.comment)}
		}
		err = errors.Join(err, w.WritePacket(&one))
	}
	for i := range r.taps {
		err = errors.Join(err, w.WriteStatistics(pcapng.Statistics{Interface: i, Start: r.start, End: r.end,
			Dropped: r.lost, Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasDropped}))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// merge reads recordings as one. It returns a line for each packet: its tap, time, id, bytes and origin.
func merge(t testing.TB, files ...[]byte) (lines []string, m *pcapng.Merger, err error) {
	t.Helper()
	var names []string
	var sources []io.Reader
	for i, file := range files {
		names = append(names, fmt.Sprintf("%d.pcapng", i))
		sources = append(sources, bytes.NewReader(file))
	}
	if m, err = pcapng.NewMerger(names, sources); err != nil {
		return nil, nil, err
	}
	for {
		p, err := m.Next()
		if err != nil {
			return lines, m, err
		}
		lines = append(lines, fmt.Sprintf("%s %d id %d %s from %d:%d", m.Interfaces()[p.Interface].Name,
			p.Time, p.ID, p.Data, p.Origin.Recording, p.Origin.Number))
		if p.Number != len(lines) {
			t.Errorf("packet %d has number %d", len(lines), p.Number)
		}
	}
}

func TestMergeRecordings(t *testing.T) {
	nic := recorded{taps: []string{"a"}, start: 1, end: 99, packets: []seen{
		{"a", 10, 1, "abcdef", ""}, {"a", 30, 2, "ghijkl", ""}}}
	tests := []struct {
		name  string
		files []recorded
		want  []string
	}{
		{"disjoint taps", []recorded{nic, {taps: []string{"b", "c"}, packets: []seen{
			{"b", 20, 1, "abcdef", ""}, {"c", 40, 1, "abcdef", ""}}}},
			[]string{"a 10 id 1 abcdef from 0:1", "b 20 id 1 abcdef from 1:1", "a 30 id 2 ghijkl from 0:2",
				"c 40 id 1 abcdef from 1:2"}},
		{"a packet in both, with other ids and cut off in one", []recorded{nic, {taps: []string{"a", "b"},
			packets: []seen{{"a", 10, 7, "abc", ""}, {"b", 20, 7, "abc", ""}, {"a", 30, 8, "ghi", ""},
				{"b", 40, 8, "ghi", ""}}}},
			// The second recording has more taps, so its ids are used.
			[]string{"a 10 id 7 abcdef from 1:1", "b 20 id 7 abc from 1:2", "a 30 id 8 ghijkl from 1:3",
				"b 40 id 8 ghi from 1:4"}},
		{"ids of the recording with fewer taps change", []recorded{{taps: []string{"a", "b", "c"},
			packets: []seen{{"a", 10, 1, "abcdef", ""}}}, {taps: []string{"a", "d"},
			packets: []seen{{"a", 10, 7, "abcdef", ""}, {"d", 20, 7, "abcdef", ""}}}},
			[]string{"a 10 id 1 abcdef from 0:1", "d 20 id 1 abcdef from 1:2"}},
		{"equal packets of one recording stay two", []recorded{
			{taps: []string{"a"}, packets: []seen{{"a", 10, 1, "abcdef", ""}, {"a", 10, 1, "abcdef", ""}}},
			{taps: []string{"a"}, packets: []seen{{"a", 10, 1, "abcdef", ""}, {"a", 10, 1, "abcdef", ""},
				{"a", 10, 1, "abcdef", ""}}}},
			[]string{"a 10 id 1 abcdef from 0:1", "a 10 id 1 abcdef from 0:2", "a 10 id 1 abcdef from 1:3"}},
		{"verdicts tell packets apart, dequeue does not", []recorded{
			{taps: []string{"a"}, packets: []seen{{"a", 10, 1, "abcdef", "railbed depth=0"}}},
			{taps: []string{"a"}, packets: []seen{{"a", 10, 1, "abcdef", "railbed verdict=dequeue depth=0"},
				{"a", 10, 1, "abcdef", "railbed verdict=drop reason=tail depth=0"}}}},
			[]string{"a 10 id 1 abcdef from 0:1", "a 10 id 1 abcdef from 1:2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var files [][]byte
			for _, r := range test.files {
				files = append(files, r.write(t))
			}
			got, _, err := merge(t, files...)
			if err != io.EOF || !slices.Equal(got, test.want) {
				t.Errorf("%v: got\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestMergeStatistics has taps that several recordings share. Each recording states what it has of a tap.
func TestMergeStatistics(t *testing.T) {
	const group = "abcdef" // by its first bit
	packets := []seen{{"a", 10, 1, "bcdefg", ""},
		{"a", 80, 2, "bcdefg", "railbed verdict=drop reason=tail depth=0"}, {"a", 40, 3, "bcdefg", ""},
		{"a", 85, 4, group, ""}}
	_, m, err := merge(t,
		recorded{taps: []string{"a", "b"}, start: 5, end: 60, lost: 3, packets: packets[:1]}.write(t),
		recorded{taps: []string{"b", "c"}, start: 1, end: 95, lost: 1}.write(t),
		recorded{taps: []string{"a"}, start: 50, end: 90, lost: 4, packets: packets}.write(t),
		recorded{taps: []string{"a", "d"}, start: 70, end: 75, lost: 9, filter: "udp"}.write(t))
	if err != io.EOF {
		t.Fatal(err)
	}
	var got []string
	for _, s := range m.Statistics() {
		r := s.Recorded
		got = append(got, fmt.Sprintf("%s in %d %s: %d to %d, lost %d, filter %q, %d packets from %d to %d, "+
			"%d drops, %d unordered", m.Interfaces()[s.Interface].Name, r.Recording, r.Name, s.Start, s.End,
			s.Dropped, r.Filter, r.Packets, r.First, r.Last, r.Notes.Drops, r.Unordered))
	}
	want := []string{
		`a in 0 0.pcapng: 5 to 60, lost 3, filter "", 1 packets from 10 to 10, 0 drops, 0 unordered`,
		`b in 0 0.pcapng: 5 to 60, lost 3, filter "", 0 packets from 0 to 0, 0 drops, 0 unordered`,
		`b in 1 1.pcapng: 1 to 95, lost 1, filter "", 0 packets from 0 to 0, 0 drops, 0 unordered`,
		`c in 1 1.pcapng: 1 to 95, lost 1, filter "", 0 packets from 0 to 0, 0 drops, 0 unordered`,
		`a in 2 2.pcapng: 50 to 90, lost 4, filter "", 4 packets from 10 to 80, 1 drops, 1 unordered`,
		`a in 3 3.pcapng: 70 to 75, lost 9, filter "udp", 0 packets from 0 to 0, 0 drops, 0 unordered`,
		`d in 3 3.pcapng: 70 to 75, lost 9, filter "udp", 0 packets from 0 to 0, 0 drops, 0 unordered`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if i := m.Interfaces(); i[0].Filter != "" || i[3].Filter != "udp" {
		t.Errorf("%+v", i)
	}
}

// TestMergeWrongRecordings has recordings that do not fit together, and a file that is cut off.
func TestMergeWrongRecordings(t *testing.T) {
	one := recorded{taps: []string{"a"}, plan: "x", packets: []seen{{"a", 10, 1, "abcdef", ""},
		{"a", 30, 2, "abcdef", ""}}}
	other := one
	other.plan = "y"
	_, _, err := merge(t, one.write(t), other.write(t))
	if err == nil || !strings.Contains(err.Error(), "0.pcapng and 1.pcapng are recordings of different") {
		t.Errorf("%v", err)
	}
	one.taps, one.packets[0].tap, one.packets[1].tap = []string{"b"}, "b", "b"
	whole := one.write(t)
	cut := recorded{taps: []string{"a"}, plan: "x", packets: []seen{{"a", 20, 1, "abcdef", ""}}}.write(t)
	got, m, err := merge(t, cut[:len(cut)-70], whole)
	want := []string{"b 10 id 1 abcdef from 1:1", "b 30 id 2 abcdef from 1:2"}
	if !errors.Is(err, pcapng.ErrTruncated) || !slices.Equal(got[len(got)-1:], want[1:]) ||
		!strings.Contains(err.Error(), "0.pcapng") {
		t.Errorf("%v: %q, want %q and an error", err, got, want)
	}
	if _, again := m.Next(); !errors.Is(again, pcapng.ErrTruncated) {
		t.Errorf("then %v", again)
	}
}
