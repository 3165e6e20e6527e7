package plan

import (
	"runtime"
	"testing"
)

// TestHashOfMillionsOfRoutes: the hash of a torus of 1,024 switches takes memory for its links and
// not for its six million routes, and depends on each next hop.
func TestHashOfMillionsOfRoutes(t *testing.T) {
	p := mustCompileText(t, "name: t\nfabric: {topology: torus, params: {x: 16, y: 16, z: 4}, switch: "+
		"{kind: soft}}\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	hash := p.Hash()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 56<<20 {
		t.Errorf("the hash took %d MiB, want at most 56", took>>20)
	}
	last := &p.Switches[len(p.Switches)-1]
	list := last.Routes.List()
	if len(list) < 6000 {
		t.Fatalf("a switch has %d routes, want thousands", len(list))
	}
	if last.Routes = NewRouteTable(list); p.Hash() != hash {
		t.Error("the same routes as a list have another hash")
	}
	hops := append([]NextHop(nil), list[len(list)-1].NextHops...)
	hops[0].Dev = "p9"
	list[len(list)-1].NextHops = hops
	if p.Hash() == hash {
		t.Error("another next hop has the same hash")
	}
}
