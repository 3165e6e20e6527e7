package ranks

import (
	"net/netip"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/spec"
)

// rankNIC checks that each rank used its NIC, or its two NICs. All packets of the workload that a rank sent
// left through them, and all that it received arrived there. No other NIC carried any, on the same
// node or on another.
type rankNIC struct {
	roles   *evidence.Roles
	capture *evidence.Capture
	// sent and received count packets at the right NIC, by rank. entered counts packets of a rank
	// that entered a switch from the rank's link.
	sent, received, entered []uint64
	// under reports, by rank, whether packets were on the link when the capture began.
	under []bool
	// elsewhere counts packets of a rank at other NICs than its own, or entering a switch from such
	// a NIC.
	elsewhere map[misplaced]uint64
	strangers map[netip.AddrPort]uint64 // source addresses of no rank
	ports     evidence.Slots[*portInfo] // by tap index
}

type misplaced struct {
	rank int
	tap  *evidence.Tap
	out  bool
}

// portInfo describes the other end of a switch port.
type portInfo struct {
	peerNIC string // "node:nic", "" for a port towards another switch
	// duplicates reports whether the link duplicates packets behind the NIC's tap.
	duplicates bool
	full       int64 // how long a packet may be on the link, in nanoseconds
}

// maxStrangers bounds the number of source addresses that are listed.
const maxStrangers = 1000

var _ = evidence.Register(evidence.Kind{Key: "rank-nic", Example: "ar", Timed: evidence.Never,
	Make: evidence.OfWorkload(NewRankNIC)})

// NewRankNIC makes the check.
func NewRankNIC(w evidence.Workload) evidence.Check {
	n := len(w.Ranks)
	return &rankNIC{
		roles:     evidence.NewRoles(w),
		sent:      make([]uint64, n),
		received:  make([]uint64, n),
		entered:   make([]uint64, n),
		under:     make([]bool, n),
		elsewhere: map[misplaced]uint64{}, strangers: map[netip.AddrPort]uint64{},
	}
}

// Begin implements Check.
func (k *rankNIC) Begin(c *evidence.Capture) { k.capture = c }

// Packet implements Check.
func (k *rankNIC) Packet(p *evidence.Packet) {
	role := k.roles.Of(p)
	if !role.Relevant || p.Direction == evidence.Unknown || p.Drop != "" || p.Tap.Node == "" {
		return // without its name, a tap may be the NIC of the rank
	}
	if role.Rank < 0 {
		if !k.roles.Has(p.Flow.Src.Addr()) && len(k.strangers) < maxStrangers {
			k.strangers[p.Flow.Src]++
		}
		return
	}
	switch {
	case p.Tap.NIC && p.Direction == evidence.Out:
		k.at(p, role.Rank, k.sent, true)
	case p.Tap.NIC && role.To >= 0:
		k.at(p, role.To, k.received, false)
	case !p.Tap.NIC && p.Direction == evidence.In:
		k.enters(p, role.Rank)
	}
}

func (k *rankNIC) at(p *evidence.Packet, rank int, right []uint64, out bool) {
	switch want := &k.roles.Workload.Ranks[rank]; {
	case want.Uses(p.Tap.Node, p.Tap.Port):
		right[rank]++
	case !out && p.Foreign: // a bridge floods frames to addresses that it has not learned
	default:
		k.elsewhere[misplaced{rank, p.Tap, out}]++
	}
}

// enters adds a packet that enters a switch from a node.
func (k *rankNIC) enters(p *evidence.Packet, rank int) {
	port := k.port(p.Tap)
	if port.peerNIC == "" {
		return
	}
	if want := &k.roles.Workload.Ranks[rank]; !slices.Contains(want.NICs(), port.peerNIC) {
		k.elsewhere[misplaced{rank, p.Tap, true}]++
		return
	}
	if k.sent[rank] == 0 && k.entered[rank] == 0 { // packets that left before the capture began
		k.under[rank] = true
	}
	if port.duplicates || k.under[rank] && p.Time-k.capture.First <= port.full {
		return
	}
	k.entered[rank]++
}

// port looks up the other end of a switch port: in the plan, or from the NIC's tap that names the
// same link.
func (k *rankNIC) port(tap *evidence.Tap) *portInfo {
	slot := k.ports.At(tap.Index)
	if *slot == nil {
		info := &portInfo{}
		if port, _ := k.capture.Interface(tap.Node, tap.Port); port != nil {
			if _, nic := k.capture.Interface(spec.SplitPort(port.Peer)); nic {
				info.peerNIC = port.Peer
			}
			if link := k.capture.Plan.Link(port.Link); link != nil {
				for _, d := range []plan.Direction{link.AToB, link.BToA} {
					info.duplicates = info.duplicates || !d.Duplicate.IsZero()
					info.full = max(info.full, evidence.FullTime(d, k.capture.Dilation))
				}
			}
		} else if tap.Link != "" {
			for _, other := range k.capture.Taps {
				if other.NIC && other.Link == tap.Link {
					info.peerNIC = other.Name
				}
			}
		}
		*slot = info
	}
	return *slot
}

// Result implements Check.
func (k *rankNIC) Result() evidence.Result {
	r := evidence.Result{Name: "rank-nic " + k.roles.Workload.Name, Measured: map[string]float64{}}
	need, f := k.roles.Need(k.capture), evidence.Finding{}
	// The check needs the ranks' NICs even if there is no plan that names them.
	need.Ports, need.AnyOrder = evidence.Union(k.capture.Ports(k.ofRanks), need.Ports), true
	var total, astray uint64
	for where, count := range k.elsewhere {
		verb := "received"
		if where.out {
			verb = "sent"
		}
		astray += count
		f.Wrong = append(f.Wrong, plural.Text("%s %s %d packets at %s", k.roles.Name(where.rank), verb, count,
			where.tap.Name))
	}
	for source, count := range k.strangers {
		astray += count
		f.Wrong = append(f.Wrong, plural.Text(
			"%d packets to a rank's service came from %s, which is no rank's address", count, source))
	}
	slices.Sort(f.Wrong) // map order is random
	for i := range k.roles.Workload.Ranks {
		total += k.sent[i] + k.received[i]
		if slices.ContainsFunc(k.roles.Workload.Ranks[i].NICs(), func(nic string) bool {
			return k.capture.TapNamed(nic) == nil
		}) {
			continue
		}
		if k.sent[i] == 0 {
			f.Unclear = append(f.Unclear, k.roles.Name(i)+": sent no packet of the workload through its NIC")
		}
		if more := k.entered[i] - min(k.entered[i], k.sent[i]); more > 0 {
			f.Absent = append(f.Absent, plural.Text("%s: %d packets reached its switch and were not seen "+
				"to leave its NIC", k.roles.Name(i), more))
		}
	}
	if k.roles.Ambiguous > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d flows may be of several ranks that share an address",
			k.roles.Ambiguous))
	}
	if len(k.roles.Workload.Ranks) == 0 {
		f.Unclear = append(f.Unclear, "the workload has no ranks")
	}
	r.Measured["packets"], r.Measured["elsewhere"] = float64(total), float64(astray)
	r.Summary = plural.Text("%d packets of %d ranks passed their own NICs, %d passed elsewhere", total,
		len(k.roles.Workload.Ranks), astray)
	k.capture.Conclude(&r, need, f)
	return r
}

// ofRanks reports whether a port is a NIC of a node with ranks.
func (k *rankNIC) ofRanks(t *evidence.Tap) bool {
	return t.NIC && slices.ContainsFunc(k.roles.Workload.Ranks,
		func(r evidence.Rank) bool { return r.Node == t.Node })
}
