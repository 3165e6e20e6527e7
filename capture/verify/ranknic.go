package verify

import (
	"fmt"
	"net/netip"
	"slices"
)

// RankNIC holds that each rank used its NIC: all packets of the workload that
// a rank sent left through its NIC, all that it received came in there, and no
// other NIC carried any, on the same node or on another.
type RankNIC struct {
	roles   *roles
	capture *Capture
	// sent and received count packets at the right NIC, by rank; entered
	// counts packets of a rank that came into a switch from the rank's link.
	sent, received, entered []uint64
	// elsewhere counts packets of a rank at a NIC of others, or entering a
	// switch from there.
	elsewhere map[misplaced]uint64
	strangers map[netip.AddrPort]uint64 // sources that are no rank's
	ports     []*portInfo               // by tap index
}

type misplaced struct {
	rank int
	tap  *Tap
	out  bool
}

// portInfo is what is at the other end of a switch port.
type portInfo struct {
	peerNIC string // "node:nic", "" for a port towards another switch
}

// maxStrangers bounds the sources that are listed.
const maxStrangers = 1000

// NewRankNIC makes the check.
func NewRankNIC(w Workload) *RankNIC {
	n := len(w.Ranks)
	return &RankNIC{
		roles: newRoles(w), sent: make([]uint64, n), received: make([]uint64, n), entered: make([]uint64, n),
		elsewhere: map[misplaced]uint64{}, strangers: map[netip.AddrPort]uint64{},
	}
}

// Begin implements Check.
func (k *RankNIC) Begin(c *Capture) { k.capture = c }

// Packet implements Check.
func (k *RankNIC) Packet(p *Packet) {
	role := k.roles.of(p)
	if !role.relevant || p.Direction == Unknown || p.Drop != "" {
		return
	}
	if role.rank < 0 {
		if len(k.roles.byAddr[p.Flow.Src.Addr()]) == 0 && len(k.strangers) < maxStrangers {
			k.strangers[p.Flow.Src]++
		}
		return
	}
	switch {
	case p.Tap.NIC && p.Direction == Out:
		k.at(p.Tap, role.rank, k.sent, true)
	case p.Tap.NIC && role.to >= 0:
		k.at(p.Tap, role.to, k.received, false)
	case !p.Tap.NIC && p.Direction == In:
		k.enters(p.Tap, role.rank)
	}
}

func (k *RankNIC) at(tap *Tap, rank int, right []uint64, out bool) {
	if want := &k.roles.workload.Ranks[rank]; tap.Port == want.NIC && tap.Node == want.Node {
		right[rank]++
		return
	}
	k.elsewhere[misplaced{rank, tap, out}]++
}

// enters takes a packet that comes into a switch from a node.
func (k *RankNIC) enters(tap *Tap, rank int) {
	peer := k.port(tap).peerNIC
	if peer == "" {
		return
	}
	if want := &k.roles.workload.Ranks[rank]; peer == want.Node+":"+want.NIC {
		k.entered[rank]++
		return
	}
	k.elsewhere[misplaced{rank, tap, true}]++
}

// port looks up what a switch port is connected to: by the plan, or by the NIC
// tap that names the same link.
func (k *RankNIC) port(tap *Tap) *portInfo {
	for len(k.ports) <= tap.Index {
		k.ports = append(k.ports, nil)
	}
	if k.ports[tap.Index] == nil {
		info := &portInfo{}
		if port, _ := k.capture.port(tap.Node, tap.Port); port != nil {
			if _, nic := k.capture.port(splitPort(port.Peer)); nic {
				info.peerNIC = port.Peer
			}
		} else if tap.Link != "" {
			for _, other := range k.capture.Taps {
				if other.NIC && other.Link == tap.Link {
					info.peerNIC = other.Name
				}
			}
		}
		k.ports[tap.Index] = info
	}
	return k.ports[tap.Index]
}

// Result implements Check.
func (k *RankNIC) Result() Result {
	r := Result{Name: "rank-nic " + k.roles.workload.Name, Measured: map[string]float64{}}
	taps, unclear := k.roles.taps(k.capture)
	lossy := k.capture.lossy(taps)
	var wrong []string
	var total, astray uint64
	for where, count := range k.elsewhere {
		verb := "received"
		if where.out {
			verb = "sent"
		}
		astray += count
		wrong = append(wrong, fmt.Sprintf("%s %s %d packets at %s", k.roles.name(where.rank), verb, count, where.tap.Name))
	}
	for source, count := range k.strangers {
		astray += count
		wrong = append(wrong, fmt.Sprintf("%d packets to a rank's service came from %s, which is no rank's address", count, source))
	}
	slices.Sort(wrong) // they come from maps
	for i := range k.roles.workload.Ranks {
		total += k.sent[i] + k.received[i]
		if rank := &k.roles.workload.Ranks[i]; k.capture.Tap(rank.Node, rank.NIC) == nil {
			continue // taps has said so
		}
		if k.sent[i] == 0 {
			unclear = append(unclear, k.roles.name(i)+": sent no packet of the workload through its NIC")
		}
		if more := k.entered[i] - min(k.entered[i], k.sent[i]); more > 0 {
			line := fmt.Sprintf("%s: %d packets reached its switch and were not seen to leave its NIC", k.roles.name(i), more)
			if lossy {
				unclear = append(unclear, line)
			} else {
				wrong = append(wrong, line)
			}
		}
	}
	if k.roles.ambiguous > 0 {
		unclear = append(unclear, fmt.Sprintf("%d flows may be of several ranks that share an address", k.roles.ambiguous))
	}
	if len(k.roles.workload.Ranks) == 0 {
		unclear = append(unclear, "the workload has no ranks")
	}
	r.Measured["packets"], r.Measured["elsewhere"] = float64(total), float64(astray)
	r.Summary = fmt.Sprintf("%d packets of %d ranks passed their own NICs, %d passed elsewhere", total, len(k.roles.workload.Ranks), astray)
	k.capture.conclude(&r, taps, wrong, unclear)
	return r
}
