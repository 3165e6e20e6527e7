package verify

import (
	"fmt"
	"math"

	"railbed/fabric/units"
	"railbed/testbed/verdict"
)

// Crossing says what programs that choose their transports themselves had to send
// over links. It is written down by whoever ran them, before the packets are looked
// at.
type Crossing struct {
	Name string
	// From and To are when the programs ran, in nanoseconds since 1970.
	From, To int64
	Ranks    []CrossingRank
}

// CrossingRank is a program that takes part, and the NIC that it was told to use.
type CrossingRank struct {
	Rank      int
	Node, NIC string
	// Sends is how many bytes of payload the program had to send to other nodes at
	// least, whatever its algorithm; 0 is that nothing is known, and that something
	// must have left all the same.
	Sends units.Bytes
}

// Crossing is what the ranks of a workload had to send, at any time.
func (w Workload) Crossing() Crossing {
	c := Crossing{Name: w.Name, To: math.MaxInt64}
	for _, r := range w.Ranks {
		c.Ranks = append(c.Ranks, CrossingRank{Rank: r.Rank, Node: r.Node, NIC: r.NIC, Sends: r.Expected})
	}
	return c
}

// Crossed holds that what ranks had to send to other nodes left by their own NICs:
// two nodes of one host have other ways to each other than links, such as shared
// memory, if they are not kept apart. All payload of TCP and UDP counts that left in
// the time of the run, of TCP each byte once. By NICs of the ranks' nodes that are no
// rank's none must leave.
type Crossed struct {
	crossing Crossing
	capture  *Capture
	streams  map[crossedFlow]*stream
	nics     []*crossedNIC
	ports    map[int]int // by tap index: what nic answers
}

type crossedFlow struct{ nic, flow int }

// crossedNIC is a NIC of a node that ranks are in.
type crossedNIC struct {
	tap   *Tap
	ranks []*CrossingRank // that were told to use it
	sent  uint64          // payload of datagrams
}

// NewCrossed makes the check.
func NewCrossed(c Crossing) *Crossed {
	return &Crossed{crossing: c, streams: map[crossedFlow]*stream{}, ports: map[int]int{}}
}

// Begin implements Check.
func (k *Crossed) Begin(c *Capture) { k.capture = c }

// Packet implements Check.
func (k *Crossed) Packet(p *Packet) {
	if p.Direction != Out || p.Drop != "" || p.Flow == nil || p.Payload == 0 && !p.SYN || p.Time < k.crossing.From || p.Time > k.crossing.To {
		return
	}
	i := k.nic(p.Tap)
	if i < 0 {
		return
	}
	if p.Flow.Proto != protoTCP {
		k.nics[i].sent += uint64(p.Payload)
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

// nic is the index of a tap that is a NIC of a rank's node, else -1.
func (k *Crossed) nic(t *Tap) int {
	if i, known := k.ports[t.Index]; known {
		return i
	}
	k.ports[t.Index] = -1
	n := &crossedNIC{tap: t}
	here := false
	for i := range k.crossing.Ranks {
		r := &k.crossing.Ranks[i]
		here = here || r.Node == t.Node
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

// Result implements Check.
func (k *Crossed) Result() Result {
	r := Result{Name: "crossed " + k.crossing.Name, Measured: map[string]float64{}}
	for _, t := range k.capture.Taps {
		k.nic(t) // of those that sent nothing
	}
	for at, s := range k.streams {
		k.nics[at.nic].sent += s.fresh
	}
	var taps []*Tap
	var wrong, unclear []string
	var all, least uint64
	found := 0
	for _, n := range k.nics {
		taps = append(taps, n.tap)
		r.Measured[n.tap.Name+" bytes"] = float64(n.sent)
		if len(n.ranks) == 0 {
			if n.sent > 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %d bytes left by this NIC, which is no rank's", n.tap.Name, n.sent))
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
		line := fmt.Sprintf("%s (%s): %d bytes of payload left, of at least %d", rankNames(n.ranks), n.tap.Name, n.sent, sends)
		switch {
		case n.sent >= max(1, sends):
			r.Details = append(r.Details, line)
		case k.capture.lossy([]*Tap{n.tap}):
			unclear = append(unclear, line)
		default:
			wrong = append(wrong, line)
		}
	}
	if missing := len(k.crossing.Ranks) - found; missing > 0 || found == 0 {
		unclear = append(unclear, fmt.Sprintf("of %d ranks the NICs of %d were not captured", len(k.crossing.Ranks), missing))
	}
	r.Summary = fmt.Sprintf("%d bytes of payload left by the NICs of %d ranks, of at least %d", all, found, least)
	if len(wrong) == 0 && least == 0 {
		unclear = append(unclear, "how much the ranks had to send is not known")
	}
	k.capture.conclude(&r, taps, wrong, unclear)
	if r.Verdict == verdict.Fail {
		r.Summary += "; " + wrong[0]
	}
	return r
}

func rankNames(ranks []*CrossingRank) string {
	text := "rank"
	for i, r := range ranks {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", r.Rank)
	}
	return text
}
