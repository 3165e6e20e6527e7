package spec

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"railbed/internal/units"
	"railbed/testkit/hosttest"
)

// filled repeats a numbered text up to the size of a hostile file.
func filled(start, format, end string) string {
	var text strings.Builder
	text.WriteString(start)
	for i := 0; text.Len() < hostileSize-len(end)-len(format)-20; i++ {
		fmt.Fprintf(&text, format, i)
	}
	return text.String() + end
}

// Files of the largest size, each built to cost as much as possible in one place.
func TestHostileFilesAreRefusedInBoundedTime(t *testing.T) {
	files := map[string]string{
		"unknown keys":     filled(head, "k%d: 1\n", ""),
		"keys of one node": filled(head+"nodes:\n  h0:\n    env:\n", "      a-%d: 1\n", ""),
		"nodes":            filled(head+"nodes:\n", "  h%d: {}\n", ""),
		"switches and hosts": filled("name: a\nfabric:\n  topology: explicit\n  hosts: [x]\n  switches:\n",
			"    s%d: {}\n", ""),
		"hosts":       filled("name: a\nfabric:\n  topology: explicit\n  hosts:\n", "  - h%d\n", ""),
		"features":    filled(head+"requires:\n", "- f%d\n", "- f0\n"),
		"empty steps": filled(head+"steps:\n", "- {a%d: 1}\n", ""),
		"checks": filled(head+"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\n"+
			"checks:\n", "- workload: {name: w%d, correct: true}\n", ""),
		"workloads": filled(head+"steps:\n",
			"- workload: {name: ar%d, kind: all-reduce, size: 4B}\n- sleep: 1s\n",
			"checks: [{workload: {name: x, correct: true}}]\n"),
		"execs of one name": filled(head+"steps:\n", "- exec: {name: a, nodes: [h%d], command: [ls]}\n", ""),
		"aliases":           filled(head+"nodes:\n  a: &a {env: {A: 1, B: 2}}\n", "  h%d: *a\n", ""),
		"one long name":     "name: " + strings.Repeat("a", maxFile-6-len(fabric)-1) + "\n" + fabric,
		"long keys": filled(head+"nodes:\n  h0:\n    env:\n",
			"      "+strings.Repeat("A", 250)+"%d: ~\n", ""),
		"one long key": head + "nodes: {" + strings.Repeat("h", maxFile-100) + ": {}}\n",
	}
	hosttest.RefusesHostile(t, files, maxFile, func(text string) error {
		_, err := Decode("f.yaml", []byte(text))
		return err
	})
	if _, err := Decode("f.yaml", make([]byte, maxFile+1)); err == nil ||
		!strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

// Decode reads what Marshal writes, for testbeds of every shape.
func TestMarshalOfRandomTestbeds(t *testing.T) {
	for seed := range uint64(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		first := randomTestbed(draw)
		if err := first.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		first.SetDefaults()
		text, err := Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Decode("f.yaml", text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if !reflect.DeepEqual(withoutSource(first), withoutSource(second)) {
			t.Fatalf("seed %d: decoding gives another testbed from\n%s\n%+v\n%+v", seed, text, first, second)
		}
	}
}

func randomTestbed(draw *rand.Rand) *Testbed {
	maybe := func() bool { return draw.IntN(3) > 0 }
	direction := func() Direction {
		var d Direction
		if maybe() {
			d.Rate = units.Rate(1e3 + draw.Uint64N(1e12))
		}
		if maybe() {
			d.Delay, d.Zero = 0, d.Zero|ZeroDelay
		}
		if maybe() {
			d.Jitter = units.Duration(draw.Int64N(60e9) + 1)
		}
		if maybe() {
			den := draw.Uint64N(1e18) + 2
			d.Loss, _ = units.ParseRatio(fmt.Sprintf("%d/%d", draw.Uint64N(den), den))
			if d.Loss.IsZero() {
				d.Zero |= ZeroLoss
			}
		}
		if maybe() {
			d.Queue = units.Bytes(draw.Uint64N(1<<32) + 1)
		}
		if maybe() {
			d.DropList, d.DropEvery, d.Zero = []int{draw.IntN(9) + 1, 10}, 0, d.Zero|ZeroDropEvery
			d.Flap = []*Flap{nil, {Off: true},
				{Every: 2e9, For: units.Duration(draw.Int64N(1e9) + 1)}}[draw.IntN(3)]
			d.GilbertElliott = []*GilbertElliott{nil, {Off: true},
				{Enter: units.Ratio{Num: 1, Den: 7}, Leave: units.Ratio{Num: 1, Den: 3}}}[draw.IntN(3)]
		}
		return d
	}
	soft := func() Switch {
		on, size := maybe(), units.Bytes(draw.Uint64N(1e6))
		s := Switch{
			Kind:       Soft,
			INT:        &on,
			Alpha:      units.Factor{Num: 1 + draw.Uint64N(9), Den: 1},
			Priorities: Ordered[int]{{fmt.Sprint(draw.IntN(64)), draw.IntN(8)}},
			ECN:        []*ECN{nil, {}, {Off: true}, {KMin: 1 + size}}[draw.IntN(4)],
			Trim:       []*Trim{nil, {}, {Off: true}, {Queue: new(int)}}[draw.IntN(4)],
			PFC:        []*PFC{nil, {}, {Off: true}, {XOff: &size}}[draw.IntN(4)],
			GFC:        []*GFC{nil, {}, {Off: true}, {BM: &size, Kind: GFCTime}}[draw.IntN(4)],
			Scheduler:  []*Scheduler{nil, {}, {Zero: ZeroStrict}, {Strict: []int{6, 7}}}[draw.IntN(4)],
		}
		return s
	}
	words := []string{"true", "7", "~", "a b", "it's", `"`, "# no", "*", "&a", "- x", "é\u2028", "\t", "a: b",
		"{", "0x1f", "", " ", "\n", "no", "1e3", "%", "<<", "=", "\u0085", "\u00a0", "a\nb\n", "a\r\n",
		"\uFEFF", "\x1b", "2001-01-01"}
	word := func() string { return words[draw.IntN(len(words))] }
	t := &Testbed{Name: "a", Seed: draw.Uint64() | 1,
		Description: []string{"", "x: y", "# a", "yes"}[draw.IntN(4)]}
	t.Fabric = Fabric{Topology: LeafSpine, Params: Ordered[int]{{"leaves", draw.IntN(1e9)}, {"on", 0}}}
	t.Fabric.Switch = soft()
	for i := range draw.IntN(4) {
		t.Fabric.Switches = append(t.Fabric.Switches, Entry[Switch]{fmt.Sprintf("s%d*", i), soft()})
		link := Link{Direction: direction(), MTU: []int{0, 1280, 65535}[draw.IntN(3)]}
		if maybe() {
			d := direction()
			link.AToB = &d
		}
		t.Fabric.Links = append(t.Fabric.Links, Entry[Link]{fmt.Sprintf("a%d--*", 3-i), link})
		t.Nodes = append(t.Nodes, Entry[Node]{fmt.Sprintf("h[%d-9]", 3-i), Node{
			CPU: float64(draw.IntN(100)+1) / 8, Env: map[string]string{"A": word(), "null": word()},
			Sysctls: map[string]string{"net.core.somaxconn": word()}}})
	}
	for i := range draw.IntN(3) {
		at, code := units.Duration(i), draw.IntN(256)
		t.Steps = append(t.Steps, Step{At: &at,
			Exec: &Exec{Nodes: []string{"h*"}, Command: []string{"a", word(), word()}, Expect: &code,
				Background: maybe()}})
		t.Steps = append(t.Steps, Step{Workload: &Workload{Name: fmt.Sprintf("w%d", i), Kind: "all-reduce",
			Size: 4 << draw.IntN(20), Zero: ZeroWarmup}})
		t.Checks = append(t.Checks, Check{Workload: &WorkloadCheck{Name: fmt.Sprintf("w%d", i), Correct: true,
			BusBW: ">= 1 Mbit/s"}})
	}
	return t
}
