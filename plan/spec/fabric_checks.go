package spec

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// packetChecks holds the keys of a PacketsCheck.
var packetChecks = slices.DeleteFunc(strictyaml.Keys(strictyaml.Fields(reflect.TypeFor[PacketsCheck]())),
	func(key string) bool { return key == "during" || key == "outside" })

// PacketChecks returns the keys of all checks of packets, in the order of PacketsCheck.
func PacketChecks() []string { return slices.Clone(packetChecks) }

// Statements that PacketsCheck.That can require.
const (
	// ThatRDPlaced requires that each byte of each message arrives and is placed once.
	ThatRDPlaced = "every rd message is placed exactly once"
	// ThatRDNeeded requires that each packet that is sent again was lost before.
	ThatRDNeeded = "no rd packet is sent again without need"
)

// MarksCheck judges the packets of ECN-capable transports that left the selected ports. At ports of
// nodes it judges the packets that arrived.
type MarksCheck struct {
	// At names ports as taps do: a switch, a node, node:port or a glob of these. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Share bounds the share of packets that carry Congestion Experienced, such as ">= 10%". Default:
	// not judged.
	Share string `yaml:"share,omitempty" json:"share,omitempty" unit:"share"`
	// Count bounds the number of packets that the ports themselves marked, such as ">= 100". Default:
	// not judged.
	Count string `yaml:"count,omitempty" json:"count,omitempty" unit:"packets"`
}

// DropsCheck judges the drops that were recorded at ports.
type DropsCheck struct {
	// At names ports as taps do. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Reason is the only reason that counts, as captures record it. Default: any.
	//
	//   - tail: the queue was longer than the limit of its link, or than its share of the shared buffer.
	//   - buffer: the shared buffer was full.
	//   - headroom: the packet came during a pause, and the headroom was full.
	//   - nic-overrun: the queue of the emulated NIC was full.
	//   - express: the packet was trimmed, and the queue of trimmed packets was full.
	//   - loss: the loss of the link.
	//   - burst: the gilbert-elliott of the link.
	//   - nth: the drop-every or drop-list of the link.
	//   - bit-error: the bit-error-ratio of the link.
	//   - link-down: the link was down.
	//   - fault: a fault of the file, or a fault of `railbed fault add`.
	//   - no-route: the switch knew no route to the destination.
	//   - ttl-exceeded: the TTL or hop limit was used up.
	//   - malformed: a header is cut off or invalid.
	//   - not-for-us: the packet went to a router, with another station's MAC address.
	//   - too-big: the packet was longer than the MTU of the next link.
	//   - martian: one of the addresses is not valid on a link (RFC 1812, 5.3.7).
	//   - unsupported: the packet is neither IP nor ARP, or it is in a VLAN, at a router.
	//   - reserved: no bridge forwards the group address (IEEE 802.1Q, table 8-1).
	//   - hairpin: the packet would leave a bridge by the port at which it arrived.
	//   - flood-limit: a port had more packets to flood than the bridge lets it.
	//   - aggregation: the switch could not add the packet to a sum.
	//   - refused: the packet arrived, and a queue in the node's own kernel was full.
	Reason string `yaml:"reason,omitempty" json:"reason,omitempty" jsonschema:"enum=tail,enum=buffer,enum=headroom,enum=nic-overrun,enum=express,enum=loss,enum=burst,enum=nth,enum=bit-error,enum=link-down,enum=fault,enum=no-route,enum=ttl-exceeded,enum=malformed,enum=not-for-us,enum=too-big,enum=martian,enum=unsupported,enum=reserved,enum=hairpin,enum=flood-limit,enum=aggregation,enum=refused" names:"word"`
	// Count bounds the number of drops, such as ">= 1" or "== 0".
	Count string `yaml:"count" json:"count" unit:"packets"`
}

// LosslessCheck requires that every packet arrives at its destination node, if it left a node whose
// emulated NIC had room for it.
type LosslessCheck struct {
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Priority is the only priority that is judged. Default: all.
	Priority *int `yaml:"priority,omitempty" json:"priority,omitempty" jsonschema:"minimum=0,maximum=7" unit:"none"`
}

// TrimsCheck requires that trimmed packets carry the DSCP for them and that the rest of each
// arrives.
type TrimsCheck struct {
	// At names ports as taps do. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// Count bounds the number of trimmed packets. Default ">= 1".
	Count string `yaml:"count,omitempty" json:"count,omitempty" unit:"packets"`
	// Workload is the workload whose packets count. Default: all.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
}

// PausesCheck judges PFC frames by the port that requests the pause. It requires that a paused port
// sends nothing.
type PausesCheck struct {
	// At names the ports that request pauses. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// Priority is the only priority that counts. Default: all.
	Priority *int `yaml:"priority,omitempty" json:"priority,omitempty" jsonschema:"minimum=0,maximum=7" unit:"none"`
	// Count bounds the number of pauses, such as ">= 1". Renewals do not count. Default: not judged.
	Count string `yaml:"count,omitempty" json:"count,omitempty" unit:"pauses"`
	// Paused bounds the total paused time that a single port requested, such as ">= 10ms". The port
	// with the longest time counts. Default: not judged.
	Paused string `yaml:"paused,omitempty" json:"paused,omitempty" unit:"duration"`
	// Order lists ports in the order in which they must request their first pause. Default: any order.
	Order []string `yaml:"order,omitempty" json:"order,omitempty" names:"port"`
}

// ReorderingCheck judges the packets that arrived after a packet of their flow that had left later
// (RFC 4737, section 4.2). All packets from one engine of rd to another are one flow, whatever
// paths they take.
type ReorderingCheck struct {
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Share bounds the share of all packets that arrived out of order, such as "<= 1%" or "== 0%".
	Share string `yaml:"share" json:"share" unit:"share"`
}

// OutageCheck judges the interruptions of flows. An interruption is the longest time in which datagrams
// of a flow were sent and none arrived: the time that routers need to find another path.
type OutageCheck struct {
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Longest bounds the longest outage of all flows, such as "<= 1s".
	Longest string `yaml:"longest" json:"longest" unit:"duration"`
}

// ThroughputCheck judges the throughput of each pair of nodes. It is the bits of frames, from their Ethernet
// header on, that arrived per second between the first and the last frame. A pair counts if frames left for
// its receiver, if a traffic step sends between its nodes, or if the workload does. A pair of which no frame
// arrived has a throughput of 0.
type ThroughputCheck struct {
	// From are the nodes that send. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To are the nodes that receive. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Workload is the workload whose packets count. Default: all packets.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
	// Rate bounds the throughput of each pair, such as ">= 10mbit". Default: not judged.
	Rate string `yaml:"rate,omitempty" json:"rate,omitempty" unit:"rate"`
	// Fairness bounds Jain's index of the pairs' throughputs, such as ">= 90%". The index is 100% if
	// all n pairs have the same throughput, and 100%/n if one pair has all of it. Default: not judged.
	Fairness string `yaml:"fairness,omitempty" json:"fairness,omitempty" unit:"share"`
}

// QueueDepthCheck judges the bytes that waited in queues whenever a packet was sent, marked or
// dropped.
type QueueDepthCheck struct {
	// At names ports as taps do. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// Priority is the only queue that counts. Default: all.
	Priority *int `yaml:"priority,omitempty" json:"priority,omitempty" jsonschema:"minimum=0,maximum=7" unit:"none"`
	// Max bounds the longest queue, such as "<= 100KB". Default: not judged.
	Max string `yaml:"max,omitempty" json:"max,omitempty" unit:"size"`
	// P99 bounds the 99th percentile of the queue lengths that packets found. Default: not judged.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty" unit:"size"`
	// Workload is the workload whose packets count. Default: all.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
}

// Bound is a comparison with a number of packets, a share, bytes or nanoseconds.
type Bound struct {
	Op    string // >=, >, <=, < or ==
	Limit float64
	text  string
}

// BoundKind is the quantity that a bound counts.
type BoundKind struct{ name, example string }

// Kinds of bounds.
var (
	CountBound    = BoundKind{"count", ">= 1"}
	ShareBound    = BoundKind{"share", ">= 10%"}
	BesideBound   = BoundKind{"percentage", ">= 90%"} // a share that may be above 100%
	BytesBound    = BoundKind{"size", "<= 100KB"}
	DurationBound = BoundKind{"duration", ">= 10ms"}
	NumberBound   = BoundKind{"number", "<= 0.5"}
	RateBound     = BoundKind{"rate", ">= 10mbit"}
)

var boundForm = regexp.MustCompile(`^(>=|>|<=|<|==)\s*([0-9][0-9a-zA-Z.%/]*)$`)

// ParseBound parses a comparison such as ">= 10%".
func ParseBound(text string, kind BoundKind) (Bound, error) {
	wrong := fmt.Errorf("%s %q: want >=, >, <=, < or == and a %s, as in %q", kind.name, printable.Clip(text),
		kind.name, kind.example)
	parts := boundForm.FindStringSubmatch(text)
	if parts == nil {
		return Bound{}, wrong
	}
	b := Bound{Op: parts[1], text: text}
	var err error
	switch kind {
	case CountBound:
		var n uint64
		n, err = strconv.ParseUint(parts[2], 10, 53)
		b.Limit = float64(n)
	case ShareBound:
		var r units.Ratio
		r, err = units.ParseRatio(parts[2])
		b.Limit = r.Float()
	case BesideBound:
		var percent uint64
		percent, err = strconv.ParseUint(strings.TrimSuffix(parts[2], "%"), 10, 32)
		if !strings.HasSuffix(parts[2], "%") {
			return Bound{}, wrong
		}
		b.Limit = float64(percent) / 100
	case BytesBound:
		var n units.Bytes
		n, err = units.ParseBytes(parts[2])
		b.Limit = float64(n)
	case RateBound:
		var r units.Rate
		r, err = units.ParseRate(parts[2])
		b.Limit = float64(r)
	case NumberBound:
		var f units.Factor
		f, err = units.ParseFactor(parts[2])
		b.Limit = f.Float()
	default:
		var d units.Duration
		d, err = units.ParseDuration(parts[2])
		b.Limit = float64(d)
	}
	if err != nil || math.IsNaN(b.Limit) {
		return Bound{}, wrong
	}
	return b, nil
}

// Bounds are one or two bounds of a number, such as ">= 110%, <= 400%".
type Bounds []Bound

// rangeForm is the form of Bounds.
var rangeForm = func() *regexp.Regexp {
	one := strings.Trim(boundForm.String(), "^$")
	return regexp.MustCompile("^" + one + `(,\s*` + one + ")?$")
}()

// ParseBounds parses one or two comparisons, with a comma between them.
func ParseBounds(text string, kind BoundKind) (all Bounds, err error) {
	for part := range strings.SplitSeq(text, ",") {
		b, err := ParseBound(strings.TrimSpace(part), kind)
		if err != nil || len(all) == 2 {
			return nil, fmt.Errorf("%s %q: want one or two of >=, >, <=, < or == and a %s, as in %q",
				kind.name, printable.Clip(text), kind.name, ">= 110%, <= 400%")
		}
		all = append(all, b)
	}
	return all, nil
}

// Holds reports whether a number satisfies all bounds.
func (b Bounds) Holds(v float64) bool {
	return !slices.ContainsFunc(b, func(one Bound) bool { return !one.Holds(v) })
}

// Holds reports whether a number satisfies the bound.
func (b Bound) Holds(v float64) bool {
	switch b.Op {
	case ">=":
		return v >= b.Limit
	case ">":
		return v > b.Limit
	case "<=":
		return v <= b.Limit
	case "<":
		return v < b.Limit
	}
	return v == b.Limit
}

// Direction returns the bounds of a ratio without their sizes: bounds that demand an increase or a decrease
// demand any. If there are such bounds, the others do not count.
func (b Bounds) Direction() (all Bounds) {
	for _, one := range b {
		if one.Holds(1) || one.Op == "==" {
			continue
		}
		one.Limit, one.Op = 1, map[bool]string{true: "<", false: ">"}[one.Upper()]
		all = append(all, one)
	}
	if len(all) == 0 {
		return b
	}
	return all
}

// Upper reports whether a larger number can only break the bound. Events that were not seen then
// cannot turn a violation into a pass.
func (b Bound) Upper() bool { return b.Op == "<=" || b.Op == "<" || b.Op == "==" && b.Limit == 0 }

// nearShare is the share of a limit within which a number that satisfies a bound is near the limit.
const nearShare = 0.1

// Near reports whether a number satisfies the bound and is at most 10 % of the limit away from it. No
// number is near a limit of 0, or a limit that it has to equal.
func (b Bound) Near(v float64) bool {
	return b.Op != "==" && b.Limit > 0 && b.Holds(v) && math.Abs(v-b.Limit) <= nearShare*b.Limit
}

// String returns the bound as it was written.
func (b Bound) String() string { return b.text }

// bound checks a comparison if there is one.
func (c *checker) bound(path, text string, kind BoundKind) {
	if text == "" {
		return
	}
	if _, err := ParseBound(text, kind); err != nil {
		c.Report(path, fmt.Sprintf("%s %q is no comparison", path, printable.Clip(text)),
			fmt.Sprintf("want >=, >, <=, < or == and a %s, as in %q", kind.name, kind.example))
	}
}

func (k *MarksCheck) form(c *checker, at string) { c.needs(at, `share: ">= 10%"`, k.Share, k.Count) }

func (k *PausesCheck) form(c *checker, at string) {
	if len(k.Order) == 0 {
		c.needs(at, `count: ">= 1"`, k.Count, k.Paused)
	}
}

func (k *ThroughputCheck) form(c *checker, at string) {
	c.needs(at, `rate: ">= 10mbit"`, k.Rate, k.Fairness)
}

func (k *QueueDepthCheck) form(c *checker, at string) { c.needs(at, `max: "<= 100KB"`, k.Max, k.P99) }

// needs reports a check that has none of its bounds.
func (c *checker) needs(at, example string, given ...string) {
	for _, text := range given {
		if text != "" {
			return
		}
	}
	if !c.Broken(at) && !c.Known(at) {
		c.Report(at, at+" checks nothing", "add "+example)
	}
}
