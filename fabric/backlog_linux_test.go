package fabric

import (
	"testing"

	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/plan"
)

// TestBacklog reads lines of a kernel 6.1 and counts an interface's drops, up to the drops of the
// host's backlogs.
func TestBacklog(t *testing.T) {
	const text = "001fb47e 00000003 00000000 00000000 00000000 00000000\n001e851e 0000000a 00000001 " +
		"00000000 00000000 00000000\n"
	if got, err := parseSoftnet([]byte(text)); err != nil || got != 13 {
		t.Errorf("%d drops, %v; want 13", got, err)
	}
	for _, text := range []string{"12\n", "12 xyz\n"} {
		if got, err := parseSoftnet([]byte(text)); err == nil {
			t.Errorf("%q is %d drops", text, got)
		}
	}
	now, err := BacklogDrops()
	if err != nil {
		t.Fatal(err)
	}
	links := []LinkState{{A: EndState{Node: "h0", Port: "eth0", Counters: kernel.Counters{TxDropped: 0}},
		B: EndState{Node: "h1", Port: "eth0", Counters: kernel.Counters{TxDropped: 7}}}}
	nics := []live.NICState{{Node: "h0", NIC: "eth0"}, {Node: "h1", NIC: "eth0"}, {Node: "h2", NIC: "eth0"}}
	quiet, busy := softPart{backlog: now, plan: &plan.Plan{}}, softPart{backlog: now - 5}
	if err := quiet.fillBacklog(nics, links); err != nil || nics[0].Backlog != 0 || nics[1].Backlog > 7 {
		t.Errorf("%+v, %v", nics, err)
	}
	if err := busy.fillBacklog(nics, links); err != nil || nics[0].Backlog != 0 || nics[1].Backlog < 5 ||
		nics[1].Backlog > 7 || nics[2].Backlog != 0 || nics[1].Lost() != nics[1].Backlog {
		t.Errorf("%+v, %v", nics, err)
	}
}
