// Package bpf is the back end of packet faults for the kernel's links, bridges and routers. It compiles the
// faults of a port to an eBPF program (clsact, tc-bpf(8)). The kernel runs the program for each packet that
// the port sends, before the packet enters the port's queue.
//
// The filters and the choice of packets mean the same as at soft switches (package softswitch). Three things
// differ. Faults act before the packet's time on the link, not after it. The draws of share depend on the
// number of the packet among those that matched, and not on its flow: a program has no numbers of flows. A
// program reads at most two IP packets in each other and four extension headers of IPv6.
package bpf

import (
	"errors"
	"fmt"

	"railbed/capture/display"
	"railbed/fabric/softswitch/draw"
	"railbed/plan"
	"railbed/plan/spec"
)

// maxNth bounds the list nth, and so the length of a program.
const maxNth = 1000

// Check reports whether programs can express a fault. An error in its match is a *display.Error.
func Check(p *plan.Plan, f *spec.Fault) error {
	for _, at := range p.FaultPlaces(f) {
		_, err := New(p, f, at, 0)
		return err
	}
	return nil
}

// Fault is a fault at one port.
type Fault struct {
	spec.Fault
	// Until is the end of the fault on the kernel's monotonic clock, in nanoseconds. 0 is no end.
	Until uint64

	filter *display.Filter // nil matches all packets
	needs  map[display.Header]bool
	pick   spec.Pick
	chance draw.Chance
	seed   uint64
	site   uint32 // the number with which its program reports packets
}

// New returns a fault at a port of a plan. Until is the fault's end on the kernel's monotonic clock, in
// nanoseconds, or 0. An error in its filter is a *display.Error.
func New(p *plan.Plan, f *spec.Fault, at plan.End, until uint64) (*Fault, error) {
	match, err := p.FaultMatch(f)
	if err != nil {
		return nil, err
	}
	if f.Partition != nil && f.Match != "" {
		if _, err := compile(f, f.Match); err != nil {
			return nil, err // at the column of the user's text
		}
	}
	made, err := compile(f, match)
	if err != nil {
		return nil, err
	}
	made.Until, made.seed = until, draw.Seed(p.Seed, "fault", f.Name, at.Name())
	return made, nil
}

func compile(f *spec.Fault, match string) (*Fault, error) {
	made := &Fault{Fault: *f, needs: map[display.Header]bool{}}
	key, pick := f.Action()
	if !f.Kind().Kernel {
		return nil, fmt.Errorf("%s is not possible at a kernel link or switch; use soft switches "+
			"(kind: soft)", key)
	}
	if !pick.Flows.IsZero() {
		return nil, errors.New("flows: is not possible at a kernel link or switch, whose programs know no " +
			"flows; use share:, or soft switches (kind: soft)")
	}
	if pick.Per == spec.PickMessages {
		return nil, errors.New("per: message is not possible at a kernel link or switch, whose programs " +
			"know no messages; use soft switches (kind: soft)")
	}
	if len(pick.Nth) > maxNth {
		return nil, fmt.Errorf("nth lists %d packets; want at most %d at a kernel link or switch",
			len(pick.Nth), maxNth)
	}
	made.pick, made.chance = pick, draw.NewChance(pick.Share)
	if match != "" {
		var err error
		if made.filter, err = display.CompileBytes(match); err != nil {
			return nil, err
		}
		if made.needs, err = supported(made.filter); err != nil {
			return nil, err
		}
	}
	if f.Mark != nil {
		made.needs[display.IPv4Header], made.needs[display.IPv6Header] = true, true
	}
	if f.Corrupt != nil {
		made.needs[display.TCPHeader] = true
	}
	_, err := program([]*Fault{made})
	return made, err
}
