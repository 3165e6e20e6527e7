package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// Processes has the processor time of every process of the host at one time.
type Processes struct {
	at  time.Time
	all map[int]process
}

// process is one process. Kernel threads are left out: they work for whatever uses the kernel.
type process struct {
	name    string
	parent  int
	started uint64 // distinguishes processes with the same PID
	// ticks is the time of the process and of the children that it has waited for (proc_pid_stat(5)).
	ticks int64
}

const (
	// kernelThread is a flag of kernel threads (PF_KTHREAD in include/linux/sched.h).
	kernelThread = 0x00200000
	// tick is the unit of times in /proc (USER_HZ, which is 100 on every architecture that Go knows).
	tick = time.Second / 100
)

// ReadProcesses reads the processes below root, such as /proc. It leaves out processes that cannot be read.
func ReadProcesses(root string) Processes {
	p := Processes{at: time.Now(), all: map[int]process{}}
	system, err := procfs.NewFS(root)
	if err != nil {
		return p
	}
	running, _ := system.AllProcs()
	for _, one := range running {
		stat, err := one.Stat()
		if err != nil || stat.Flags&kernelThread != 0 { // an error: it has ended
			continue
		}
		p.all[stat.PID] = process{stat.Comm, stat.PPID, stat.Starttime,
			int64(stat.UTime+stat.STime) + int64(stat.CUTime+stat.CSTime)}
	}
	return p
}

// Others returns the programs that ran between before and p, the busiest first. It leaves out the process
// self and its descendants. A process that started and ended in between counts if its parent waited for it
// and still runs, under the parent's name.
func (p Processes) Others(before Processes, self int) (others []Busy) {
	took := p.at.Sub(before.at)
	if took <= 0 {
		return nil
	}
	byName := map[string]int64{}
	for pid, ticks := range p.ranSince(before) {
		if ticks > 0 && !p.descends(pid, self) {
			byName[p.all[pid].name] += ticks
		}
	}
	for name, ticks := range byName {
		others = append(others, Busy{name, float64(ticks) * float64(tick) / float64(took)})
	}
	slices.SortFunc(others, func(x, y Busy) int {
		return cmp.Or(cmp.Compare(y.CPUs, x.CPUs), cmp.Compare(x.Name, y.Name))
	})
	return others
}

// Used returns the processor time of all processes between before and p.
func (p Processes) Used(before Processes) (used time.Duration) {
	for _, ticks := range p.ranSince(before) {
		used += time.Duration(max(ticks, 0)) * tick
	}
	return used
}

// ranSince returns the ticks of each process since before.
func (p Processes) ranSince(before Processes) map[int]int64 {
	ran := map[int]int64{}
	for pid, now := range p.all {
		ran[pid] = now.ticks
		if then, same := before.all[pid]; same && then.started == now.started {
			ran[pid] -= then.ticks
		}
	}
	// The time of a process that has ended since is in its parent's time, also the part before.
	for pid, then := range before.all {
		if now, same := p.all[pid]; same && now.started == then.started {
			continue
		}
		if _, there := ran[then.parent]; there {
			ran[then.parent] -= then.ticks
		}
	}
	return ran
}

// descends reports whether a process is ancestor, or one of its descendants.
func (p Processes) descends(pid, ancestor int) bool {
	for range len(p.all) + 1 { // processes may have changed while they were read
		if pid == ancestor {
			return true
		}
		one, there := p.all[pid]
		if !there {
			return false
		}
		pid = one.parent
	}
	return false
}
