// Package fabric builds in given network namespaces what a plan asks of the
// kernel: links, their shaping, addresses, routes and switches. It reads back
// everything that it sets, changes links while they carry traffic, and takes
// everything away again.
package fabric

import (
	"sync"

	"railbed/fabric/link"
	"railbed/internal/units"
	"railbed/plan"
)

// Options are how to build. The zero value is a good default.
type Options struct {
	// Trace gets each change of the host as the ip, tc, sysctl or ethtool line
	// that equals it. Nil traces nothing and costs nothing. It is called from
	// several goroutines, one at a time.
	Trace func(line string)
	// Calibration knows the bursts of shaped links. Nil loads the one kept in
	// link.DefaultPath.
	Calibration *link.Calibration
	// Parallel is how many threads configure namespaces. 0 is one per CPU, at
	// most 4.
	Parallel int
	// Progress is told how much of the work is done. Nil tells nobody. It is
	// called from several goroutines, one at a time.
	Progress func(done, total int)
}

// Fabric is a fabric that exists. It is safe for concurrent use.
type Fabric struct {
	options Options
	hosts   []*host
	first   int // interface index
	bursts  map[shape]link.Entry

	lock  sync.Mutex  // held during changes and readings
	links []*planLink // those of the kernel: see kernelSide
	named map[string]*planLink
	built bool
	soft  *softPart // nil without soft switches
}

// planLink is a link of the plan as it is now asked for: SetLink, SetLinkState
// and SetDirectionState change it.
type planLink struct {
	plan.Link
	a, b *host
	down bool
	// cutAToB and cutBToA are set while nothing crosses in that direction.
	cutAToB, cutBToA bool
	seed             uint64
}

// shape is what a burst depends on.
type shape struct {
	rate units.Rate
	mtu  int
}

// Direction is one direction of a link, or both.
type Direction int

// Directions, where a and b are the ends in the order of the link's name.
const (
	Both Direction = iota
	AToB
	BToA
)

// sides are the ends that send in the direction: true is A.
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

// LinkGroup marks interfaces that are Railbed's. It reads "RALB".
const LinkGroup = 0x52414c42

// linkGroup is that of those that Build made, for Close.
const linkGroup = LinkGroup
