package supervisor

import (
	"time"

	"railbed/internal/reexec"
	"railbed/internal/usage"
)

const (
	// giveWayEvery is how often the supervisor looks who uses the processors. It reads each process of the
	// testbed for that, which takes some 20 us a process.
	giveWayEvery = 2 * time.Second
	// othersWant is the share of the processors from which programs outside the testbed compete with it.
	othersWant = 0.5
)

// giveWay keeps the session of the nodes' programs behind the switches while the testbed has the host for
// itself, until the testbed ends. If other programs want the processors, too, the session gives no way. It
// would get a tenth of the processor time that other sessions get. Transports that run in the programs,
// as rd does, would then wait for most of the time. TCP runs in the kernel, and would not.
func (s *supervisor) giveWay() error {
	const proc = "/proc"
	reexec.GiveWay(reexec.ProgramNice)
	now := reexec.ProgramNice
	cpus, own := usage.ReadCPUs(proc), usage.ReadProcesses(proc)
	for {
		select {
		case <-s.ending.Done():
			return nil
		case <-time.After(giveWayEvery):
		}
		cpusThen, ownThen := cpus, own
		cpus, own = usage.ReadCPUs(proc), usage.ReadProcesses(proc)
		nice := niceBeside(cpus.Work-cpusThen.Work, cpus.Total-cpusThen.Total, own.Used(ownThen))
		if nice != now {
			reexec.GiveWay(nice)
			now = nice
		}
	}
}

// niceBeside returns the nice value of the programs' session. Work is the time that all programs of the host
// ran in a period, total the time of all processors, and own the time that the testbed's programs ran.
func niceBeside(work, total float64, own time.Duration) int {
	if work-own.Seconds() >= othersWant*total && total > 0 {
		return 0
	}
	return reexec.ProgramNice
}
