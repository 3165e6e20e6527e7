// Package worker runs the ranks of a workload as real processes, one per rank. Run is the coordinator: it
// starts the worker processes, lets them exchange their addresses, and collects their results. Main is the
// worker process: package rank with the kinds of workload of this package.
package worker

import (
	"io"

	"railbed/workloads/rank"
)

// works are all types that a worker process runs.
var works = []rank.Work{collectiveWork{}, sgdWork{}, mixtureWork{}, trainingWork{}, messagesWork{},
	arbiterWork{}}

// Main is the process of one rank: see rank.Main.
func Main(channel io.ReadWriteCloser, stderr io.Writer) int {
	return rank.Main(channel, stderr, rank.Options{Works: works, ShareProcessors: true})
}
