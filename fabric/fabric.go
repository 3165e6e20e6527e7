// Package fabric sets up the kernel's part of a plan in given network namespaces: links, their
// shaping, addresses, routes and switches. It reads back every setting, changes links while they
// carry traffic, and removes everything again.
package fabric

import (
	"sync"

	"railbed/fabric/link"
	"railbed/internal/units"
	"railbed/plan"
)

// Options are the options of Build. The zero value is a good default.
type Options struct {
	// Trace is called with each change of the host as the equivalent ip, tc, sysctl or ethtool
	// line. Nil traces nothing and costs nothing. It is called from several goroutines, one at a
	// time.
	Trace func(line string)
	// Calibration contains the bursts of shaped links. Nil loads the calibration stored in
	// link.DefaultPath.
	Calibration *link.Calibration
	// Parallel is the number of threads that configure namespaces. 0 is one per CPU, at most 4.
	Parallel int
	// Progress is called with the amount of work done. It may be nil. It is called from several
	// goroutines, one at a time.
	Progress func(done, total int)
}

// Fabric is a fabric that Build has set up. It is safe for concurrent use.
type Fabric struct {
	options Options
	hosts   []*host
	first   int // interface index
	bursts  map[shape]link.Entry

	lock  sync.Mutex  // held during changes and readings
	links []*planLink // the kernel's links: see kernelSide
	named map[string]*planLink
	built bool
	soft  *softPart // nil without soft switches
	// resolvers answer requests for the neighbours of hosts that have no entries in the plan.
	resolvers resolvers
	// faults are the packet faults at kernel links and switches.
	faults []*kernelFault
	hits   hits
	// reboots has the reboots of switches in force, by the names of their faults.
	reboots map[string]*reboot
}

// planLink is a link of the plan in its requested state, which SetLink, SetLinkState and
// SetDirectionState change.
type planLink struct {
	plan.Link
	a, b *host
	down bool // as SetLinkState requested
	// reboots counts the reboots of switches that hold the link down.
	reboots int
	// cutAToB and cutBToA are set if the direction is cut.
	cutAToB, cutBToA bool
	seed             uint64
	// harmedA and harmedB are the faults at the ends that send.
	harmedA, harmedB harmedEnd
}

// shape has the parameters that determine a burst.
type shape struct {
	rate units.Rate
	mtu  int
}

// Direction is one direction of a link, or both.
type Direction int

// Directions; a and b are the ends in the order of the link's name.
const (
	Both Direction = iota
	AToB
	BToA
)

// sides returns the ends that send in the direction: true is A.
func (d Direction) sides() []bool {
	switch d {
	case AToB:
		return []bool{true}
	case BToA:
		return []bool{false}
	default:
		return []bool{true, false}
	}
}

// LinkGroup marks Railbed's interfaces. Its bytes spell "RALB".
const LinkGroup = 0x52414c42

// linkGroup is the group of all links that Build creates, for Close.
const linkGroup = LinkGroup
