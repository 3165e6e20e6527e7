package verify

import (
	"fmt"
	"strings"

	"railbed/testbed/plan"
)

// nicOverrun is the reason of drops that are the node's and not the fabric's.
const nicOverrun = "nic-overrun"

// refused is the reason of packets that crossed the fabric and that the host had
// no room for: nobody can say of these what the fabric did to them.
const refused = "refused"

// Lossless holds that the fabric loses nothing: every packet that left a node and
// that the emulated NIC had room for arrives at the node that it is for. It
// follows packets by their ids from NIC to NIC; what switches say about drops only
// explains what is missing. A packet that was trimmed on the way did not arrive.
type Lossless struct {
	selector
	priority int                 // -1 is any
	maps     []*plan.PriorityMap // by tap index, as far as looked up; see priorities
	travel   journeys

	sent, overrun, refused uint64
	examples               []string
	nics                   map[int]bool
}

// NewLossless makes the check. A priority of -1 is any; others need a plan of soft
// switches, each of which may map DSCPs to priorities in its own way: a packet's is
// what the switch that its sender is attached to makes of it.
func NewLossless(s Selection, priority int) *Lossless {
	return &Lossless{selector: selector{Selection: s}, priority: priority, nics: map[int]bool{}}
}

// Begin implements Check.
func (k *Lossless) Begin(c *Capture) {
	k.begin(c)
	k.travel = newJourneys(c, k.exemplify)
}

// noPriorities is the map of NICs that are attached to no soft switch.
var noPriorities = new(plan.PriorityMap)

// priorities is the map from DSCP to priority of the soft switch that a NIC is
// attached to, noPriorities without one.
func (k *Lossless) priorities(nic *Tap) *plan.PriorityMap {
	for len(k.maps) <= nic.Index {
		k.maps = append(k.maps, nil)
	}
	if k.maps[nic.Index] == nil {
		k.maps[nic.Index] = noPriorities
		if port, _ := k.capture.port(nic.Node, nic.Port); port != nil {
			peer, _ := splitPort(port.Peer)
			if sw := k.capture.Plan.Switch(peer); sw != nil && sw.Soft != nil {
				k.maps[nic.Index] = &sw.Soft.Priorities
			}
		}
	}
	return k.maps[nic.Index]
}

// ofPriority reports whether a packet that leaves a NIC is of the priority.
func (k *Lossless) ofPriority(p *Packet) bool {
	if k.priority < 0 {
		return true
	}
	m := k.priorities(p.Tap)
	if p.PCP >= 0 {
		return m != noPriorities && p.PCP == k.priority
	}
	return m != noPriorities && int(m[p.DSCP]) == k.priority
}

// Packet implements Check.
func (k *Lossless) Packet(p *Packet) {
	if p.Flow == nil || !k.flow(p.Flow) {
		return
	}
	switch {
	case p.Drop != "":
		k.drop(p)
	case !p.Tap.NIC:
	case p.Direction == Out:
		if _, to := k.nodes[p.Flow.Dst.Addr()]; !to || !k.ofPriority(p) {
			return
		}
		k.sent++
		k.nics[p.Tap.Index] = true
		k.travel.start(p.ID, journey{left: p.Time})
	case p.Direction == In:
		k.travel.arrive(p.ID)
	}
}

// drop takes over why a packet will not arrive.
func (k *Lossless) drop(p *Packet) {
	count := &k.overrun
	switch p.Drop {
	case nicOverrun:
	case refused:
		count = &k.refused
	default:
		k.travel.note(p.ID, p.Tap.Name+" "+p.Drop)
		return
	}
	if _, known := k.travel.forget(p.ID); known {
		*count++
	}
}

// exemplify keeps the first packets that were lost as examples.
func (k *Lossless) exemplify(id uint64, j journey) {
	if len(k.examples) < 5 {
		k.examples = append(k.examples, fmt.Sprintf("packet %#x of %s: %s", id, clockTime(j.left), j.reason))
	}
}

// Result implements Check.
func (k *Lossless) Result() Result {
	k.travel.finish(k.capture.End)
	r := Result{Name: k.titled("lossless"), Measured: map[string]float64{
		"sent": float64(k.sent), "arrived": float64(k.travel.arrived), "lost": float64(k.travel.lost), "nic-overrun": float64(k.overrun), "under-way": float64(k.travel.underWay),
	}}
	taps := k.nicTaps()
	var unclear []string
	wrong := append(k.travel.losses("packets"), k.examples...)
	if k.capture.lossy(taps) || k.travel.short || len(k.untapped()) > 0 {
		wrong, unclear = nil, append(unclear, wrong...)
	}
	if k.refused > 0 {
		unclear = append(unclear, fmt.Sprintf("%d packets came to a node that had no room for them: the host is too busy", k.refused))
	}
	switch {
	case k.capture.Plan == nil:
		wrong, unclear = nil, []string{"without a plan the nodes are not known"}
	case k.travel.arrived+k.travel.lost == 0:
		unclear = append(unclear, "no packet left a node for another")
	case k.travel.short:
		unclear = append(unclear, "more packets at once than are remembered")
	}
	for _, name := range k.untapped() {
		unclear = append(unclear, name+" was not captured")
	}
	r.Summary = fmt.Sprintf("%d packets left, %d arrived, %d were lost; %d found no room in the emulated NIC, %d were under way at the end",
		k.sent, k.travel.arrived, k.travel.lost, k.overrun, k.travel.underWay)
	k.capture.conclude(&r, taps, wrong, unclear)
	return r
}

// nicTaps are the taps of all nodes.
func (s *selector) nicTaps() (taps []*Tap) {
	for _, tap := range s.capture.Taps {
		if tap.NIC {
			taps = append(taps, tap)
		}
	}
	return taps
}

// untapped are the nodes' NICs that the plan has and the capture lacks.
func (s *selector) untapped() (names []string) {
	if s.capture.Plan == nil {
		return nil
	}
	for _, n := range s.capture.Plan.Nodes {
		for _, nic := range n.NICs {
			if s.capture.Tap(n.Name, nic.Name) == nil {
				names = append(names, strings.Join([]string{n.Name, nic.Name}, ":"))
			}
		}
	}
	return names
}
