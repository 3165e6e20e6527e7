package fabric

import (
	"context"
	"fmt"
	"testing"

	"railbed/testbed/hosttest"
)

// sizes are leaf-spine fabrics of 64, 256 and 1,024 nodes.
var benchParallel = 2

var sizes = []struct{ leaves, spines, hosts int }{{4, 4, 16}, {8, 8, 32}, {32, 8, 32}}

// BenchmarkBuild is the time from namespaces to a fabric that has been read
// back; making and dropping the namespaces is not part of it.
func BenchmarkBuild(b *testing.B) {
	hosttest.Need(b, hosttest.Netns)
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", s.leaves*s.hosts), func(b *testing.B) {
			p := leafSpine(b, s.leaves, s.spines, s.hosts)
			for b.Loop() {
				b.StopTimer()
				ns := namespaces(b, p)
				b.StartTimer()
				f, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(b), Parallel: benchParallel})
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
				for _, n := range ns {
					n.Close()
				}
				b.StartTimer()
			}
		})
	}
}
