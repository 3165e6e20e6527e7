package keep_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"railbed/capture/keep"
	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
	"railbed/testkit/verifytest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// kept keeps a part of a recording and returns its files.
func kept(t *testing.T, recording []byte, o keep.Options) (keep.Kept, [][]byte) {
	t.Helper()
	var files []*bytes.Buffer
	k, err := keep.Copy(bytes.NewReader(recording), func(number int) (io.WriteCloser, error) {
		if number != len(files)+1 {
			t.Errorf("file %d after %d files", number, len(files))
		}
		files = append(files, &bytes.Buffer{})
		return nopCloser{files[number-1]}, nil
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for _, f := range files {
		texts = append(texts, f.Bytes())
	}
	if k.Files != len(files) {
		t.Errorf("%+v of %d files", k, len(files))
	}
	return k, texts
}

// packet is a record: its time from the scene's start, its tap and its id.
type packet struct {
	at   time.Duration
	tap  string
	id   uint64
	text string
}

func packets(t *testing.T, recording []byte) (all []packet) {
	t.Helper()
	r, err := pcapng.NewReader(bytes.NewReader(recording))
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, c := range p.Comments {
			text += string(c)
		}
		all = append(all, packet{time.Duration(p.Time - verifytest.Start), r.Interfaces()[p.Interface].Name,
			p.ID,
			text + string(p.Data)})
	}
}

func events(t *testing.T, texts ...string) keep.Triggers {
	t.Helper()
	all, err := keep.ParseTriggers(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPartsOfARecording keeps parts and compares them with the records of the whole.
func TestPartsOfARecording(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	whole := s.Write()
	all := packets(t, whole)
	end := all[len(all)-1].at
	first := func(match func(packet) bool) int { return slices.IndexFunc(all, match) }
	sent := func(id uint64) func(packet) bool { return func(p packet) bool { return p.id == id } }
	from, to := first(sent(100)), first(sent(200))
	for name, test := range map[string]struct {
		o    keep.Options
		want []packet
	}{
		"all": {keep.Options{}, all},
		"last": {keep.Options{Last: time.Millisecond},
			all[first(func(p packet) bool { return p.at > end-time.Millisecond }):]},
		"from an event on": {keep.Options{Start: events(t, "frame.packet_id == 100")}, all[from:]},
		"to an event":      {keep.Options{Stop: events(t, "frame.packet_id == 200")}, upTo(all, all[to].at)},
		"around events": {keep.Options{Last: time.Millisecond, After: time.Millisecond,
			Start: events(t, "frame.packet_id == 100"), Stop: events(t, "frame.packet_id == 200")},
			upTo(all[first(func(p packet) bool { return p.at > all[from].at-time.Millisecond }):],
				all[to].at+time.Millisecond)},
		"the last before an event": {keep.Options{Last: time.Millisecond, Stop: events(t,
			"frame.packet_id == 200")},
			upTo(all[first(func(p packet) bool { return p.at > all[to].at-time.Millisecond }):], all[to].at)},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := 0
			test.o.Stopped = func() { stopped++ }
			k, files := kept(t, whole, test.o)
			if len(files) != 1 {
				t.Fatalf("%d files", len(files))
			}
			if got := packets(t, files[0]); !slices.Equal(got, test.want) || int(k.Packets) != len(got) ||
				int(k.Packets+k.LeftOut) != len(all) || (stopped == 1) != (test.o.Stop != nil) {
				t.Errorf("%d packets from %v on, want %d from %v on; %+v, stopped %d times", len(got),
					got[0].at,
					len(test.want), test.want[0].at, k, stopped)
			}
			judge(t, s, files[0])
		})
	}
	if k, files := kept(t, whole, keep.Options{Start: events(t,
		"tcp.flags.reset == 1")}); len(files) != 0 || k.Started ||
		int(k.LeftOut) != len(all) {
		t.Errorf("without the event: %+v", k)
	}
}

// upTo returns the packets up to a time.
func upTo(all []packet, end time.Duration) []packet {
	after := slices.IndexFunc(all, func(p packet) bool { return p.at > end })
	return all[:after]
}

// judge requires that a part is a whole capture for the checks: they find no loss of records, and no
// violation. A packet that is under way at an end may keep a check from passing.
func judge(t *testing.T, s *verifytest.Scene, file []byte) {
	t.Helper()
	o := s.Options()
	o.From, o.To = 0, 0
	results, summary, err := evidence.Run(t.Context(), bytes.NewReader(file), o,
		fabricchecks.NewConservation("*"))
	if err != nil || summary.Truncated || summary.Lost > 0 || summary.Note != "" ||
		results[0].Verdict == verdict.Fail {
		t.Errorf("%+v, %+v, %v", results, summary, err)
	}
}

// TestRotation cuts a recording into files. Together they have all packets once, and each is a whole
// capture. The losses that the recording counted are in one of them.
func TestRotation(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Drops["leaf1:p0"] = 7
	whole := s.Write()
	_, files := kept(t, whole, keep.Options{Rotate: 100 << 10})
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	var got []packet
	lost := uint64(0)
	for i, file := range files {
		if i < len(files)-1 && (len(file) < 100<<10 || len(file) > 120<<10) {
			t.Errorf("file %d has %d bytes", i+1, len(file))
		}
		got = append(got, packets(t, file)...)
		_, summary, err := evidence.Run(t.Context(), bytes.NewReader(file), s.Options())
		if err != nil || summary.Truncated {
			t.Errorf("file %d: %+v, %v", i+1, summary, err)
		}
		lost += summary.Lost
	}
	if !slices.Equal(got, packets(t, whole)) || lost != 7 {
		t.Errorf("%d packets of %d, %d lost", len(got), len(packets(t, whole)), lost)
	}
}
