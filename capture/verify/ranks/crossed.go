package ranks

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/rocechecks"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// CrossingOf returns the traffic that the ranks of a workload had to send, at any time. If some of it
// stays within a node and is counted, the bytes that leave are unknown.
func CrossingOf(w evidence.Workload) evidence.Crossing {
	c := evidence.Crossing{Name: w.Name, To: math.MaxInt64, Encrypted: evidence.NewRoles(w).Encrypted()}
	_, _, within := w.Within()
	for _, r := range w.Ranks {
		rank := evidence.CrossingRank{Rank: r.Rank, Node: r.Node, NIC: r.NIC, SecondNIC: r.SecondNIC,
			Sends: r.Expected}
		if within && !w.Across {
			rank.Sends = 0
		}
		c.Ranks = append(c.Ranks, rank)
	}
	return c
}

// crossed checks that the payload which ranks had to send to other nodes left by the ranks' own
// NICs. Two nodes of one host can exchange data without links, such as through shared memory, if
// they are not isolated.
//
// The check counts all payload of TCP and UDP that left for another rank's node in the time of the
// run, unless it is known to belong to another sender. Over TCP each byte counts once. A RoCEv2
// packet, responses of READs included, or a reliable datagram does not count again if its number
// shows that it is a repeat. No payload must leave by those NICs of the ranks' nodes that belong to
// no rank.
type crossed struct {
	crossing  evidence.Crossing
	capture   *evidence.Capture
	nodes     map[netip.Addr]evidence.Owner // of ranks
	others    []*evidence.Roles
	streams   map[crossedFlow]*stream
	requests  *rocechecks.Requests
	datagrams map[rdKey]*rdStream
	nics      []*crossedNIC
	ports     map[int]int // by tap index: the result of nic
}

type crossedFlow struct{ nic, flow int }

// crossedNIC is a NIC of a node that runs ranks, or both NICs of ranks with two.
type crossedNIC struct {
	tap   *evidence.Tap
	ranks []*evidence.CrossingRank // that were configured to use it
	late  bool                     // a connection had begun before the capture
	sent  uint64                   // payload of datagrams
	// hidden are the IP packets that may carry payload in a form that the check does not read: ESP, tunnels.
	hidden uint64
}

var _ = evidence.Register(evidence.Kind{Key: "crossed", Example: "ar", Timed: evidence.Never,
	Make: func(p *spec.PacketsCheck, s evidence.Sources) (evidence.Check, error) {
		c, err := s.Crossing(p.Crossed)
		return NewCrossed(c), err
	}})

// NewCrossed makes the check.
func NewCrossed(c evidence.Crossing) evidence.Check {
	k := &crossed{crossing: c, streams: map[crossedFlow]*stream{},
		requests: rocechecks.NewRequests(), datagrams: map[rdKey]*rdStream{}, ports: map[int]int{}}
	for _, w := range c.Others {
		k.others = append(k.others, evidence.NewRoles(w))
	}
	return k
}

// Begin implements Check.
func (k *crossed) Begin(c *evidence.Capture) {
	k.capture, k.nodes = c, evidence.OwnersOf(c.Plan)
	for addr, of := range k.nodes {
		if !slices.ContainsFunc(k.crossing.Ranks, func(r evidence.CrossingRank) bool {
			return r.Node == of.Node
		}) {
			delete(k.nodes, addr)
		}
	}
}

// Packet implements Check.
func (k *crossed) Packet(p *evidence.Packet) {
	if p.Direction != evidence.Out || p.Drop != "" || p.Flow == nil ||
		p.Payload == 0 && !p.SYN && !hides(p.Flow.Proto) ||
		p.Time < k.crossing.From || p.Time > k.crossing.To {
		return
	}
	i := k.nic(p.Tap)
	if i < 0 || !k.leaves(p) || k.of(p) {
		return
	}
	if hides(p.Flow.Proto) {
		k.nics[i].hidden++
		return
	}
	if p.Flow.Proto != evidence.ProtoTCP {
		if !k.again(p) {
			k.nics[i].sent += uint64(p.Payload)
		}
		return
	}
	at := crossedFlow{i, p.Flow.Index}
	s := k.streams[at]
	if s == nil {
		s = new(stream)
		k.streams[at] = s
	}
	s.add(p.Seq, p.Payload, p.SYN)
}

// hides reports whether packets of an IP protocol may carry payload of TCP and UDP that the check does not
// read.
func hides(proto uint8) bool {
	return !slices.Contains([]uint8{evidence.ProtoTCP, evidence.ProtoUDP, wire.ProtocolICMPv4,
		wire.ProtocolICMPv6}, proto)
}

// leaves reports whether a packet is for another rank's node, or for a switch that aggregates.
// Without a plan it reports true for every packet.
func (k *crossed) leaves(p *evidence.Packet) bool {
	of, known := k.nodes[p.Flow.Dst.Addr()]
	return k.capture.Plan == nil || p.Aggregation != nil || known && of.Node != p.Tap.Node
}

// of reports whether a packet is known to belong to another sender.
func (k *crossed) of(p *evidence.Packet) bool {
	return p.Flow.Proto == evidence.ProtoUDP && slices.Contains(k.crossing.Datagrams, p.Flow.Dst.Port()) ||
		slices.ContainsFunc(k.others, func(r *evidence.Roles) bool { return r.Of(p).Relevant })
}

// again reports whether a datagram identifies itself as a repeat.
func (k *crossed) again(p *evidence.Packet) bool {
	switch {
	case p.RoCE != nil && p.RoCE.BTH.Opcode.IsRead():
		return k.requests.Answered(p)
	case p.RoCE != nil:
		at, _ := k.requests.Place(p)
		return at.Again
	case p.RD != nil && p.RD.Type == wire.RDData:
		key := rdKeyOf(p)
		s := k.datagrams[key]
		if s == nil {
			if len(k.datagrams) >= maxRDSequences {
				return false
			}
			s = new(rdStream)
			k.datagrams[key] = s
		}
		return s.seen.Add(p.RD.PSN)
	}
	return false
}

// nic returns the index of a tap that is a NIC of a rank's node, else -1.
func (k *crossed) nic(t *evidence.Tap) int {
	if i, known := k.ports[t.Index]; known {
		return i
	}
	k.ports[t.Index] = -1
	n := &crossedNIC{tap: t}
	here := false
	for i := range k.crossing.Ranks {
		r := &k.crossing.Ranks[i]
		here = here || r.Node == t.Node
		if r.Node == t.Node && r.SecondNIC != "" && r.SecondNIC == t.Port {
			if first := k.capture.Tap(r.Node, r.NIC); first != nil {
				k.ports[t.Index] = k.nic(first)
				return k.ports[t.Index]
			}
			n.ranks = append(n.ranks, r)
		}
		if r.Node == t.Node && r.NIC == t.Port {
			n.ranks = append(n.ranks, r)
		}
	}
	if t.NIC && here {
		k.ports[t.Index] = len(k.nics)
		k.nics = append(k.nics, n)
	}
	return k.ports[t.Index]
}

// unread ends a line with the number of packets that may carry more payload.
func (n *crossedNIC) unread() string {
	return plural.Text("; %d packets may carry more in a form that is not read, such as ESP or a tunnel",
		n.hidden)
}

// judge compares the bytes that left by a rank's NIC with the least that its ranks had to send.
func (n *crossedNIC) judge(r *evidence.Result, f *evidence.Finding, sends uint64) {
	line := plural.Text("%s (%s): %d bytes of payload left, want at least %d", rankNames(n.ranks), n.tap.Name,
		n.sent, sends)
	switch {
	case n.sent >= max(1, sends):
		r.Details = append(r.Details, line)
	case n.hidden > 0:
		f.Unclear = append(f.Unclear, line+n.unread())
	case n.late:
		f.Unclear = append(f.Unclear, line)
	default:
		f.Absent = append(f.Absent, line)
	}
}

// Result implements Check.
func (k *crossed) Result() evidence.Result {
	r := evidence.Result{Name: "crossed " + k.crossing.Name, Measured: map[string]float64{}}
	for _, t := range k.capture.Taps {
		k.nic(t) // also adds NICs that sent nothing
	}
	for at, s := range k.streams {
		n := k.nics[at.nic]
		n.sent += s.fresh
		n.late = n.late || s.fresh > 0 && !s.synced
	}
	var f evidence.Finding
	var all, least uint64
	found := 0
	for _, n := range k.nics {
		r.Measured[n.tap.Name+" bytes"] = float64(n.sent)
		if len(n.ranks) == 0 {
			line := plural.Text("%s: %d bytes left by this NIC, which belongs to no rank", n.tap.Name, n.sent)
			switch {
			case n.sent == 0 && n.hidden > 0:
				f.Unclear = append(f.Unclear, line+n.unread())
			case n.sent == 0:
			case k.capture.Plan == nil || len(k.crossing.Beside) > 0:
				f.Unclear = append(f.Unclear, line)
			default:
				f.Wrong = append(f.Wrong, line)
			}
			continue
		}
		found += len(n.ranks)
		all += n.sent
		var sends uint64
		for _, rank := range n.ranks {
			sends += uint64(rank.Sends)
		}
		least += sends
		n.judge(&r, &f, sends)
	}
	if missing := len(k.crossing.Ranks) - found; missing > 0 || found == 0 {
		f.Unclear = append(f.Unclear, plural.Text("no NIC was captured of %d of %d ranks",
			missing, len(k.crossing.Ranks)))
	}
	r.Summary = plural.Text("%d bytes of payload left by the NICs of %d ranks, want at least %d", all, found,
		least)
	if len(f.Wrong)+len(f.Absent) == 0 && least == 0 {
		f.Unclear = append(f.Unclear, "how much the ranks had to send is not known")
	}
	if k.capture.Plan == nil {
		f.Unclear = append(f.Unclear, "without a plan it is not known which packets were for other "+
			"ranks' nodes")
	}
	if k.crossing.Encrypted {
		f.Unclear = append(f.Unclear, encryptedReason)
	}
	if len(k.crossing.Beside) > 0 {
		f.Unclear = append(f.Unclear, fmt.Sprintf("the bytes may belong to %s, which ran in the same nodes "+
			"at the same time", strings.Join(k.crossing.Beside, ", ")))
	}
	ports := k.capture.Ports(func(t *evidence.Tap) bool {
		return t.NIC && slices.ContainsFunc(k.crossing.Ranks, func(r evidence.CrossingRank) bool {
			return r.Node == t.Node
		})
	})
	k.capture.Conclude(&r, evidence.Need{Ports: ports, From: k.crossing.From, To: k.until()}, f)
	if r.Verdict == verdict.Fail {
		r.Summary += "; " + r.Details[0]
	}
	return r
}

// until returns the time at which the programs ended, 0 if unknown.
func (k *crossed) until() int64 {
	if k.crossing.To == math.MaxInt64 {
		return 0
	}
	return k.crossing.To
}

func rankNames(ranks []*evidence.CrossingRank) string {
	text := "rank"
	for i, r := range ranks {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", r.Rank)
	}
	return text
}
