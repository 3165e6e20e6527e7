package spec

import (
	"fmt"

	"railbed/internal/units"
)

// FaultSlow slows nodes.
type FaultSlow struct {
	// CPU is the number of cores whose time the programs of each node share, such as 0.1.
	CPU float64 `yaml:"cpu" json:"cpu" jsonschema:"maximum=4096" unit:"cores"`
}

// minSlowCPU is the smallest limit: the kernel grants at least 1 ms of each 100 ms.
const minSlowCPU = 0.01

func (s *FaultSlow) words() string { return fmt.Sprintf("to %g CPUs", s.CPU) }

func (s *FaultSlow) check(c *checker, at string) {
	if s.CPU != 0 && s.CPU < minSlowCPU {
		c.Report(at+".cpu", fmt.Sprintf("cpu is %g", s.CPU), "want a number of cores from 0.01")
	}
}

// FaultClock makes wall clocks (CLOCK_REALTIME) wrong. Exactly one of its fields is set.
type FaultClock struct {
	// Jump is added to the time at once. A negative jump is written as -10s. Default none.
	Jump units.Offset `yaml:"jump,omitempty" json:"jump,omitempty"`
	// Drift makes the clock faster, or slower if it is negative: 100ppm gain 100 us in a second. The
	// kernel lets the monotonic clock (CLOCK_MONOTONIC) drift, too. Default none.
	Drift units.Drift `yaml:"drift,omitempty" json:"drift,omitempty"`
}

// Limits of clocks.
const (
	// maxJump keeps times within what programs can represent.
	maxJump = units.Offset(10 * 365 * 24 * 3600e9)
	// MaxDrift is 10 %, the most that the kernel accepts (adjtimex(2), ADJ_TICK).
	MaxDrift = units.Drift(100_000_000)
)

func (k *FaultClock) words() string {
	if k.Jump != 0 {
		return "jump by " + k.Jump.String()
	}
	return "drift by " + k.Drift.String()
}

func (k *FaultClock) check(c *checker, at string) {
	c.exactlyOne(at, *k, "jump", "drift")
	if k.Jump > maxJump || k.Jump < -maxJump {
		c.Report(at+".jump", fmt.Sprintf("a jump by %s", k.Jump), "want at most ten years, 87600h")
	}
	if k.Drift > MaxDrift || k.Drift < -MaxDrift {
		c.Report(at+".drift", fmt.Sprintf("a drift by %s", k.Drift), "want -100000ppm to 100000ppm")
	}
}

// minFaultMemory is the smallest limit of memory. No program starts with less.
const minFaultMemory = units.Bytes(1 << 20)

// OfNodes reports whether the fault is one of nodes, or of some of their programs.
func (f *Fault) OfNodes() bool { return f.Kind().OfNodes }

// Repeatable reports whether the fault can begin again while it is in force, to hit what has started since.
func (f *Fault) Repeatable() bool {
	return f.QueuePairs != "" || f.Hang || f.Crash && f.OfPrograms()
}

// OfPrograms reports whether the fault is a crash or a hang of some programs.
func (f *Fault) OfPrograms() bool { return f.Program != "" || f.Rank != nil }
