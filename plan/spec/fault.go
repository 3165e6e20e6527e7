package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/units"
)

// Fault harms packets where they leave a port: it drops, delays, duplicates, corrupts, truncates or marks
// them. Exactly one of these actions is set. A fault needs soft switches. The packet has left its queue and
// takes its time on the link. The link's own loss and other settings apply after the faults. Faults at one
// port act in the order in which they began. Each gets the packets that the one before has left.
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
	Where string `yaml:"where" json:"where"`
	// Match is a display filter for the packets, as `railbed decode -Y` reads it, with fields of the
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
	// Mark sets congestion experienced in packets of ECN-capable transports. It hits no others.
	Mark *Pick `yaml:"mark,omitempty" json:"mark,omitempty"`
	// For is how long the fault lasts, in the testbed's time. Default: until the end of the run.
	For units.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// Pick selects some of the packets that match. At most one key is set. Without any, all that match are hit.
// Matching packets are counted from 1 at each port by itself.
type Pick struct {
	// Nth lists the packets to hit, in ascending order.
	Nth []int `yaml:"nth,omitempty" json:"nth,omitempty"`
	// Every hits each n-th packet: n, 2n, 3n.
	Every int `yaml:"every,omitempty" json:"every,omitempty" jsonschema:"minimum=1"`
	// Share hits a packet with this probability, drawn with the file's seed.
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
	// At is the place of the byte that changes, from the first byte of the Ethernet header. Default: one bit
	// behind the Ethernet header flips, drawn with the file's seed.
	At units.Bytes `yaml:"at,omitempty" json:"at,omitempty"`
	// Bits are the bits that flip in the byte at that place, as a mask from 1 to 255. Default 1.
	Bits int `yaml:"bits,omitempty" json:"bits,omitempty" jsonschema:"minimum=1,maximum=255"`
	Pick `yaml:",inline"`
}

// FaultTruncate truncates packets.
type FaultTruncate struct {
	// To is the length that is left, with the Ethernet header.
	To   units.Bytes `yaml:"to" json:"to"`
	Pick `yaml:",inline"`
}

// Actions of faults, by their keys.
const (
	FaultDrops      = "drop"
	FaultDelays     = "delay"
	FaultDuplicates = "duplicate"
	FaultCorrupts   = "corrupt"
	FaultTruncates  = "truncate"
	FaultMarks      = "mark"
)

// FaultActions are the keys of all actions.
var FaultActions = []string{FaultDrops, FaultDelays, FaultDuplicates, FaultCorrupts, FaultTruncates,
	FaultMarks}

// Limits of faults.
const (
	// MaxFaultName is the length of the longest name.
	MaxFaultName = 24
	// ethernetLen is the length of an Ethernet header, which a frame keeps.
	ethernetLen = 14
	// maxFaultDelay bounds a delay, and thereby the packets that are under way.
	maxFaultDelay = units.Duration(60e9)
	// maxNth bounds the list of packets.
	maxNth = 10_000
)

// Action returns the key of the fault's action, and which packets it picks. A fault of a file that was
// decoded without problems has exactly one.
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
	}
	return "", Pick{}
}

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
	if name, _ := f.Place(); name != "" {
		c.pattern(c.report, at+".where", name, "place", faultPlace,
			`the name of a link, a node:port, a node, a switch or "all"; a link may have " a-to-b" or `+
				`" b-to-a" after it`)
	}
	c.exactlyOne(at, *f, FaultActions...)
	if f.Delay != nil {
		c.atMost(at+".delay.by", uint64(f.Delay.By), uint64(maxFaultDelay), f.Delay.By, "want at most 60s")
	}
	if k := f.Corrupt; k != nil && k.At == 0 && k.Bits != 0 {
		c.report(at+".corrupt.bits", "bits without a place",
			"add at: with the place of the byte, such as 60B")
	}
	if f.Truncate != nil && f.Truncate.To < ethernetLen && c.given(at+".truncate.to", int(f.Truncate.To)) {
		c.report(at+".truncate.to", fmt.Sprintf("a frame of %s", f.Truncate.To),
			"want at least 14B, the length of the Ethernet header")
	}
	if key, pick := f.Action(); key != "" {
		c.pick(at+"."+key, pick)
	}
	c.positive(at+".for", uint64(f.For), "for is 0", "want a duration such as 200ms, or remove the key")
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
// name. A fault without a name has none.
func ParseFault(name, text string) (Fault, error) {
	f, err := parse(name, text, "fault", func(c *checker, f *Fault) { f.check(c, "fault", 0) })
	f.setDefaults()
	return f, err
}

// faultNames gives the faults of a file that have no name one of their own.
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
