package rank

import (
	"fmt"
	"strings"
	"time"

	"railbed/workloads/collective"
)

// Steps are the times at which steps of the rank's algorithm ended in a round, as collective.StepLog defines
// them. Times count from the begin of the round.
type Steps struct {
	Of   string        `json:"of,omitempty"` // part of the algorithm, if there are several
	From time.Duration `json:"from"`         // begin of the first step
	// Count is the number of steps. Each end is the end of Each steps in succession, the last of the rest.
	Count int             `json:"count"`
	Each  int             `json:"each"`
	Ends  []time.Duration `json:"ends"`
}

// A rank reports at most so many parts of its algorithm in a round, and ends of steps over all parts.
const (
	partsKept = 8
	endsKept  = 128
)

// namedLog is the log of a part of the rank's algorithm.
type namedLog struct {
	of  string
	log *collective.StepLog
}

// LogSteps returns a log for the steps of a part of the rank's algorithm. The rank reports the times of the
// log after each operation that is timed alone. Texts name the part; empty ones are left out. The log lasts
// until Do joins another size.
func (p *Process) LogSteps(texts ...string) *collective.StepLog {
	log := &collective.StepLog{}
	p.logs = append(p.logs, namedLog{joined(texts...), log})
	return log
}

// joined joins the texts that are not empty.
func joined(texts ...string) string {
	var all []string
	for _, text := range texts {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// Numbered returns the name of the i-th of several things, or "" if there is only one.
func Numbered(what string, i, of int) string {
	if of <= 1 {
		return ""
	}
	return fmt.Sprintf("%s %d", what, i)
}

// stepsSince returns the steps of a round that began at a time. leftOut counts the parts beyond partsKept.
func (p *Process) stepsSince(begin time.Time) (all []Steps, leftOut int) {
	for _, of := range p.logs {
		all = append(all, of.since(begin)...)
	}
	if leftOut = max(0, len(all)-partsKept); leftOut > 0 {
		all = all[:partsKept]
	}
	for i := range all {
		all[i].thin(endsKept / len(all))
	}
	return all, leftOut
}

// StepsOf returns the steps of a log's latest operation, by thread, with at most so many ends of each thread.
// Times count from begin. There are no steps if the operation began before.
func StepsOf(log *collective.StepLog, begin time.Time, most int) []Steps {
	all := namedLog{log: log}.since(begin)
	for i := range all {
		all[i].thin(most)
	}
	return all
}

// since returns all steps of the latest operation, if it began at a time or after it.
func (n namedLog) since(begin time.Time) (all []Steps) {
	from := n.log.Began().Sub(begin)
	if n.log.Began().Before(begin) {
		return nil
	}
	threads := n.log.Ends()
	for i, ends := range threads {
		for k := range ends {
			ends[k] += from
		}
		all = append(all, Steps{Of: joined(n.of, Numbered("thread", i, len(threads))), From: from,
			Count: len(ends), Each: 1, Ends: ends})
	}
	return all
}

// thin keeps at most so many ends.
func (s *Steps) thin(most int) {
	s.Each = max(1, (s.Count+most-1)/most)
	kept := s.Ends[:0]
	for i := s.Each - 1; i < s.Count-1; i += s.Each {
		kept = append(kept, s.Ends[i])
	}
	s.Ends = append(kept, s.Ends[s.Count-1])
}
