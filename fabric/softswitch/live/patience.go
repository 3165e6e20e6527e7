package live

import "time"

// patience says whether it pays to look for frames for a while before the
// timing thread sleeps. To be woken takes up to a hundred microseconds, where the
// other core must interrupt one that is halted or a virtual machine's; a frame on links
// without delay is late by as much. But looking takes the core from the
// workload. So the thread looks while looking finds frames, and begins to when
// frames were due before it woke that it would have found. And it sleeps for a
// tenth of the time all the same: a kernel before 6.12 stops a real-time thread
// for 50 ms that took 950 ms of a second (sched_rt_runtime_us).
type patience struct {
	score int
	since time.Duration // when the window began
	slept time.Duration // in the window
}

const (
	// restWindow is the time of which the thread sleeps a tenth.
	restWindow = 20 * time.Millisecond
	// lookFor is how long it looks.
	lookFor = 100 * time.Microsecond
	// mostPatience is how often it may look in vain.
	mostPatience = 8
)

// pays reports whether to look, at a real time since the thread began.
func (p *patience) pays(now time.Duration) bool {
	past := now - p.since
	if past > 2*restWindow {
		p.since, p.slept = now, 0
		past = 0
	}
	return p.score > 0 && (past < restWindow || p.slept > past/10)
}

// rested notes a sleep of the thread's.
func (p *patience) rested(slept time.Duration) { p.slept += slept }

// looked notes that frames were found by looking, or none.
func (p *patience) looked(found bool) {
	if found {
		p.score = min(p.score+1, mostPatience)
	} else {
		p.score--
	}
}

// overslept notes that a sleep that frames ended took a time, and that one of
// them was due before.
func (p *patience) overslept(slept time.Duration) {
	if slept < lookFor {
		p.score = min(p.score+2, mostPatience)
	}
}
