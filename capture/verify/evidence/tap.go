package evidence

import (
	"cmp"
	"slices"
	"strconv"

	"railbed/capture/pcapng"
	"railbed/plan"
	"railbed/plan/spec"
)

// addTaps adds the interfaces that the reader has found since the last call. Properties of a port
// that the capture lacks are taken from the plan.
func (c *Capture) addTaps(interfaces []pcapng.Interface) {
	for i := len(c.Taps); i < len(interfaces); i++ {
		described := &interfaces[i]
		tap := &Tap{
			Index: i, Name: described.Name, Link: pcapng.ParseTapDescription(described.Description).Link,
			NIC: described.Hardware == pcapng.HardwareNIC, mac: described.MAC, hasMAC: described.HasMAC,
			ethernet: described.LinkType == pcapng.LinkEthernet, filter: described.Filter,
		}
		if name, named := c.names[described.Name]; named {
			tap.Name = name
		} else if name, named := c.names[strconv.Itoa(i)]; named { // pcap files have no names
			tap.Name = name
		}
		// Links may have names with colons, but ports may not.
		tap.Node, tap.Port = spec.SplitPort(tap.Name)
		tap.described = *described
		tap.described.Name = tap.Name
		if port, nic := c.Interface(tap.Node, tap.Port); port != nil {
			tap.Link, tap.NIC, tap.mac, tap.hasMAC = port.Link, nic, port.MAC, true
		}
		c.Taps = append(c.Taps, tap)
	}
}

// Interface finds an interface in the plan.
func (c *Capture) Interface(node, port string) (found *plan.Interface, nic bool) {
	if c.Plan == nil || node == "" {
		return nil, false
	}
	find := func(interfaces []plan.Interface) *plan.Interface {
		for i := range interfaces {
			if interfaces[i].Name == port {
				return &interfaces[i]
			}
		}
		return nil
	}
	if n := c.Plan.Node(node); n != nil {
		return find(n.NICs), true
	}
	if s := c.Plan.Switch(node); s != nil {
		return find(s.Ports), false
	}
	return nil, false
}

// PauseLength returns how long a pause lasts, in nanoseconds of the capture's clock. asks is
// set if the port requests the pause, and not set if the port is paused.
func (c *Capture) PauseLength(asked *Tap, asks bool, quanta uint16) int64 {
	rate := uint64(100e9) // the switch's default for a line without a rate
	if port, _ := c.Interface(asked.Node, asked.Port); port != nil {
		if link := c.Plan.Link(port.Link); link != nil {
			d := link.AToB
			if (link.A.Node == asked.Node && link.A.Port == asked.Port) == asks {
				d = link.BToA // the line of the port at the far end
			}
			if d.Rate > 0 {
				rate = uint64(d.Rate)
			}
		}
	}
	return int64(float64(quanta)*512*1e9/float64(rate)) * int64(c.Dilation)
}

// Selected reports whether a selector (spec.Port) selects the tap. An empty one selects every port.
func (t *Tap) Selected(at string) bool {
	return t.Node != "" && spec.Port{Node: t.Node, Name: t.Port, NIC: t.NIC}.Selected(cmp.Or(at, "all"))
}

// Described returns the tap in the words of the capture, with the name of reports.
func (t *Tap) Described() *pcapng.Interface { return &t.described }

// Ethernet reports whether the tap recorded Ethernet frames. Checks do not see packets of other link types.
func (t *Tap) Ethernet() bool { return t.ethernet }

// EndOf returns the time at which the last recording at a tap ended: the time of the last packet, where the
// capture does not say.
func (c *Capture) EndOf(t *Tap) (end int64) {
	for i := range t.recordings {
		end = max(end, t.recordings[i].to)
	}
	return cmp.Or(end, c.Last)
}

// sum sums up the recordings of the tap.
func (t *Tap) sum(c *Capture) {
	t.Lost = t.dropped
	if !c.several() {
		t.Lost, t.partial = t.recordings[0].lost, len(c.Missing) > 0
		return
	}
	t.partial = len(t.damage(c, nil, nil)) > 0 || len(t.unrecorded([]span{{c.First, c.Last}}, nil)) > 0
	for i := range t.recordings {
		r := &t.recordings[i]
		better := slices.ContainsFunc(t.recordings, func(o recorded) bool {
			return o.takes(nil) && o.from <= r.from && o.to >= r.to && o.lost < r.lost
		})
		if r.to == 0 || !better {
			t.Lost += r.lost
		}
	}
}

// Whole reports whether the capture holds every packet of a tap.
func (t *Tap) Whole() bool { return t.filter == "" && t.Lost == 0 && !t.partial }

// RecordsHits reports whether the capture has all packets that faults hit at a tap, and its records of them.
func (c *Capture) RecordsHits(t *Tap) bool {
	return t != nil && c.Railbed && c.hits && t.Whole() && len(t.damage(c, nil, nil)) == 0
}

// Recorded reports whether the tap recorded at a time. Only a tap of several recordings knows when it did
// not.
func (t *Tap) Recorded(at int64) bool {
	if len(t.recordings) < 2 && (len(t.recordings) == 0 || t.recordings[0].name == "") {
		return true
	}
	return slices.ContainsFunc(t.recordings, func(r recorded) bool { return r.from <= at && r.to >= at })
}
