package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"railbed/plan/perf"
)

// Work is a kind of workload: Collective, SGD, MoE, Training or Messages. Each kind is a type in a file of
// its own. The coordinator calls a Work's methods to check a job, to give each rank its part, and to collect
// the ranks' results.
type Work interface {
	// complete sets the fields of a job that follow from its work. It is called before the defaults are set.
	complete(j *Job, problem reporter)
	// check finds out what the ranks cannot do.
	check(j *Job, problem reporter)
	// of returns the part of a rank.
	of(j *Job, rank int) rankWork
	// wanted adds the traffic that the ranks should send. c is the configuration of any rank.
	wanted(j *Job, c *workerConfig, w *Wanted) error
	// results returns the empty results of a job, or nil if the ranks report only what all kinds report.
	results(j *Job) Results
	// measure sets the number of elements of a row of the table, or returns false if the operations have
	// no bandwidth.
	measure(j *Job, row *perf.Row) bool
}

// rankWork is the part of a rank in a job. The rank gets it as JSON.
type rankWork interface {
	// run does the part, from opening the endpoints to the last message to the coordinator.
	run(ctx context.Context, w *rank) error
}

// Results are the results of a kind of workload, besides times and wrong elements: *Learning of SGD,
// *Mixture of MoE, *Iterations of Training, or *Sent of Messages.
type Results interface {
	// add adds an operation from the results of all ranks. It may change the operation, which ran between
	// two moments of this host's clock.
	add(o *Operation, ranks []operationDone, released, ended time.Time) error
}

// reporter reports a problem of a job. It takes the arguments of fmt.Errorf.
type reporter = func(format string, args ...any)

// works are all types that a worker process runs.
var works = []rankWork{Collective{}, SGD{}, mixtureWork{}, Training{}, Messages{}, arbiterWork{}}

// anyWork is a rank's work in a message, with the name of its type.
type anyWork struct{ rankWork }

// namedWork is the JSON of an anyWork.
type namedWork struct {
	Type string          `json:"type"`
	Work json.RawMessage `json:"work"`
}

// MarshalJSON implements json.Marshaler.
func (a anyWork) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(a.rankWork)
	if err != nil || a.rankWork == nil {
		return text, err
	}
	return json.Marshal(namedWork{fmt.Sprintf("%T", a.rankWork), text})
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *anyWork) UnmarshalJSON(text []byte) error {
	var named *namedWork
	if err := json.Unmarshal(text, &named); err != nil || named == nil {
		return err
	}
	for _, work := range works {
		if fmt.Sprintf("%T", work) == named.Type {
			value := reflect.New(reflect.TypeOf(work))
			err := json.Unmarshal(named.Work, value.Interface())
			a.rankWork = value.Elem().Interface().(rankWork)
			return err
		}
	}
	return fmt.Errorf("work %q is not something this worker does", named.Type)
}

// own returns each rank's result of its kind of workload.
func own[T any](ranks []operationDone) ([]T, error) {
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
