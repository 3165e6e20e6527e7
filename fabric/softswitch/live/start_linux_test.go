package live

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/fabric/port"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// TestStartSurvivesTheProcess: if a process dies before it has answered, Start returns an error at
// once and does not wait for ever. Here the context of the waiting caller is cancelled.
func TestStartSurvivesTheProcess(t *testing.T) {
	porttest.Need(t, port.Packet)
	p := compileTwo(t, "\n  links: {default: {mtu: 1500}}\n")
	pair, _ := porttest.TwoVeths(t, 1500)
	ports := Ports{Monitors: 1, NICs: [][]int{{0}}, Indexes: [][]int{{porttest.NICIndex}}}
	for i, r := range []*porttest.Rig{pair.Left, pair.Right} {
		ports.Ends = append(ports.Ends, plan.End{Node: p.Nodes[i].Name, Port: porttest.NICName})
		r.Driver = port.Packet
		ports.Own = append(ports.Own, r.Open(t, port.Options{MTU: 1500}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ports.Monitor = func(func(int, *os.File) error) error {
		cancel() // the process waits for a packet socket that is never sent
		return nil
	}
	began := time.Now()
	process, err := Start(ctx, p, ports)
	if err == nil || !strings.Contains(err.Error(), "the soft switches' process ended") {
		t.Errorf("got %v and %v, want the end of the process", process, err)
	}
	if took := time.Since(began); took > hosttest.Bound {
		t.Errorf("it took %v", took)
	}
}
