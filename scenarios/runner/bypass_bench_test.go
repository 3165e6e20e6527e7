package runner

import (
	"fmt"
	"slices"
	"testing"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/workloads/worker"
)

// besideFabric is the quickstart's fabric. Its rates are far above what two cores carry.
const besideFabric = `
name: beside-%[1]s
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 4, striped: 1}
  switch: {%[2]s}
  links: {default: {mtu: 9000, rate: 40gbit}}
nodes: {default: {%[3]s}}
`

// BenchmarkBypassBesideOpenMPI measures an all-reduce of eight ranks past the kernel, over soft switches, and
// OpenMPI's best on the same nodes over the kernel's routers, without rates. They take turns.
func BenchmarkBypassBesideOpenMPI(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Testbed, hosttest.OpenMPI, hosttest.MPICC, hosttest.IP)
	const ranks = 8
	up := func(name, switches, nodes string) *beside {
		s := upBesideFile(b, ranks, fmt.Appendf(nil, besideFabric, name, switches, nodes))
		s.groups = []besideGroup{{2, 5, []units.Bytes{1 << 20, 16 << 20}}}
		return s
	}
	soft := up("soft", "kind: soft, load-balance: flow", "nic-path: bypass")
	routers := up("routers", "kind: router", "runtime: netns")
	routers.unshape(false)
	routers.addPeers()
	contestants := []contestant{
		{"rd past the kernel", func(kind string) times {
			return soft.railbed(kind, worker.Job{Algorithm: schedule.Ring, Transport: worker.RD,
				RD: &spec.RD{Paths: 16}})
		}},
		{"roce past the kernel", func(kind string) times {
			return soft.railbed(kind, worker.Job{Algorithm: schedule.Ring, Transport: worker.RoCE})
		}},
	}
	for _, name := range []string{"openmpi", "openmpi, ring", "openmpi, pieces"} {
		contestants = append(contestants, contestant{name, func(kind string) times {
			return routers.openMPI(kind, openMPI[name])
		}})
	}
	results := make([]map[units.Bytes][]float64, len(contestants)) // ms
	for b.Loop() {
		for i, c := range contestants {
			if results[i] == nil {
				results[i] = map[units.Bytes][]float64{}
			}
			for size, us := range c.measure(spec.AllReduce) {
				results[i][size] = append(results[i][size], us/1e3)
			}
		}
	}
	for _, size := range soft.groups[0].sizes {
		least := map[bool]float64{} // of each side
		for i, c := range contestants {
			r := results[i][size]
			slices.Sort(r)
			median, ours := r[len(r)/2], i < 2
			fmt.Printf("%8v  %-22s %8.2f ms (%.2f to %.2f)\n", size, c.name, median, r[0], r[len(r)-1])
			if least[ours] == 0 || median < least[ours] {
				least[ours] = median
			}
		}
		b.ReportMetric(least[false]/least[true], fmt.Sprintf("x-%v", size))
	}
}
