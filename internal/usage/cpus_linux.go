package usage

import "github.com/prometheus/procfs"

// CPUs counts the time of all CPUs together since the host started, in seconds (proc_stat(5)).
type CPUs struct {
	// Work is the time of programs, Idle the time without work, Steal the time that a hypervisor took, and
	// Total all of it.
	Work, Idle, Steal, Total float64
	// Running is the number of tasks that run or are ready to run.
	Running int
}

// ReadCPUs reads the counters below root, such as /proc. Without them it returns none.
func ReadCPUs(root string) (c CPUs) {
	system, err := procfs.NewFS(root)
	if err != nil {
		return c
	}
	stat, err := system.Stat()
	if err != nil {
		return c
	}
	t := stat.CPUTotal // guest times are part of User and Nice
	c.Work, c.Steal, c.Running = t.User+t.Nice+t.System, t.Steal, int(stat.ProcessesRunning)
	c.Idle = t.Idle + t.Iowait
	c.Total = c.Work + c.Idle + t.IRQ + t.SoftIRQ + t.Steal
	return c
}
