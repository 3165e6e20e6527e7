package live

import "time"

// patience decides whether to poll for frames for a while before the timing thread sleeps. A
// wake-up takes up to a hundred microseconds if another core must interrupt a halted core or a
// virtual machine's core. It delays a frame on links without delay as much. But polling takes CPU
// time from the workload. So the thread polls as long as polling finds frames. It starts polling
// when frames were due before it woke that polling would have found. Even then it sleeps for a
// tenth of the time. The reason is that kernels before 6.12 stop a real-time thread for 50 ms after
// it has run for 950 ms of a second (sched_rt_runtime_us).
type patience struct {
	score int
	since time.Duration // when the window began
	slept time.Duration // in the window
}

const (
	// restWindow is the period of which the thread sleeps a tenth.
	restWindow = 20 * time.Millisecond
	// pollFor is how long it polls.
	pollFor = 100 * time.Microsecond
	// mostPatience is how often it may poll in vain.
	mostPatience = 8
)

// pays reports whether to poll, at a real time since the thread began.
func (p *patience) pays(now time.Duration) bool {
	past := now - p.since
	if past > 2*restWindow {
		p.since, p.slept = now, 0
		past = 0
	}
	return p.score > 0 && (past < restWindow || p.slept > past/10)
}

// rested records a sleep of the thread.
func (p *patience) rested(slept time.Duration) { p.slept += slept }

// polled records whether polling found frames.
func (p *patience) polled(found bool) {
	if found {
		p.score = min(p.score+1, mostPatience)
	} else {
		p.score--
	}
}

// overslept records the length of a sleep that ended with frames, one of which had been due before.
func (p *patience) overslept(slept time.Duration) {
	if slept < pollFor {
		p.score = min(p.score+2, mostPatience)
	}
}
