package plan

import (
	"runtime"
	"testing"
)

// TestHashOfManyRoutes: the hash of a torus of 256 switches takes memory for its links and not for its
// 400,000 routes, and depends on each next hop. It takes 12 to 15 MiB; a list of the routes alone takes 34.
func TestHashOfManyRoutes(t *testing.T) {
	p := mustCompileText(t, "name: t\nfabric: {topology: torus, params: {x: 8, y: 8, z: 4}, switch: "+
		"{kind: soft}}\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	hash := p.Hash()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
		t.Errorf("the hash took %d MiB, want at most 24", took>>20)
	}
	last := &p.Switches[len(p.Switches)-1]
	list := last.Routes.List()
	if len(list) < 1000 {
		t.Fatalf("a switch has %d routes, want more than a thousand", len(list))
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
