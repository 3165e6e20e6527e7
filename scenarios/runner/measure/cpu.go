package measure

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"railbed/capture/report"
	"railbed/fabric/softswitch/live"
	"railbed/internal/usage"
)

const procRoot = "/proc"

// cpuMeter measures how long tasks waited for CPUs.
type cpuMeter struct {
	root  string
	began time.Time
	start cpuState
	// processes are the host's processes at the start.
	processes usage.Processes
	// queued counts samples with more runnable tasks than CPUs. It is for kernels without pressure stall
	// information, and for runs in which limits of CPUs hold programs back. The pressure counts these
	// programs as waiting, because the kernel does not call psi_dequeue for a group that a limit stops.
	samples, queued int
}

// cpuState is the state of the kernel's counters.
type cpuState struct {
	// stalled is the "some" line's total of /proc/pressure/cpu (Linux 4.20,
	// Documentation/accounting/psi.rst): the time in which at least one task
	// waited for a CPU.
	stalled  time.Duration
	pressure bool // the kernel has the file
	// steal, idle and total are the seconds of all CPUs together.
	steal, idle, total float64
	running            int // tasks that run or are ready to run
}

func startCPUMeter(root string) *cpuMeter {
	return &cpuMeter{root: root, began: time.Now(), start: readCPUState(root),
		processes: usage.ReadProcesses(root)}
}

// time returns the time of the CPUs so far.
func (m *cpuMeter) time(seen *State) cpuTime {
	cpus, own := usage.ReadCPUs(m.root), time.Duration(0)
	for _, n := range seen.Nodes {
		if n.Programs != nil {
			own += n.Programs.Ran
		}
	}
	if seen.Soft != nil {
		own += seen.Soft.Timing.Thread.Ran
	}
	return cpuTime{cpus.Idle, cpus.Total, own.Seconds()}
}

// sample samples the run queue.
func (m *cpuMeter) sample() {
	m.samples++
	if readCPUState(m.root).running > runtime.NumCPU() {
		m.queued++
	}
}

// finish sets the use of the CPUs since the meter started.
func (m *cpuMeter) finish(f *report.Fidelity) {
	end := readCPUState(m.root)
	if total := end.total - m.start.total; total > 0 {
		f.Steal, f.Idle = max(0, end.steal-m.start.steal)/total, max(0, end.idle-m.start.idle)/total
	}
	f.Others = hostLoad(m.processes).Others
	if m.start.pressure && end.pressure && !throttled(f.Nodes) {
		f.Pressure = min(1, float64(end.stalled-m.start.stalled)/float64(max(1, time.Since(m.began))))
		f.PressureSource = live.CPUPressure
		return
	}
	f.Pressure, f.PressureSource = float64(m.queued)/float64(max(1, m.samples)), "samples of the run queue"
}

func readCPUState(root string) (s cpuState) {
	if text, err := os.ReadFile(filepath.Join(root, "pressure/cpu")); err == nil {
		s.stalled, s.pressure = live.SomePressure(text)
	}
	cpus := usage.ReadCPUs(root)
	s.steal, s.idle, s.total, s.running = cpus.Steal, cpus.Idle, cpus.Total, cpus.Running
	return s
}
