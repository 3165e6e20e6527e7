package testbed_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest/dockertest"
)

// BenchmarkContainers brings 32 containers up, on one soft switch, and beside it runs
// as many of the same image, four at a time, without links. The ratio of the medians
// of several rounds, in turn, is the mark of the design: at most 1.3.
func BenchmarkContainers(b *testing.B) {
	const count, rounds = 32, 5
	engine := dockertest.Start(b)
	image := "railbed-bench:1"
	if _, err := engine.Docker("import", dockertest.Root(b, "sh", "sleep"), image); err != nil {
		b.Fatal(err)
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		for range rounds {
			began := time.Now()
			runs := exec.Command("sh", "-c",
				fmt.Sprintf("seq %d | xargs -P 4 -I{} docker run -d --network none --name peer-{} %s sleep "+
					"1000", count, image))
			if out, err := runs.CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
			theirs = append(theirs, time.Since(began))
			names, err := engine.Docker("ps", "-q")
			if err != nil {
				b.Fatal(err)
			}
			if _, err := engine.Docker(
				append([]string{"rm", "-f"}, strings.Fields(names)...)...); err != nil {
				b.Fatal(err)
			}
			file, err := spec.Decode("bench.yaml", fmt.Appendf(nil, `
name: go-bench-containers
fabric: {topology: single-switch, params: {hosts: %d}}
nodes: {default: {runtime: docker, image: %q, pull: never, command: [sleep, "1000"]}}
`, count, image))
			if err != nil {
				b.Fatal(err)
			}
			p, err := plan.Compile(file)
			if err != nil {
				b.Fatal(err)
			}
			began = time.Now()
			tb, err := testbed.Up(b.Context(), p, testbed.Options{})
			if err != nil {
				b.Fatal(err)
			}
			ours = append(ours, time.Since(began))
			if err := tb.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	b.Logf("up: median %v, %v to %v; docker run: median %v, %v to %v", ours[len(ours)/2], ours[0],
		ours[len(ours)-1],
		theirs[len(theirs)/2], theirs[0], theirs[len(theirs)-1])
	b.ReportMetric(ours[len(ours)/2].Seconds(), "s/up")
	b.ReportMetric(theirs[len(theirs)/2].Seconds(), "s/docker-runs")
	b.ReportMetric(float64(ours[len(ours)/2])/float64(theirs[len(theirs)/2]), "ratio")
	b.ReportMetric(0, "ns/op")
}
