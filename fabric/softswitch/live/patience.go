package live

import "time"

// patience says whether it pays to look for frames for a while before the
// timing thread sleeps. To be woken takes up to a hundred microseconds, where the
// other core must interrupt one that is halted or a virtual machine's; a frame on links
// without delay is late by as much. But looking takes the core from the
// workload. So the thread looks while looking finds frames, and begins to when
// frames were due before it woke that it would have found.
type patience struct{ score int }

const (
	// lookFor is how long it looks.
	lookFor = 100 * time.Microsecond
	// mostPatience is how often it may look in vain.
	mostPatience = 8
)

// pays reports whether to look.
func (p *patience) pays() bool { return p.score > 0 }

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
