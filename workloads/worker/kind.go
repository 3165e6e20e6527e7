package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"railbed/plan/perf"
	"railbed/workloads/rank"
)

// Work is a kind of workload: Collective, SGD, MoE, Training or Messages. Each kind is a type in a file of
// its own, which also has the type of a rank's part. The coordinator calls a Work's methods to check a job,
// to give each rank its part, and to collect the ranks' results.
type Work interface {
	// complete sets the fields of a job that follow from its work. It is called before the defaults are set.
	complete(j *Job, problem reporter)
	// check finds out what the ranks cannot do.
	check(j *Job, problem reporter)
	// of returns the part of a rank.
	of(j *Job, rank int) rank.Work
	// wanted adds the traffic that the ranks should send. c is the configuration of any rank.
	wanted(j *Job, c *rank.Config, w *Wanted) error
	// results returns the empty results of a job, or nil if the ranks report only what all kinds report.
	results(j *Job) Results
	// measure sets the number of elements of a row of the table, or returns false if the operations have
	// no bandwidth.
	measure(j *Job, row *perf.Row) bool
}

// Results are the results of a kind of workload other than times and wrong elements: *Learning of SGD,
// *Mixture of MoE, *Iterations of Training, or *Sent of Messages.
type Results interface {
	// add adds an operation from the results of all ranks. It may change the operation, which ran between
	// two moments of this host's clock.
	add(o *Operation, ranks []rank.Done, released, ended time.Time) error
}

// reporter reports a problem of a job. It takes the arguments of fmt.Errorf.
type reporter = func(format string, args ...any)

// own returns each rank's result of its kind of workload.
func own[T any](ranks []rank.Done) ([]T, error) {
	all := make([]T, len(ranks))
	for rank, done := range ranks {
		if err := json.Unmarshal(done.Own, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// is reports whether a work is of a kind.
func is[T Work](work Work) bool {
	_, is := work.(T)
	return is
}
