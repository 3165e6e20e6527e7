package pcapng_test

import (
	"slices"
	"testing"
	"time"

	"railbed/capture/pcapng"
)

func TestSectionNote(t *testing.T) {
	full := pcapng.SectionNote{Dilation: 3, Epoch: time.Unix(5, 0), Plan: "4fd0", Testbed: "min7"}
	for text, want := range map[string]pcapng.SectionNote{
		"railbed dilation=3 epoch=5000000000ns plan=4fd0 testbed=min7": full,
		"railbed dilation=1 epoch=0ns":                                 {Dilation: 1, Epoch: time.Unix(0, 0)},
		"railbed dilation=1":                                           {Dilation: 1},
		"railbed dilation=1 testbed=x":                                 {Dilation: 1, Testbed: "x"},
		"railbed dilation=1 plan=4fd0 recording=17ns part=2": {Dilation: 1, Plan: "4fd0", Recording: 17,
			Part: 2},
	} {
		if got := string(want.AppendTo(nil)); got != text {
			t.Errorf("wrote %q, want %q", got, text)
		}
		if got, ok := pcapng.ParseSectionNote([]byte(text)); !ok || got != want {
			t.Errorf("read %q as %+v, %v", text, got, ok)
		}
	}
	if got := string(pcapng.SectionNote{}.AppendTo(nil)); got != "railbed dilation=1" {
		t.Errorf("wrote %q for no note", got)
	}
	for _, text := range []string{
		"", "railbed", "railbed epoch=0ns", "railbed dilation=0", "railbed dilation=1 epoch=0",
		"railbed dilation=1 plan=", "railbed dilation=1 part=0", "railbed dilation=1 part=2 recording=1ns",
		"railbed epoch=0ns dilation=1", "railbed dilation=1 dilation=2", "railbed limited=0", "a remark",
	} {
		if n, ok := pcapng.ParseSectionNote([]byte(text)); ok {
			t.Errorf("%q was read as %+v", text, n)
		}
	}
}

func TestTapNote(t *testing.T) {
	var counted pcapng.TapNote
	for _, verdict := range []string{"drop", "mark", "mark", "trim", "pause", "resume", "slow", "enqueue",
		""} {
		counted.Count(verdict)
	}
	stepped := counted
	stepped.Limited, stepped.ClockStepped = 4, -3*time.Second
	for text, want := range map[string]pcapng.TapNote{
		"railbed limited=0 annotated=9 drops=1 marks=2 trims=1 pauses=3":                             counted,
		"railbed limited=4 annotated=9 drops=1 marks=2 trims=1 pauses=3 clock-stepped=-3000000000ns": stepped,
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0":                             {},
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0 continued=2": {
			Continued: 2},
	} {
		if got := string(want.AppendTo(nil)); got != text {
			t.Errorf("wrote %q, want %q", got, text)
		}
		if got, ok := pcapng.ParseTapNote([]byte(text)); !ok || got != want {
			t.Errorf("read %q as %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "railbed", "railbed limited=4", "railbed limited=0 annotated=0 drops=0 marks=0 trims=0",
		"railbed annotated=0 limited=0 drops=0 marks=0 trims=0 pauses=0",
		"railbed limited=-1 annotated=0 drops=0 marks=0 trims=0 pauses=0",
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0 clock-stepped=0ns",
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0 clock-stepped=1",
		"railbed limited=0 limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0", "railbed dilation=1",
	} {
		if n, ok := pcapng.ParseTapNote([]byte(text)); ok {
			t.Errorf("%q was read as %+v", text, n)
		}
	}
}

// TestTapDescription checks the written form, and that other descriptions stay as they are.
func TestTapDescription(t *testing.T) {
	for text, want := range map[string]pcapng.TapDescription{
		"h0--leaf1":                           {Link: "h0--leaf1"},
		"h0--leaf1 ranks=0":                   {Link: "h0--leaf1", Ranks: []int{0}},
		"a:b--c:d ranks=8,15":                 {Link: "a:b--c:d", Ranks: []int{8, 15}},
		"":                                    {},
		"h0--leaf1 nic-path=bypass":           {Link: "h0--leaf1", Bypass: true},
		"h0--leaf1 ranks=0,2 nic-path=bypass": {Link: "h0--leaf1", Ranks: []int{0, 2}, Bypass: true},
		"h0--leaf1 nic-path=bypass ranks=0":   {Link: "h0--leaf1 nic-path=bypass ranks=0"},
		" nic-path=bypass":                    {Link: " nic-path=bypass"},
		"h0--leaf1 ranks=1, nic-path=bypass":  {Link: "h0--leaf1 ranks=1, nic-path=bypass"},
		"two words ranks=1":                   {Link: "two words ranks=1"},
		"h0--leaf1 ranks=":                    {Link: "h0--leaf1 ranks="},
		"h0--leaf1 ranks=1,":                  {Link: "h0--leaf1 ranks=1,"},
		"h0--leaf1 ranks=-1":                  {Link: "h0--leaf1 ranks=-1"},
		"h0--leaf1 ranks=1 2":                 {Link: "h0--leaf1 ranks=1 2"},
		" ranks=1":                            {Link: " ranks=1"},
	} {
		got := pcapng.ParseTapDescription(text)
		if got.Link != want.Link || !slices.Equal(got.Ranks, want.Ranks) || got.Bypass != want.Bypass {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if got.String() != text {
			t.Errorf("%q becomes %q", text, got.String())
		}
	}
}

func TestIsWord(t *testing.T) {
	for text, want := range map[string]bool{"min7": true, "a-b_c.9": true, "": false, "a b": false,
		"a\n": false, "\x1b[1m": false, "é": false} {
		if pcapng.IsWord(text) != want {
			t.Errorf("%q is a word: %v, want %v", text, !want, want)
		}
	}
}

// FuzzNotes requires that a comment which is read is written and read again
// alike, whichever of the grammars it is of.
func FuzzNotes(f *testing.F) {
	for _, seed := range []string{
		"railbed dilation=3 epoch=5000000000ns plan=4fd0 testbed=min7", "railbed dilation=1",
		"railbed limited=4 annotated=9 drops=1 marks=2 trims=1 pauses=3 clock-stepped=-3000000000ns",
		"railbed dilation=1 recording=17ns part=2",
		"railbed limited=0 annotated=0 drops=0 marks=0 trims=0 pauses=0 continued=2",
		"railbed verdict=drop reason=tail depth=40320 late=1200ns", "railbed", "railbed  =", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, comment []byte) {
		if n, ok := pcapng.ParseSectionNote(comment); ok {
			if again, ok := pcapng.ParseSectionNote(n.AppendTo(nil)); !ok || again != n {
				t.Errorf("%q was read as %+v and then as %+v", comment, n, again)
			}
		}
		if n, ok := pcapng.ParseTapNote(comment); ok {
			if again, ok := pcapng.ParseTapNote(n.AppendTo(nil)); !ok || again != n {
				t.Errorf("%q was read as %+v and then as %+v", comment, n, again)
			}
		}
		if n, ok := pcapng.ParseAnnotation(comment); ok {
			if again, ok := pcapng.ParseAnnotation(n.AppendTo(nil)); !ok || again != n {
				t.Errorf("%q was read as %+v and then as %+v", comment, n, again)
			}
		}
	})
}
