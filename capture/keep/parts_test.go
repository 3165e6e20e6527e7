package keep_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"railbed/capture/keep"
	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// rotated writes a recording to files of 100 KiB, of which there are at least four.
func rotated(t *testing.T, whole []byte) (folder fstest.MapFS, names []string) {
	t.Helper()
	folder = fstest.MapFS{}
	_, files := kept(t, whole, keep.Options{Rotate: 100 << 10})
	for i, file := range files {
		names = append(names, spec.CapturePart("run.pcapng", i+1))
		folder[names[i]] = &fstest.MapFile{Data: file}
	}
	if len(names) < 4 {
		t.Fatalf("%d files, want 4 or more", len(names))
	}
	return folder, names
}

// judged judges a recording by a check that passes for the whole recording.
func judged(t *testing.T, s *verifytest.Scene, in io.Reader) (evidence.Result, evidence.Summary) {
	t.Helper()
	results, summary, err := evidence.Run(t.Context(), in, s.Options(), fabricchecks.NewConservation("*"))
	if err != nil {
		t.Fatal(err)
	}
	return results[0], summary
}

// TestPartsAreOneRecording reads several files as the one file of the same packets.
func TestPartsAreOneRecording(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	_, one := kept(t, s.Write(), keep.Options{})
	want, all := judged(t, s, bytes.NewReader(one[0]))
	if want.Verdict != verdict.Pass {
		t.Fatalf("%+v", want)
	}
	folder, names := rotated(t, s.Write())
	in, err := keep.Open(folder, names[0])
	if err != nil {
		t.Fatal(err)
	}
	got, summary := judged(t, s, in)
	if !slices.Equal(in.Names(), names) {
		t.Errorf("read %q, want %q", in.Names(), names)
	}
	var joined bytes.Buffer
	for _, name := range names {
		joined.Write(folder[name].Data)
	}
	stream, streamed := judged(t, s, &joined)
	for how, found := range map[string]struct {
		result  evidence.Result
		summary evidence.Summary
	}{"files": {got, summary}, "one after the other": {stream, streamed}} {
		if r := found.result; r.Verdict != want.Verdict || r.Summary != want.Summary {
			t.Errorf("%s: %+v, want %+v", how, r, want)
		}
		if f := found.summary; f.Packets != all.Packets || len(f.Taps) != len(all.Taps) || f.Truncated ||
			f.Lost != all.Lost || f.Start != all.Start || f.Duration != all.Duration || f.Note != all.Note {
			t.Errorf("%s: %+v, want %+v", how, f, all)
		}
	}
}

// TestPartsAreMissing damages a recording in several files. No check passes any more, and the recording names
// the missing files. The other files are read.
func TestPartsAreMissing(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	whole := s.Write()
	all := uint64(len(packets(t, whole)))
	other := verifytest.SoftScene(t, verifytest.SoftFile)
	cut := other.Sightings[100].Time
	other.Remove(func(k verifytest.Sighting) bool { return k.Time < cut })
	_, names := rotated(t, whole)
	last := len(names) - 1
	_, others := kept(t, other.Write(), keep.Options{Rotate: 100 << 10})
	for name, c := range map[string]struct {
		gone   []int               // indexes of files
		second func([]byte) []byte // changes the second file
		want   string
	}{
		"the first":                {[]int{0}, nil, "began with file 2 of the recording"},
		"the first two":            {[]int{0, 1}, nil, "began with file 3 of the recording"},
		"the second":               {[]int{1}, nil, "file 2 of the recording is missing"},
		"the second and the third": {[]int{1, 2}, nil, "files 2 to 3 of the recording are missing"},
		"the last":                 {[]int{last}, nil, "of the recording is missing: open "},
		"an empty file":            {nil, func([]byte) []byte { return nil }, "of the recording is empty"},
		"another recording's file": {nil, func([]byte) []byte { return others[1] },
			"file 2 is of another recording"},
		"a file without its end": {nil, func(file []byte) []byte { return upToStatistics(t, file) },
			"file 2 of the recording lacks its end"},
		"a file that is cut off": {nil, func(file []byte) []byte { return file[:50<<10] },
			"the capture is truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, names := rotated(t, whole)
			for _, i := range c.gone {
				delete(folder, names[i])
			}
			if c.second != nil {
				folder[names[1]].Data = c.second(folder[names[1]].Data)
			}
			in, err := keep.OpenFirst(folder, names[0])
			if err != nil {
				t.Fatal(err)
			}
			r, summary := judged(t, s, in)
			if r.Verdict != verdict.Inconclusive || !strings.Contains(verifytest.Text(r), c.want) ||
				!strings.Contains(summary.Note, c.want) {
				t.Errorf("%s; note %q; want INCONCLUSIVE with %q", verifytest.Text(r), summary.Note, c.want)
			}
			if summary.Packets == 0 || summary.Packets >= all {
				t.Errorf("%d packets of %d were read", summary.Packets, all)
			}
		})
	}
	folder, names := rotated(t, whole)
	r, summary := judged(t, s, bytes.NewReader(folder[names[0]].Data))
	if want := "file 2 of the recording was not read"; r.Verdict != verdict.Inconclusive ||
		summary.Note != want {
		t.Errorf("a stream of the first file: %+v, note %q, want %q", r, summary.Note, want)
	}
	delete(folder, names[0])
	if _, err := keep.Open(folder, names[0]); err == nil {
		t.Error("a file opens that is not there")
	}
}

// upToStatistics returns the blocks of a file before its statistics.
func upToStatistics(t *testing.T, file []byte) []byte {
	t.Helper()
	r, err := pcapng.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, r.Section())
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	for {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for ; described < len(r.Interfaces()); described++ {
			if _, err := w.AddInterface(r.Interfaces()[described]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WritePacket(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
