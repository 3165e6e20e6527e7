package spec

import (
	"cmp"

	"railbed/internal/units"
)

// Routing runs routing daemons that find the routes between routers, as in a real fabric. They find
// new routes when a link fails. Each router speaks BGP to its neighbours (RFC 7938) with its own
// private AS number, over all paths of equal length. The daemons must have found the plan's routes
// before the first step starts.
type Routing struct {
	// Daemon is the routing software: frr is FRRouting's zebra and bgpd.
	Daemon string `yaml:"daemon" json:"daemon" jsonschema:"enum=frr"`
	// Keepalive is the keepalive interval of BGP, in whole seconds. Default 1s.
	Keepalive units.Duration `yaml:"keepalive,omitempty" json:"keepalive,omitempty"`
	// Hold is the time for which a neighbour may be silent before its routes are removed, in whole
	// seconds. A link without a carrier is noticed at once. Default 3s.
	Hold units.Duration `yaml:"hold,omitempty" json:"hold,omitempty"`
	// BFD is the interval of the BFD packets between neighbours (RFC 5880), in whole milliseconds.
	// Three missing packets end the session. BFD finds links that have a carrier but lose packets.
	// Default: no BFD.
	BFD units.Duration `yaml:"bfd,omitempty" json:"bfd,omitempty"`
}

// FRR is the daemon of Routing.
const FRR = "frr"

const (
	defaultKeepalive = units.Duration(1e9)
	defaultHold      = units.Duration(3e9)
	// Bounds of FRRouting.
	maxHold = units.Duration(65535e9)
	minBFD  = units.Duration(50e6)
	maxBFD  = units.Duration(60e9)
)

func (r *Routing) setDefaults() {
	r.Keepalive = cmp.Or(r.Keepalive, defaultKeepalive)
	r.Hold = cmp.Or(r.Hold, defaultHold)
}

func (c *checker) routing(at string, r *Routing) {
	const second, millisecond = units.Duration(1e9), units.Duration(1e6)
	for _, timer := range []struct {
		key   string
		value units.Duration
	}{{"keepalive", r.Keepalive}, {"hold", r.Hold}} {
		c.positive(at+"."+timer.key, uint64(timer.value), timer.key+" is 0",
			"want whole seconds, such as 3s")
		if timer.value%second != 0 {
			c.Report(at+"."+timer.key, at+"."+timer.key+" is "+timer.value.String(),
				"want whole seconds, such as 3s")
		}
	}
	hold, keepalive := cmp.Or(r.Hold, defaultHold), cmp.Or(r.Keepalive, defaultKeepalive)
	if hold < defaultHold || hold > maxHold {
		c.Report(at+".hold", at+".hold is "+hold.String(), "want 3s to 65535s")
	} else if keepalive*3 > hold {
		c.Report(at+".keepalive", "keepalive is "+keepalive.String()+" and hold "+hold.String(),
			"want a keepalive of at most a third of hold")
	}
	c.positive(at+".bfd", uint64(r.BFD), "bfd is 0", "want 50ms or more, or remove it")
	if b := r.BFD; b != 0 && (b < minBFD || b > maxBFD || b%millisecond != 0) {
		c.Report(at+".bfd", at+".bfd is "+b.String(), "want whole milliseconds from 50ms to 1m0s")
	}
}
