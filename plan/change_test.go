package plan

import (
	"testing"

	"railbed/plan/spec"
)

// linkFile returns a file with two hosts at a soft switch whose links have settings.
func linkFile(settings string) string {
	return "name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n  switch: {kind: soft}\n  " +
		"links: {default: {" + settings + "}}\n"
}

// TestChangeIsWhatAFileSays: a link after a change equals the link of a file with the new settings,
// compiled on its own.
func TestChangeIsWhatAFileSays(t *testing.T) {
	for _, c := range []struct {
		file, set, as string
	}{
		{"rate: 100mbit", "reorder: 10%, rate: 10mbit", "rate: 10mbit, reorder: 10%"},
		{"rate: 100mbit", "overhead: 24B", "rate: 100mbit, overhead: 24B"},
		{"rate: 100mbit", "reorder-by: 9us, rate: 10mbit", "rate: 10mbit, reorder-by: 9us"},
		{"rate: 100mbit, reorder-by: 9us", "rate: 10mbit", "rate: 10mbit, reorder-by: 9us"},
		// A setting that is named stays, even if it is the default of the old rate.
		{"rate: 100mbit", "reorder-by: 484480ns, rate: 10mbit", "rate: 10mbit, reorder-by: 484480ns"},
		{"delay: 1us", "jitter: 1us, jitter-kind: normal", "delay: 1us, jitter: 1us, jitter-kind: normal"},
	} {
		before, err := compileText(linkFile(c.file))
		if err != nil {
			t.Fatal(err)
		}
		after, err := compileText(linkFile(c.as))
		if err != nil {
			t.Fatal(err)
		}
		set, err := spec.ParseDirection("--set", "{"+c.set+"}")
		if err != nil {
			t.Fatal(err)
		}
		l := &before.Links[0]
		got, want := l.BToA.Change(l.MTU, set), after.Links[0].BToA
		if !got.Equal(want) {
			t.Errorf("{%s} and then {%s}:\n got %+v\nwant %+v", c.file, c.set, got, want)
		}
		if c.set == "reorder: 10%, rate: 10mbit" && got.ReorderBy != 4_844_800 {
			// 4 frames of 1514 bytes at 10 Mbit/s
			t.Errorf("reordered by %s", got.ReorderBy)
		}
	}
}

// TestCheckRefusesAsFilesAre compares the messages of Check with the messages for files.
func TestCheckRefusesAsFilesAre(t *testing.T) {
	for _, c := range []struct{ file, set, want string }{
		{"rate: 1gbit", "jitter: 5s, delay: 1us",
			"jitter is 5s and delay 1us; want a delay at least as long as the jitter: no packet arrives " +
				"before it was sent"},
		{"delay: 5us, jitter: 3us", "delay: 1us",
			"jitter is 3us and delay 1us; want a delay at least as long as the jitter: no packet arrives " +
				"before it was sent"},
		{"rate: 1gbit", "queue: 100B", "queue is 100B; want at least 1514B, one frame of mtu 1500"},
		{"rate: 1gbit", "jitter: 5s, jitter-kind: exponential", ""},
	} {
		p, err := compileText(linkFile(c.file))
		if err != nil {
			t.Fatal(err)
		}
		set, err := spec.ParseDirection("--set", "{"+c.set+"}")
		if err != nil {
			t.Fatal(err)
		}
		l, got := &p.Links[0], ""
		if err := l.AToB.Change(l.MTU, set).Check(l.MTU); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("{%s} and then {%s}: %q, want %q", c.file, c.set, got, c.want)
		}
		_, err = compileText(linkFile(c.file) + "steps:\n  - link: {where: h0--leaf1, set: {" + c.set +
			"}}\n")
		switch {
		case c.want == "" && err != nil:
			t.Errorf("a step {%s}: %v", c.set, err)
		case c.want != "" && err == nil:
			t.Errorf("a step {%s} is taken", c.set)
		}
	}
}
