package plan

import (
	"fmt"
	"testing"

	"railbed/plan/spec"
)

// BenchmarkCompile compiles large fabrics: 1,024 nodes of a torus and of a leaf-spine, and a fabric
// with as many links as the square of its switches.
func BenchmarkCompile(b *testing.B) {
	for _, fabric := range []string{
		"topology: torus, params: {x: 16, y: 16, z: 4}",
		"topology: leaf-spine, params: {leaves: 32, spines: 32, hosts-per-leaf: 32}",
		"topology: leaf-spine, params: {leaves: 256, spines: 256, hosts-per-leaf: 1}",
		"topology: fat-tree, params: {k: 16}",
		"topology: torus, params: {x: 16, y: 16, z: 4}, switch: {kind: soft}",
	} {
		b.Run(fabric, func(b *testing.B) {
			testbed, err := spec.Decode("bench.yaml", fmt.Appendf(nil, "name: bench\nfabric: {%s}\n", fabric))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(testbed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
