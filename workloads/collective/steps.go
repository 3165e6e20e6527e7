package collective

import "time"

// StepLog records when the steps of an operation ended at a rank. The steps are:
//
//   - of a Ring of n ranks, the n-1 steps of a reduce-scatter and the n-1 of an all-gather
//   - of an Exchange, its phases
//   - of a Program, for each thread of the rank, each group of sends with the receives that follow them
//   - of an all-reduce in switches, each use of all slots of the switch; see package worker
//
// A step ends when the rank has taken the step's last message. A step that only sends ends when its last
// message has arrived at the receiver. The slices of a message pass through the steps as a pipeline, so
// steps overlap. A StepLog counts a step as begun when the step before it ended. So the time between two ends
// is the time by which a step delayed the rank.
//
// The zero StepLog can be given to one Runner, which calls it for each message without allocating. Others
// call Add once, Begin for each operation and Done for each message. A nil StepLog records nothing. A StepLog
// is not safe for concurrent use.
type StepLog struct {
	threads [][2]int // the first step of each thread, and the step behind its last
	parts   []int    // by step, the parts that it has
	left    []int    // by step, the parts that are not done
	began   time.Time
	ends    []time.Duration // by step, after began
}

// Add adds the steps of a thread, numbered from 0 over all threads. parts are the numbers of their parts.
func (l *StepLog) Add(parts ...int) {
	if l == nil || len(parts) == 0 {
		return
	}
	first := len(l.parts)
	l.parts = append(l.parts, parts...)
	l.threads = append(l.threads, [2]int{first, len(l.parts)})
	l.left, l.ends = make([]int, len(l.parts)), make([]time.Duration, len(l.parts))
}

// Begin starts an operation.
func (l *StepLog) Begin() {
	if l == nil {
		return
	}
	copy(l.left, l.parts)
	clear(l.ends)
	l.began = time.Now()
}

// Done counts a part of a step that is done. It ignores a negative step.
func (l *StepLog) Done(step int) {
	if l == nil || step < 0 {
		return
	}
	if l.left[step]--; l.left[step] == 0 {
		l.ends[step] = time.Since(l.began)
	}
}

// Began returns when the latest operation began. It is the zero Time if there was no operation.
func (l *StepLog) Began() time.Time { return l.began }

// Ends returns when the steps of the latest operation ended, after Began, by thread. Threads run side by
// side. The ends of a thread never decrease. A step without a part ends with the step before it.
func (l *StepLog) Ends() [][]time.Duration {
	all := make([][]time.Duration, len(l.threads))
	for i, t := range l.threads {
		var latest time.Duration
		for _, end := range l.ends[t[0]:t[1]] {
			latest = max(latest, end)
			all[i] = append(all[i], latest)
		}
	}
	return all
}
