package msccl

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"railbed/plan/schedule"
)

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRead reads files of each collective and with each type of step. That they are
// proved is in Read; what they send is counted by hand.
func TestRead(t *testing.T) {
	for name, want := range map[string]struct {
		kind       schedule.Kind
		chunks     int
		scratch    int
		outOfPlace bool  // alone
		sent       []int // by rank, chunks
	}{
		// Two chunks of each of the three ranks to both others, there and back.
		"allpairs.xml": {schedule.AllReduce, 6, 4, false, []int{8, 8, 8}},
		// With one chunk for the result of rrs, which rrs does not store.
		"ring.xml":      {schedule.AllReduce, 3, 1, true, []int{4, 4, 4}},
		"gather.xml":    {schedule.AllGather, 6, 0, false, []int{4, 4, 4}},
		"scatter.xml":   {schedule.ReduceScatter, 3, 3, false, []int{2, 2, 2}},
		"exchange.xml":  {schedule.AllToAll, 6, 2, true, []int{6, 6, 6}},
		"broadcast.xml": {schedule.Broadcast, 2, 0, true, []int{2, 2, 0}},
		"reduce.xml":    {schedule.Reduce, 2, 4, false, []int{0, 2, 2}},
		// Its input has to stay as it is, so that the sum is made in scratch memory.
		"clobbers.xml": {schedule.AllReduce, 1, 1, true, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read(name, []byte(read(t, name)), 0)
			if err != nil {
				t.Fatal(err)
			}
			if s.Kind != want.kind || s.Chunks != want.chunks || s.Scratch != want.scratch ||
				s.OutOfPlace != want.outOfPlace || !s.Equal {
				t.Errorf("%s of %d chunks, %d of scratch memory, out of place alone %v; want %+v", s.Kind,
					s.Chunks, s.Scratch, s.OutOfPlace, want)
			}
			for rank, chunks := range want.sent {
				if got := s.Counted(rank); got != chunks {
					t.Errorf("rank %d sends %d chunks, want %d", rank, got, chunks)
				}
			}
		})
	}
}

// TestWaits checks that a step waits for the first step with hasdep, and that a nop's wait applies
// to the step after it.
func TestWaits(t *testing.T) {
	text := strings.Replace(read(t, "allpairs.xml"), `depid="0" deps="2"`, `depid="0" deps="1"`, 1)
	s, err := Read("allpairs.xml", []byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	// The first steps besides wait for the copy of the input, of which thread 3 is.
	if got, want := s.Ranks[0][0].Steps[0].After,
		[]schedule.At{{Thread: 2, Step: 1}, {Thread: 1, Step: 1}, {Thread: 3, Step: 0}}; !equal(got, want) {
		t.Errorf("the first reduction waits for %v, want %v", got, want)
	}
	if got, want := s.Ranks[0][1].Steps[2].After, []schedule.At{{Thread: 0, Step: 1}}; !equal(got, want) {
		t.Errorf("the result's send waits for %v, want %v", got, want)
	}
}

// TestCopies: ncclize.py of msccl-tools, before it wrote cpy steps, wrote an element copy with i_off and
// o_off for each chunk that stays at its rank. Without them the result of the all-to-all is wrong.
func TestCopies(t *testing.T) {
	for _, inPlace := range []string{`inplace="0"`, `inplace="0" outofplace="1"`} {
		const block = `<tb id="%d" send="%d" recv="%d" chan="0"><step s="0" type="%s" srcbuf="i" srcoff="%d" ` +
			`dstbuf="o" dstoff="%d" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>`
		text := `<algo name="copies" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="alltoall" ` +
			inPlace + ">\n"
		for gpu := range 2 {
			other := 1 - gpu
			text += fmt.Sprintf(`<gpu id="%d" i_chunks="2" o_chunks="2" s_chunks="0"><copy i_off="%d" o_off="%d"/>`,
				gpu, gpu, gpu) + fmt.Sprintf(block, 0, other, -1, "s", other, gpu) +
				fmt.Sprintf(block, 1, -1, other, "r", gpu, other) + "</gpu>\n"
		}
		text += "</algo>\n"
		s, err := Read("copies.xml", []byte(text), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Ranks[0][2].Steps; len(got) != 1 || got[0].Op != schedule.Copy {
			t.Errorf("the thread after the thread blocks has %v, want one copy", got)
		}
		if got, want := s.Ranks[0][0].Steps[0].After, []schedule.At{{Thread: 2}}; !equal(got, want) {
			t.Errorf("the send waits for %v, want %v", got, want)
		}
		for change, want := range map[string]string{
			`<copy i_off="0" o_off="0"/>`:                 "copies.xml:1:1: check all-to-all by copies for 2 ranks",
			`i_off="0" o_off="0"/>=i_off="2" o_off="0"/>`: `2:58: i_off of copy: "2": want 0 to 1`,
			`i_off="0" o_off="0"/>=i_off="0"/>`:           "2:52: copy has no attribute o_off",
			`o_off="0"/>=o_off="0"><tb/></copy>`:          `2:78: element "tb" in copy: want no element there`,
		} {
			old, new, _ := strings.Cut(change, `/>=`)
			if new != "" {
				old += "/>"
			}
			if _, err := Read("copies.xml", []byte(strings.Replace(text, old, new, 1)), 0); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", change, err, want)
			}
		}
	}
}

func equal(a, b []schedule.At) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestWrongFiles changes one thing, or a few, of files that are right.
func TestWrongFiles(t *testing.T) {
	for name, test := range map[string]struct {
		file    string
		changes []string // pairs of a text, which is replaced once, and its replacement
		want    string   // with line and column
	}{
		"empty": {"ring.xml", nil, ""},
		"no XML": {"ring.xml", []string{`ngpus="3"`, `ngpus=3`},
			"1:80: read XML: unquoted or missing attribute value in element"},
		"not closed": {"ring.xml", []string{"</algo>", ""}, "30:1: read XML: unexpected EOF"},
		"wrong close": {"ring.xml", []string{"</tb>", "</gpu>"},
			"9:11: read XML: element <tb> closed by </gpu>"},
		"text": {"ring.xml", []string{"<tb ", "hello <tb "},
			`3:5: text "hello": want only elements`},
		"two algorithms": {"ring.xml", []string{"</algo>", "</algo><algo/>"},
			"29:8: a second element algo: want one"},
		"element": {"ring.xml", []string{"<gpu ", "<tb "}, `2:3: element "tb" in algo: want gpu`},
		"too deep": {"ring.xml", []string{`hasdep="0"/>`, `hasdep="0"><step/></step>`},
			`4:112: element "step" in step: want no element there`},
		"other file": {"ring.xml", []string{"<algo", "<system"},
			`1:1: element "system" at the top: want algo`},
		"attribute twice": {"ring.xml", []string{`ngpus="3"`, `ngpus="3" ngpus="3"`},
			`1:1: algo has attribute "ngpus" twice`},
		"no attribute": {"ring.xml", []string{` deps="-1"`, ""}, "4:7: step has no attribute deps"},
		"no number": {"ring.xml", []string{`cnt="1"`, `cnt="one"`},
			`4:72: cnt of step: "one": want 0 to 65536`},
		"proto": {"ring.xml", []string{"Simple", "simple"},
			`1:25: proto of algo: "simple": want Simple, LL, LL128`},
		"coll": {"ring.xml", []string{`"allreduce"`, `"allreduced"`},
			`1:83: coll of algo: "allreduced": want allreduce, allgather, `},
		"custom": {"ring.xml", []string{`"allreduce"`, `"custom"`},
			"1:83: coll of algo: custom: want another collective"},
		"no place": {"ring.xml", []string{`inplace="0"`, `inplace="0" outofplace="0"`},
			"1:112: outofplace of algo: 0 with inplace=0: want 1"},
		"chunks": {"gather.xml", []string{`nchunksperloop="6"`, `nchunksperloop="5"`},
			"1:50: nchunksperloop of algo: 5: want a multiple of the 3 ranks in allgather"},
		"i_chunks": {"ring.xml", []string{`i_chunks="3"`, `i_chunks="2"`},
			"2:15: i_chunks of gpu: 2: want 0 or 3 (nchunksperloop is 3)"},
		"o_chunks": {"scatter.xml", []string{`o_chunks="0"`, `o_chunks="3"`},
			"2:28: o_chunks of gpu: 3: want 0 or 1 (nchunksperloop is 3)"},
		"gpu": {"ring.xml", []string{`<gpu id="2"`, `<gpu id="3"`},
			`20:8: id of gpu: "3": want 0 to 2`},
		"gpu twice": {"ring.xml", []string{`<gpu id="2"`, `<gpu id="1"`},
			"20:8: id of gpu: gpu 1 is defined twice"},
		"gpu missing": {"ring.xml", []string{`<gpu id="2"`, `<gpu id="1"`},
			"1:73: ngpus of algo: the file has no gpu 2"},
		"tb": {"ring.xml", []string{`<tb id="0"`, `<tb id="1"`},
			`3:9: id of tb: "1": want 0 to 0`},
		"tb twice": {"gather.xml", []string{`<tb id="1"`, `<tb id="0"`},
			"8:9: id of tb: thread block 0 of gpu 0 is defined twice"},
		"channel": {"gather.xml", []string{`chan="1"`, `chan="2"`},
			`8:34: chan of tb: "2": want -1 to 1`},
		"no channel": {"gather.xml", []string{`chan="1"`, `chan="-1"`},
			"8:34: chan of tb: -1: want a channel"},
		"one channel": {"gather.xml", []string{`chan="1"`, `chan="0"`},
			"8:16: send of tb: thread block 0 already uses gpu 1 on channel 0"},
		"peer": {"ring.xml", []string{`send="1"`, `send="3"`},
			`3:16: send of tb: "3": want -1 to 2`},
		"itself": {"ring.xml", []string{`recv="2"`, `recv="0"`},
			"3:25: recv of tb: 0 is the gpu itself: want another gpu"},
		"no peer": {"ring.xml", []string{`send="1"`, `send="-1"`},
			"4:19: type of step: s in a thread block with send=-1: want a gpu to send to"},
		"no peer there": {"ring.xml", []string{`recv="2"`, `recv="-1"`},
			"5:19: type of step: rrs in a thread block with recv=-1: want a gpu to receive from"},
		"number of step": {"ring.xml", []string{`step s="1"`, `step s="2"`},
			"5:13: s of step: 2: want 1, because steps are numbered"},
		"type": {"ring.xml", []string{`"rrcs"`, `"rrcx"`},
			`6:19: type of step: "rrcx": want nop, s, r, rcs, rrs, rrc, rrcs, cpy, re`},
		"residual": {"ring.xml", []string{`"rrcs"`, `"ra"`}, `6:19: type of step: "ra": want`},
		"buffer": {"ring.xml", []string{`srcbuf="i"`, `srcbuf="x"`},
			`4:28: srcbuf of step: "x": want i, o, s`},
		"offset": {"ring.xml", []string{`srcoff="2"`, `srcoff="3"`},
			"4:39: srcoff of step: 1 chunks from chunk 3 on do not fit: buffer i of gpu 0 has 3 chunks"},
		"no scratch": {"ring.xml", []string{`dstbuf="o" dstoff="0"`, `dstbuf="s" dstoff="0"`},
			"6:64: dstoff of step: 1 chunks from chunk 0 on do not fit: buffer s of gpu 0 has 0 chunks"},
		"count too far": {"allpairs.xml", []string{`dstoff="4" cnt="2"`, `dstoff="4" cnt="3"`},
			"18:61: dstoff of step: 3 chunks from chunk 4 on do not fit: buffer i of gpu 0 has 6 chunks"},
		"no offset": {"ring.xml", []string{`srcoff="2"`, `srcoff="-1"`},
			"4:39: srcoff of step: 1 chunks from chunk -1 on"},
		"nothing": {"ring.xml", []string{`cnt="1"`, `cnt="0"`},
			"4:72: cnt of step: 0: want at least 1 chunk for s"},
		"idle nop": {"allpairs.xml", []string{`cnt="0" depid="2"`, `cnt="0" depid="-1"`},
			"4:84: depid of step: -1: want the thread block for which the nop waits"},
		"nop for nothing": {"allpairs.xml", []string{`depid="1" deps="1"`, `depid="-1" deps="1"`},
			"4:19: type of step: nop: want a next step that waits"},
		"no such block": {"allpairs.xml", []string{`depid="1"`, `depid="3"`},
			`5:81: depid of step: "3": want -1 to 2`},
		"no such step": {"allpairs.xml", []string{`depid="1" deps="1"`, `depid="1" deps="4"`},
			"5:91: deps of step: 4: want a step of thread block 1, which has 4 steps"},
		"never told": {"allpairs.xml", []string{`hasdep="1"`, `hasdep="0"`},
			"11:90: deps of step: 2: want a step with hasdep=1 in thread block 0 from step 2 on"},
		"send is not taken": {"ring.xml",
			[]string{`      <step s="4" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>` + "\n", ""}, "24:7: check all-reduce by ring-fused for 3 ranks out of place: gpu 2 tb 0 step 3 (rcs) in line 24: no step receives its message"},
		"nobody sends": {"ring.xml",
			[]string{"    </tb>\n  </gpu>\n</algo>",
				`<step s="5" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu></algo>`}, "27:1: check all-reduce by ring-fused for 3 ranks out of place: gpu 2 tb 0 step 5 (r) in line 27: no step sends its message"},
		"other count": {"allpairs.xml",
			[]string{`dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="1"`,
				`dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"`},
			"it receives the message of gpu 1 tb 1 step 0 (s)"},
		"waits for itself": {"allpairs.xml",
			[]string{`depid="0" deps="2"`, `depid="1" deps="2"`, `cnt="2" depid="1" deps="2" hasdep="0"`,
				`cnt="2" depid="1" deps="2" hasdep="1"`},
			"11:7: check all-reduce by all-pairs for 3 ranks out of place: deadlock: each waits for the " +
				"next: gpu 0 tb 1 step 2 (s) in line 11, which waits for the first"},
		"deadlock": {"allpairs.xml", []string{
			`"s" srcbuf="i" srcoff="2" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1"`,
			`"s" srcbuf="i" srcoff="2" dstbuf="s" dstoff="0" cnt="2" depid="2" deps="1"`,
			`"s" srcbuf="i" srcoff="4" dstbuf="s" dstoff="2" cnt="2" depid="-1" deps="-1"`,
			`"s" srcbuf="i" srcoff="4" dstbuf="s" dstoff="2" cnt="2" depid="1" deps="1"`,
			`"s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="2" cnt="2" depid="-1" deps="-1"`,
			`"s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="2" cnt="2" depid="2" deps="1"`,
		}, "deadlock: each waits for the next: gpu 0 tb 2 step 1 (r) in line 16, gpu 2 tb 1 step 0 (s) in " +
			"line 47, gpu 2 tb 2 step 1 (r) in line 54, gpu 1 tb 2 step 0 (s) in line 34, gpu 1 tb 1 step " +
			"1 (r) in line 29, gpu 0 tb 1 step 0 (s) in line 9, which waits for the first"},
		"race": {"allpairs.xml",
			[]string{`dstoff="-1" cnt="0" depid="2" deps="1"`, `dstoff="-1" cnt="0" depid="1" deps="1"`},
			"is used at the same time by"},
		"wrong sum": {"ring.xml", []string{`type="rrs"`, `type="rcs"`},
			"1:1: check all-reduce by ring-fused for 3 ranks out of place: rank"},
		"wrong block": {"exchange.xml",
			[]string{`srcoff="2" dstbuf="o" dstoff="0" cnt="2"`, `srcoff="0" dstbuf="o" dstoff="0" cnt="2"`},
			"rank 1 ends with 1 x rank 0 chunk 0 in chunk 0, want 1 x rank 0 chunk 2"},
		"wrong root": {"broadcast.xml", []string{`type="cpy" srcbuf="i"`, `type="cpy" srcbuf="o"`},
			"reads chunk 0 of its output before any step wrote it"},
		"input elsewhere": {"broadcast.xml",
			[]string{`"rcs" srcbuf="o" srcoff="0" dstbuf="o"`, `"rrcs" srcbuf="i" srcoff="0" dstbuf="o"`},
			"10:7: check broadcast by chain for 3 ranks out of place: gpu 1 tb 0 step 0 (rrcs) in line 10: " +
				"its input has no chunk 0"},
		"combines": {"gather.xml", []string{`o_chunks="6" s_chunks="0"`, `o_chunks="6" s_chunks="1"`, `cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>`, `cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="3" type="cpy" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="4" type="re" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>`}, "8:7: check all-gather by gather for 3 ranks out of place: gpu 0 tb 0 step 4 (re) in line 8: all-gather combines nothing"},
		"changes its input": {"clobbers.xml", []string{`inplace="0"`, `inplace="1" outofplace="1"`},
			"4:7: check all-reduce by clobbers for 2 ranks out of place: gpu 0 tb 0 step 0 (rrc) in line " +
				"4: it changes the input"},
	} {
		t.Run(name, func(t *testing.T) {
			text := read(t, test.file)
			if test.changes == nil {
				text = ""
				test.want = "1:1: the file has no element algo"
			}
			for i := 0; i < len(test.changes); i += 2 {
				if !strings.Contains(text, test.changes[i]) {
					t.Fatalf("%s has no %s", test.file, test.changes[i])
				}
				text = strings.Replace(text, test.changes[i], test.changes[i+1], 1)
			}
			s, err := Read(test.file, []byte(text), 0)
			if err == nil {
				t.Fatalf("it was read: %d ranks", len(s.Ranks))
			}
			if strings.Contains(err.Error(), ", custom") {
				t.Errorf("%v: wants what is refused", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
			for line := range strings.Lines(err.Error()) {
				if !position.MatchString(line) {
					t.Errorf("%q has no position", line)
				}
			}
		})
	}
}

var position = regexp.MustCompile(`^[a-z]+\.xml:[0-9]+:[0-9]+: `)

// FuzzRead holds that what is read is proved, and that what is not has a position.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		f.Add(read(f, filepath.Base(file)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<15 {
			return
		}
		s, err := Read("fuzz.xml", []byte(text), 0)
		if err != nil {
			if !position.MatchString(err.Error()) {
				t.Errorf("no position: %v", err)
			}
			return
		}
		if _, err := schedule.Check(s, !s.OutOfPlace); err != nil {
			t.Error(err)
		}
	})
}
