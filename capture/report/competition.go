package report

import "railbed/internal/usage"

const (
	// OthersLeast is how many processors other programs must use before a text names them.
	OthersLeast = 0.3
	// idleEnough is how many idle processors show that a run did not lack any.
	idleEnough = 1
)

// OthersUse returns how many of a machine's processors other programs used.
func OthersUse(others []usage.Busy, cpus int) (sum float64) {
	for _, one := range others {
		sum += one.CPUs
	}
	return min(sum, float64(cpus))
}

// OthersCompete reports whether other programs took processors that a run needed. others is how many
// processors they used, and idle how many had no work. The rest of the processors' time is the run's: the
// time of its programs, and of the kernel, which moves its packets (softirqs, kernel threads). The kernel
// does not count its work by programs. So its work for the packets of other programs counts as the run's.
func OthersCompete(others, idle float64) bool { return others >= OthersLeast && idle < idleEnough }

// OthersCompete applies OthersCompete to a run on a machine with a number of processors.
func (f *Fidelity) OthersCompete(cpus int) bool {
	return OthersCompete(OthersUse(f.Others, cpus), f.Idle*float64(cpus))
}
