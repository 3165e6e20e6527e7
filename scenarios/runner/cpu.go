package runner

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"railbed/fabric/softswitch/live"
	"railbed/internal/usage"
)

const procRoot = "/proc"

// cpuMeter measures how long tasks waited for CPUs.
type cpuMeter struct {
	root  string
	began time.Time
	start cpuState
	// queued counts samples with more runnable tasks than CPUs, for kernels without pressure stall
	// information.
	samples, queued int
}

// cpuState is the state of the kernel's counters.
type cpuState struct {
	// stalled is the "some" line's total of /proc/pressure/cpu (Linux 4.20,
	// Documentation/accounting/psi.rst): the time in which at least one task
	// waited for a CPU.
	stalled  time.Duration
	pressure bool // the kernel has the file
	// steal and total are the seconds of all CPUs together.
	steal, total float64
	running      int // tasks that run or are ready to run
}

func startCPUMeter(root string) *cpuMeter {
	return &cpuMeter{root: root, began: time.Now(), start: readCPUState(root)}
}

// time returns the time of the CPUs so far.
func (m *cpuMeter) time(seen *observed) cpuTime {
	cpus, own := usage.ReadCPUs(m.root), time.Duration(0)
	for _, n := range seen.nodes {
		if n.Programs != nil {
			own += n.Programs.Ran
		}
	}
	if seen.soft != nil {
		own += seen.soft.Timing.Thread.Ran
	}
	return cpuTime{cpus.Idle, cpus.Total, own.Seconds()}
}

// sample samples the run queue.
func (m *cpuMeter) sample() {
	if m.start.pressure {
		return
	}
	m.samples++
	if readCPUState(m.root).running > runtime.NumCPU() {
		m.queued++
	}
}

// finish returns the share of time in which a task waited for a CPU, the source of this number, and
// the share of CPU time that was stolen.
func (m *cpuMeter) finish() (waited float64, source string, steal float64) {
	end := readCPUState(m.root)
	if total := end.total - m.start.total; total > 0 {
		steal = max(0, end.steal-m.start.steal) / total
	}
	if m.start.pressure && end.pressure {
		return min(1, float64(end.stalled-m.start.stalled)/float64(max(1, time.Since(m.began)))),
			live.CPUPressure, steal
	}
	return float64(m.queued) / float64(max(1, m.samples)), "samples of the run queue", steal
}

func readCPUState(root string) (s cpuState) {
	if text, err := os.ReadFile(filepath.Join(root, "pressure/cpu")); err == nil {
		s.stalled, s.pressure = live.SomePressure(text)
	}
	cpus := usage.ReadCPUs(root)
	s.steal, s.total, s.running = cpus.Steal, cpus.Total, cpus.Running
	return s
}
