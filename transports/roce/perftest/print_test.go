package perftest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTables prints what programs of Debian's perftest 4.5+0.17 printed, byte for
// byte, but for the line on PCI Express.
func TestTables(t *testing.T) {
	for _, name := range []string{"write-bw", "write-lat", "send-bw", "write-bw-cm"} {
		for _, client := range []bool{false, true} {
			role := "server"
			if client {
				role = "client"
			}
			said, decode := name, decodeKeys
			c := Config{Iterations: 20, Size: 64, GIDIndex: 1}
			measured, cm := strings.CutSuffix(name, "-cm")
			if c.CM = cm; cm {
				said, decode = name+"-"+role, decodeStruct
			}
			text, err := os.ReadFile("testdata/" + name + "-" + role + "-6.06.out")
			if err != nil {
				t.Fatal(err)
			}
			want := string(text)
			for test, n := range testNames {
				if n == measured {
					c.Test = test
				}
			}
			if err := c.complete(); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			r := &run{config: &c, name: "rxe0", mtu: 4096, print: printer{out: &out, config: &c}}
			r.talk.client = client
			if !client {
				r.print.banner()
			}
			r.print.info(r)
			words := recorded(t, "testdata/"+said+"-6.06.txt")
			both := words[8:10] // the client's keys and the server's
			if cm {
				both = words[12:14]
			}
			for _, side := range []string{"local", "remote"} {
				for _, w := range both {
					if (w.client == client) == (side == "local") {
						k, err := decode([]byte(w.text))
						if err != nil {
							t.Fatal(err)
						}
						r.print.keys(side, &k)
					}
				}
			}
			_, lines := rows(want)
			if len(lines) != 1 {
				t.Fatalf("%d rows in %s", len(lines), want)
			}
			if c.Test.Latency() {
				var l Latency
				fmt.Sscan(lines[0], &l.Bytes, &l.Iterations, &l.Min, &l.Max, &l.Typical, &l.Average,
					&l.Deviation, &l.P99, &l.P999)
				r.print.latencyHeader()
				r.print.latency(&l)
			} else {
				var b Bandwidth
				fmt.Sscan(lines[0], &b.Bytes, &b.Iterations, &b.Peak, &b.Average, &b.Messages)
				r.print.bandwidthHeader()
				r.print.bandwidth(&b, true)
			}
			r.print.line()
			got := strings.Replace(out.String(), "PCIe relax order: Unsupported",
				"PCIe relax order: "+map[bool]string{true: "OFF", false: "ON"}[name == "write-lat"], 1)
			if got != want {
				t.Errorf("%s %s: got\n%s\nwant\n%s", name, role, got, want)
			}
		}
	}
}

// TestReckoning: the table of requests and completions of a run, by hand.
func TestReckoning(t *testing.T) {
	// Four messages posted at 0, 0, 10 and 10 us, complete at 20, 20, 25 and 40 us; time
	// is taken after each second one. From the third's request to the fourth's completion
	// it is 15 us a message, from the first's to the second's 10, the best of all.
	us := int64(1000)
	if got := peak([]int64{0, 0, 10 * us, 10 * us}, []int64{20 * us, 20 * us, 25 * us, 40 * us},
		2); got != 10_000 {
		t.Errorf("peak %v ns a message, want 10000", got)
	}
	e := exchange{run: &run{config: &Config{CQModeration: 1}}, size: 1 << 20, total: 4, nCompleted: 4,
		first: 0, last: 4e9}
	if r := e.report(); r.Average != 1 || r.Messages != 1e-6 || r.Iterations != 4 {
		t.Errorf("%+v", r)
	}
	// Round trips of 2, 4, 6, 8, 10 and 12 us: the two longest count for the maximum
	// alone. Half of the others: 1 to 4 us.
	p := pingPong{posted: []int64{0, 2 * us, 6 * us, 12 * us, 20 * us, 30 * us, 42 * us}}
	l := p.row(8, &Config{Iterations: 7})
	if l.Min != 1 || l.Max != 5 || l.Typical != 2.5 || l.Average != 2.5 || l.P99 != 5 || l.Iterations != 7 ||
		l.Deviation != 0.7071067811865476 {
		t.Errorf("%+v", l)
	}
}

// TestConfig: what cannot be measured is refused.
func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{Test: WriteBW, Size: maxSize + 1}, {Test: WriteBW, Size: -1}, {Test: WriteBW, MTU: 1500},
		{Test: AtomicBW, Size: 16}, {Test: AtomicBW, All: true},
		{Test: WriteLat, QueuePairs: 2}, {Test: SendLat, Bidirectional: true},
		{Test: WriteBW, TxDepth: maxTxDepth + 1}, {Test: WriteBW, Iterations: 4},
		{Test: WriteBW, Duration: 4, Margin: 2}, {Test: WriteBW, Duration: 8, All: true},
		{Test: WriteBW, Port: 70000}, {Test: WriteBW, TOS: 256},
	} {
		if c.complete() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	for test := range testNames {
		c := Config{Test: test}
		if err := c.complete(); err != nil || c.TxDepth == 0 || c.Size == 0 {
			t.Errorf("%v: %+v, %v", test, c, err)
		}
	}
}
