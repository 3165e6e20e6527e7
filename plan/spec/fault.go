package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/units"
)

// Fault is a packet fault, a partition of nodes, or a crash or hang of nodes. Exactly one of its actions is
// set.
//
// Packet faults and partitions need soft switches. They act after a packet has left its queue at a port, so
// that a dropped packet takes its transmission time, too. The link's own loss and other settings apply after
// the faults. Faults at one port act in the order in which they began. A later fault gets the packets as the
// earlier faults changed them.
type Fault struct {
	// Name is the name of the fault in reports and in the capture. Default: fault-1 for the first fault of
	// the file, and so on.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Where names the ports that send the packets. It is one of these, or a glob of them:
	//
	//   - a link such as "leaf1--spine2", optionally followed by " a-to-b" or " b-to-a". Without a
	//     direction it stands for the ports at both ends.
	//   - "node:port".
	//   - a node or a switch, for all its ports.
	//   - "all", "nics" or "switches".
	//
	// For crash and hang it is the name of a node, or a glob of names. A partition has no place.
	Where string `yaml:"where,omitempty" json:"where,omitempty"`
	// Match is a display filter for the packets, as for `railbed decode -Y`. It can use only fields of the
	// packet's own bytes. Default: all packets.
	Match string `yaml:"match,omitempty" json:"match,omitempty"`
	// Drop loses the packet.
	Drop *Pick `yaml:"drop,omitempty" json:"drop,omitempty"`
	// Delay makes the packet arrive later. Later packets overtake it.
	Delay *FaultDelay `yaml:"delay,omitempty" json:"delay,omitempty"`
	// Duplicate makes the packet arrive twice.
	Duplicate *Pick `yaml:"duplicate,omitempty" json:"duplicate,omitempty"`
	// Corrupt flips bits.
	Corrupt *FaultCorrupt `yaml:"corrupt,omitempty" json:"corrupt,omitempty"`
	// Truncate cuts the end of the frame off, and changes no length field.
	Truncate *FaultTruncate `yaml:"truncate,omitempty" json:"truncate,omitempty"`
	// Mark sets Congestion Experienced in packets of ECN-capable transports. It hits no other packets.
	Mark *Pick `yaml:"mark,omitempty" json:"mark,omitempty"`
	// Partition lists sets of nodes, by names or globs. IP packets between nodes of different sets are lost.
	Partition [][]string `yaml:"partition,omitempty" json:"partition,omitempty"`
	// Crash takes the links of nodes down and kills the programs of the nodes. After for, the links come up
	// again. The programs stay dead.
	Crash bool `yaml:"crash,omitempty" json:"crash,omitempty"`
	// Hang stops all programs of nodes with SIGSTOP. After for, the programs continue.
	Hang bool `yaml:"hang,omitempty" json:"hang,omitempty"`
	// For is how long the fault lasts, in the testbed's time. Default: until the end of the run.
	For units.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// Pick selects some of the packets that match. At most one key is set. Without a key, all packets that match
// are hit. Each port counts the packets that match, from 1.
type Pick struct {
	// Nth lists the packets to hit, in ascending order.
	Nth []int `yaml:"nth,omitempty" json:"nth,omitempty"`
	// Every hits each n-th packet: n, 2n, 3n and so on.
	Every int `yaml:"every,omitempty" json:"every,omitempty" jsonschema:"minimum=1"`
	// Share is the probability with which a packet is hit. The draws depend on the file's seed.
	Share units.Ratio `yaml:"share,omitempty" json:"share,omitzero"`
}

// FaultDelay delays packets.
type FaultDelay struct {
	// By is the additional delay.
	By   units.Duration `yaml:"by" json:"by"`
	Pick `yaml:",inline"`
}

// FaultCorrupt flips bits of packets.
type FaultCorrupt struct {
	// At is the offset of the byte that changes, from the first byte of the Ethernet header. Default: one bit
	// after the Ethernet header flips, drawn with the file's seed.
	At units.Bytes `yaml:"at,omitempty" json:"at,omitempty"`
	// Bits is a mask of the bits that flip in this byte, from 1 to 255. Default 1.
	Bits int `yaml:"bits,omitempty" json:"bits,omitempty" jsonschema:"minimum=1,maximum=255"`
	Pick `yaml:",inline"`
}

// FaultTruncate truncates packets.
type FaultTruncate struct {
	// To is the length of the truncated frame, with the Ethernet header.
	To   units.Bytes `yaml:"to" json:"to"`
	Pick `yaml:",inline"`
}

// The keys of the actions of faults.
const (
	FaultDrops      = "drop"
	FaultDelays     = "delay"
	FaultDuplicates = "duplicate"
	FaultCorrupts   = "corrupt"
	FaultTruncates  = "truncate"
	FaultMarks      = "mark"
	FaultPartitions = "partition"
	FaultCrashes    = "crash"
	FaultHangs      = "hang"
)

// FaultActions are the keys of all actions.
var FaultActions = []string{FaultDrops, FaultDelays, FaultDuplicates, FaultCorrupts, FaultTruncates,
	FaultMarks, FaultPartitions, FaultCrashes, FaultHangs}

// Limits of faults.
const (
	// MaxFaultName is the length of the longest name.
	MaxFaultName = 24
	// ethernetLen is the length of an Ethernet header, which a frame keeps.
	ethernetLen = 14
	// maxFaultDelay bounds a delay, and so the number of packets under way.
	maxFaultDelay = units.Duration(60e9)
	// maxFrame bounds places in frames, in bytes.
	maxFrame = 65535
	// maxNth bounds the length of the list nth.
	maxNth = 10_000
)

// Action returns the key of the fault's action, and the packets that it picks. A fault of a file that was
// decoded without problems has exactly one action.
func (f *Fault) Action() (key string, pick Pick) {
	switch {
	case f.Drop != nil:
		return FaultDrops, *f.Drop
	case f.Delay != nil:
		return FaultDelays, f.Delay.Pick
	case f.Duplicate != nil:
		return FaultDuplicates, *f.Duplicate
	case f.Corrupt != nil:
		return FaultCorrupts, f.Corrupt.Pick
	case f.Truncate != nil:
		return FaultTruncates, f.Truncate.Pick
	case f.Mark != nil:
		return FaultMarks, *f.Mark
	case f.Partition != nil:
		return FaultPartitions, Pick{}
	case f.Crash:
		return FaultCrashes, Pick{}
	case f.Hang:
		return FaultHangs, Pick{}
	}
	return "", Pick{}
}

// OfNodes reports whether the fault is a crash or a hang of nodes.
func (f *Fault) OfNodes() bool { return f.Crash || f.Hang }

// String describes what the fault does: "drop nth 5, 6 of tcp".
func (f *Fault) String() string {
	key, pick := f.Action()
	words := []string{key}
	switch {
	case f.Delay != nil:
		words = append(words, "by "+f.Delay.By.String())
	case f.Corrupt != nil && f.Corrupt.At > 0:
		words = append(words, fmt.Sprintf("at %s bits %d", f.Corrupt.At, max(f.Corrupt.Bits, 1)))
	case f.Truncate != nil:
		words = append(words, "to "+f.Truncate.To.String())
	case f.Partition != nil:
		var sets []string
		for _, set := range f.Partition {
			sets = append(sets, strings.Join(set, ", "))
		}
		words = append(words, strings.Join(sets, " | "))
	}
	switch {
	case len(pick.Nth) > 0:
		words = append(words, "nth "+strings.ReplaceAll(strings.Trim(fmt.Sprint(pick.Nth), "[]"), " ", ", "))
	case pick.Every > 0:
		words = append(words, fmt.Sprintf("every %d", pick.Every))
	case !pick.Share.IsZero():
		words = append(words, "share "+pick.Share.String())
	}
	if f.Match != "" {
		words = append(words, "of "+f.Match)
	}
	return strings.Join(words, " ")
}

// Place splits Where into a name or glob and a direction: "a-to-b", "b-to-a", or empty.
func (f *Fault) Place() (name, direction string) { return splitWhere(f.Where) }

// Traits implements Action.
func (f *Fault) Traits() Traits { return Traits{} }

func (f *Fault) setDefaults() {
	if f.Corrupt != nil && f.Corrupt.At > 0 && f.Corrupt.Bits == 0 {
		f.Corrupt.Bits = 1
	}
}

// faultPlace matches a name of a link, port, node or switch.
var faultPlace = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9:._-]*$`)

func (f *Fault) check(c *checker, at string, index int) {
	for _, step := range c.t.Steps[:index] {
		if f.Name != "" && step.Fault != nil && step.Fault.Name == f.Name {
			c.report(at+".name", fmt.Sprintf("another fault is named %q", clipped(f.Name)),
				"give each fault a name of its own")
		}
	}
	if f.Name != "" && !nodeName.MatchString(f.Name) {
		c.report(at+".name", fmt.Sprintf("invalid name %q", clipped(f.Name)), "want "+nodeNameForm)
	}
	f.checkPlace(c, at)
	c.exactlyOne(at, *f, FaultActions...)
	if f.Delay != nil {
		c.atMost(at+".delay.by", uint64(f.Delay.By), uint64(maxFaultDelay), f.Delay.By, "want at most 60s")
	}
	if k := f.Corrupt; k != nil && k.At == 0 && k.Bits != 0 {
		c.report(at+".corrupt.bits", "bits without a place",
			"add at: with the place of the byte, such as 60B")
	}
	if f.Truncate != nil {
		c.atMost(at+".truncate.to", uint64(f.Truncate.To), maxFrame, f.Truncate.To, "want at most 65535B")
	}
	if f.Corrupt != nil {
		c.atMost(at+".corrupt.at", uint64(f.Corrupt.At), maxFrame, f.Corrupt.At, "want at most 65535B")
	}
	if f.Truncate != nil && f.Truncate.To < ethernetLen && f.Truncate.To > 0 {
		c.report(at+".truncate.to", fmt.Sprintf("a frame of %s", f.Truncate.To),
			"want at least 14B, the length of the Ethernet header")
	}
	if key, pick := f.Action(); key != "" {
		c.pick(at+"."+key, pick)
	}
	c.positive(at+".for", uint64(f.For), "for is 0", "want a duration such as 200ms, or remove the key")
}

// checkPlace checks the place of a fault and its match.
func (f *Fault) checkPlace(c *checker, at string) {
	name, direction := f.Place()
	switch {
	case f.Partition != nil && f.Where != "":
		c.report(at+".where", "a partition with a place", "remove where: the sets name the nodes")
	case f.Partition != nil:
		if len(f.Partition) < 2 {
			c.report(at+".partition", fmt.Sprintf("%d set of nodes", len(f.Partition)),
				"want at least two, as in [[h0, h1], [h2, h3]]")
		}
		for i, set := range f.Partition {
			for j, node := range set {
				c.pattern(c.report, fmt.Sprintf("%s.partition[%d][%d]", at, i, j), node, "node", nodeName,
					nodeNameForm)
			}
		}
	case f.Where == "" && !c.known(at+".where"):
		c.report(at, at+` lacks the key "where"`, "add where: with a link, a port, a node or a switch")
	case f.OfNodes() && direction != "":
		c.report(at+".where", fmt.Sprintf("%q is no node", clipped(f.Where)), "want the name of a node")
	case f.OfNodes():
		c.pattern(c.report, at+".where", name, "node", nodeName, nodeNameForm)
	case name != "":
		c.pattern(c.report, at+".where", name, "place", faultPlace,
			`the name of a link, a node:port, a node, a switch or "all"; a link may have " a-to-b" or `+
				`" b-to-a" after it`)
	}
	if f.OfNodes() && f.Match != "" {
		c.report(at+".match", "a crash or hang with a match", "remove match:")
	}
}

// pick checks which packets a fault hits.
func (c *checker) pick(at string, p Pick) {
	if given := set(p, []string{"nth", "every", "share"}); len(given) > 1 {
		c.reportKey(joined(at, given[1]), fmt.Sprintf("%s has %s", at, strings.Join(given, " and ")),
			"want at most one of nth, every and share")
	}
	if len(p.Nth) > maxNth {
		c.report(at+".nth", fmt.Sprintf("%d packets", len(p.Nth)), fmt.Sprintf("want at most %d", maxNth))
	}
	for i, n := range p.Nth {
		switch {
		case n < 1:
			c.report(fmt.Sprintf("%s.nth[%d]", at, i), fmt.Sprintf("packet %d", n), "count packets from 1")
			return
		case i > 0 && n <= p.Nth[i-1]:
			c.report(fmt.Sprintf("%s.nth[%d]", at, i),
				fmt.Sprintf("packet %d after packet %d", n, p.Nth[i-1]),
				"list the packets in ascending order, each once")
			return
		}
	}
	if p.Share.Num > p.Share.Den {
		c.report(at+".share", "a share above 100%", "want at most 100%")
	}
}

// ParseFault parses a fault as it is written in files. Errors are Problems and call the text by the given
// name. A fault without a name gets no default name.
func ParseFault(name, text string) (Fault, error) {
	f, err := parse(name, text, "fault", func(c *checker, f *Fault) { f.check(c, "fault", 0) })
	f.setDefaults()
	return f, err
}

// faultNames gives names to the faults of a file that have no name.
func (t *Testbed) faultNames() {
	var taken []string
	for _, step := range t.Steps {
		if step.Fault != nil {
			taken = append(taken, step.Fault.Name)
		}
	}
	number := 0
	for _, step := range t.Steps {
		if step.Fault == nil {
			continue
		}
		for number++; step.Fault.Name == ""; number++ {
			if name := fmt.Sprintf("fault-%d", number); !slices.Contains(taken, name) {
				step.Fault.Name = name
				break
			}
		}
	}
}
