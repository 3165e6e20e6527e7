package spec

import (
	"cmp"
	"fmt"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// faultAction is an action on packets.
type faultAction interface {
	picked() Pick
	// words are the settings besides Pick, for people, or "".
	words() string
	// check checks the settings besides Pick.
	check(c *checker, at string)
}

// Pick selects some of the packets that match. At most one of nth, every, share and flows is set. Without
// them, all packets that match are hit. Each port counts the packets that match, from 1.
type Pick struct {
	// Nth lists the packets to hit, in ascending order. Default: all packets that match.
	Nth []int `yaml:"nth,omitempty" json:"nth,omitempty" unit:"packets"`
	// Every hits each n-th packet: n, 2n, 3n and so on. Default: all packets that match.
	Every int `yaml:"every,omitempty" json:"every,omitempty" jsonschema:"minimum=1" unit:"packets"`
	// Share is the probability with which a packet is hit. The draws depend on the file's seed.
	// Default: all packets that match.
	Share units.Ratio `yaml:"share,omitempty" json:"share,omitzero"`
	// Flows is the probability with which a flow is hit, with all its packets and at all ports of the
	// fault. The draws depend on the file's seed. Default: all flows that match.
	Flows units.Ratio `yaml:"flows,omitempty" json:"flows,omitzero"`
	// Per is packet or message. Default packet.
	//
	// With message, nth, every and share select messages of reliable datagrams and of connected queue pairs.
	// A message counts from its first packet that matches. The fault hits this packet and all later packets
	// of the message, except those that are sent again. It needs soft switches.
	Per string `yaml:"per,omitempty" json:"per,omitempty" jsonschema:"enum=packet,enum=message"`
}

// PickMessages is the value of Pick.Per for messages.
const PickMessages = "message"

// FaultDelay delays packets.
type FaultDelay struct {
	// By is the additional delay.
	By   units.Duration `yaml:"by" json:"by"`
	Pick `yaml:",inline"`
}

// FaultReplay lets copies of packets arrive later.
type FaultReplay struct {
	// After is the time from the arrival of the packet to the arrival of its copy.
	After units.Duration `yaml:"after" json:"after"`
	Pick  `yaml:",inline"`
}

// FaultCorrupt flips bits of packets.
type FaultCorrupt struct {
	// At is the offset of the byte that changes, from the first byte of the Ethernet header. Default: one bit
	// after the Ethernet header flips, drawn with the file's seed.
	At units.Bytes `yaml:"at,omitempty" json:"at,omitempty"`
	// Bits is a mask of the bits that flip in this byte, from 1 to 255. Default 1.
	Bits int `yaml:"bits,omitempty" json:"bits,omitempty" jsonschema:"minimum=1,maximum=255" unit:"none"`
	Pick `yaml:",inline"`
}

// FaultTruncate truncates packets.
type FaultTruncate struct {
	// To is the length of the truncated frame, with the Ethernet header.
	To   units.Bytes `yaml:"to" json:"to"`
	Pick `yaml:",inline"`
}

// FaultReorder lets later packets overtake packets.
type FaultReorder struct {
	// By is the number of packets that leave the port before this one arrives.
	By int `yaml:"by" json:"by" jsonschema:"minimum=1,maximum=1000" unit:"packets"`
	// Within is the time after which the packet arrives at the latest. Default 10ms.
	Within units.Duration `yaml:"within,omitempty" json:"within,omitempty"`
	Pick   `yaml:",inline"`
}

// FaultRewrite changes a field of packets.
type FaultRewrite struct {
	// Field is the name of a field at a fixed place of a header, as in display filters, such as ip.ttl or
	// tcp.window_size_value. If several headers have the field, the outermost one changes.
	Field string `yaml:"field" json:"field"`
	// To is the new value, as in display filters: a number, an address, or true or false.
	To string `yaml:"to" json:"to" scalar:"any"`
	// Checksums is update or keep. Default update.
	//
	// Update changes the checksums of IPv4, TCP, UDP and ICMP and the ICRC of RoCEv2 with the value. One that
	// was wrong before stays wrong. Keep leaves them as they are, so that they are wrong.
	Checksums string `yaml:"checksums,omitempty" json:"checksums,omitempty" jsonschema:"enum=update,enum=keep"`
	Pick      `yaml:",inline"`
}

// What happens to checksums.
const (
	UpdateChecksums = "update"
	KeepChecksums   = "keep"
)

// FaultTrim trims packets.
type FaultTrim struct {
	// Size is the length of a trimmed frame, as in a switch's trim. Headers that the transport needs stay.
	// Default 128B.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// DSCP is the DSCP of trimmed packets. Packets that have it are not trimmed. Default 59.
	DSCP *int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" unit:"none"`
	Pick `yaml:",inline"`
}

// FaultLimit is a rate limit with a queue of its own behind the port.
type FaultLimit struct {
	// Rate is the rate of all packets together that the fault hits at a port, counted with the Ethernet
	// header.
	Rate units.Rate `yaml:"rate" json:"rate"`
	// Queue is the number of bytes that may wait. Packets for which there is no room are lost. Default 256KB.
	Queue units.Bytes `yaml:"queue,omitempty" json:"queue,omitempty"`
	Pick  `yaml:",inline"`
}

// FaultMirror copies packets.
type FaultMirror struct {
	// To is the NIC that gets the copy, as NODE or NODE:NIC. A node stands for its first NIC.
	To   string `yaml:"to" json:"to"`
	Pick `yaml:",inline"`
}

// FaultMisroute sends packets by the wrong port.
type FaultMisroute struct {
	// To is the port that sends the packets instead, as SWITCH:PORT, or a link of the same switch.
	To   string `yaml:"to" json:"to"`
	Pick `yaml:",inline"`
}

// FaultPause makes the receiver of packets send PFC pause frames.
type FaultPause struct {
	// Priorities lists the priorities that are paused.
	Priorities []int `yaml:"priorities" json:"priorities" jsonschema:"minItems=1" unit:"none"`
	// Quanta is the pause time that each frame requests, in units of 512 bit times. Default 65535.
	Quanta int `yaml:"quanta,omitempty" json:"quanta,omitempty" jsonschema:"minimum=1,maximum=65535" unit:"512 bit times"`
	Pick   `yaml:",inline"`
}

// Limits and defaults of actions.
const (
	// ethernetLen is the length of an Ethernet header, which a frame keeps.
	ethernetLen = 14
	// maxFaultDelay bounds a delay, and so the number of packets under way.
	maxFaultDelay = units.Duration(60e9)
	// maxFrame bounds places in frames, in bytes.
	maxFrame = 65535
	// maxNth bounds the length of the list nth.
	maxNth = 10_000

	defaultWithin     = units.Duration(10e6)
	defaultLimitQueue = units.Bytes(256_000)
)

func (p Pick) picked() Pick { return p }

func (Pick) words() string { return "" }

// selection are the packets that are picked, for people.
func (p Pick) selection() string {
	per := ""
	if p.Per == PickMessages {
		per = " messages"
	}
	return p.selected() + per
}

func (p Pick) selected() string {
	switch {
	case len(p.Nth) > 0:
		return "nth " + strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Nth), "[]"), " ", ", ")
	case p.Every > 0:
		return fmt.Sprintf("every %d", p.Every)
	case !p.Share.IsZero():
		return "share " + p.Share.String()
	case !p.Flows.IsZero():
		return "flows " + p.Flows.String()
	}
	return ""
}

func (p Pick) check(*checker, string) {}

func (d *FaultDelay) words() string { return "by " + d.By.String() }

func (d *FaultDelay) check(c *checker, at string) {
	c.atMost(at+".by", uint64(d.By), uint64(maxFaultDelay), d.By, "want at most 60s")
}

func (r *FaultReplay) words() string { return "after " + r.After.String() }

func (r *FaultReplay) check(c *checker, at string) {
	c.atMost(at+".after", uint64(r.After), uint64(maxFaultDelay), r.After, "want at most 60s")
}

func (k *FaultCorrupt) words() string {
	if k.At == 0 {
		return ""
	}
	return fmt.Sprintf("at %s bits %d", k.At, max(k.Bits, 1))
}

func (k *FaultCorrupt) setDefaults() {
	if k.At > 0 {
		k.Bits = cmp.Or(k.Bits, 1)
	}
}

func (k *FaultCorrupt) check(c *checker, at string) {
	if k.At == 0 && k.Bits != 0 {
		c.Report(at+".bits", "bits without a place", "add at: with the place of the byte, such as 60B")
	}
	c.atMost(at+".at", uint64(k.At), maxFrame, k.At, "want at most 65535B")
}

func (t *FaultTruncate) words() string { return "to " + t.To.String() }

func (t *FaultTruncate) check(c *checker, at string) { c.frame(at+".to", t.To) }

// frame checks the length of a frame.
func (c *checker) frame(at string, length units.Bytes) {
	c.atMost(at, uint64(length), maxFrame, length, "want at most 65535B")
	if length < ethernetLen && length > 0 {
		c.Report(at, fmt.Sprintf("a frame of %s", length),
			"want at least 14B, the length of the Ethernet header")
	}
}

func (r *FaultReorder) words() string { return fmt.Sprintf("by %d", r.By) }

func (r *FaultReorder) setDefaults() { r.Within = cmp.Or(r.Within, defaultWithin) }

func (r *FaultReorder) check(c *checker, at string) {
	c.atMost(at+".within", uint64(r.Within), uint64(maxFaultDelay), r.Within, "want at most 60s")
}

func (r *FaultRewrite) words() string {
	if r.Checksums == KeepChecksums {
		return r.Field + " to " + r.To + ", checksums kept"
	}
	return r.Field + " to " + r.To
}

func (r *FaultRewrite) setDefaults() { r.Checksums = cmp.Or(r.Checksums, UpdateChecksums) }

// check leaves the field to the runner, which has the list of fields.
func (r *FaultRewrite) check(*checker, string) {}

func (t *FaultTrim) words() string { return "to " + t.Size.String() }

func (t *FaultTrim) setDefaults() { t.Size = cmp.Or(t.Size, defaultTrimSize) }

func (t *FaultTrim) check(c *checker, at string) { c.frame(at+".size", t.Size) }

func (l *FaultLimit) words() string { return "to " + l.Rate.String() }

func (l *FaultLimit) setDefaults() { l.Queue = cmp.Or(l.Queue, defaultLimitQueue) }

func (*FaultLimit) check(*checker, string) {}

func (m *FaultMirror) words() string { return "to " + m.To }

func (m *FaultMirror) check(c *checker, at string) {
	if m.To != "" && !faultPlace.MatchString(m.To) {
		c.Report(at+".to", fmt.Sprintf("invalid name %q", printable.Clip(m.To)), "want NODE or NODE:NIC")
	}
}

func (m *FaultMisroute) words() string { return "to " + m.To }

func (m *FaultMisroute) check(c *checker, at string) {
	if m.To != "" && !faultPlace.MatchString(m.To) {
		c.Report(at+".to", fmt.Sprintf("invalid name %q", printable.Clip(m.To)), "want SWITCH:PORT or a link")
	}
}

func (p *FaultPause) words() string {
	return "priorities " + strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Priorities), "[]"), " ", ", ")
}

func (p *FaultPause) setDefaults() { p.Quanta = cmp.Or(p.Quanta, maxQuanta) }

func (p *FaultPause) check(c *checker, at string) {
	if len(p.Priorities) > 0 {
		c.priorities(at+".priorities", p.Priorities)
	}
}

// pick checks which packets a fault hits.
func (c *checker) pick(at string, p Pick) {
	if given := set(p, []string{"nth", "every", "share", "flows"}); len(given) > 1 {
		c.ReportKey(strictyaml.FieldPath(at, given[1]),
			fmt.Sprintf("%s has %s", at, strings.Join(given, " and ")),
			"want at most one of nth, every, share and flows")
	}
	if p.Per == PickMessages && len(p.Nth) == 0 && p.Every == 0 && p.Share.IsZero() {
		c.Report(at+".per", "per: message without a number of messages",
			"add nth, every or share, or remove per:")
	}
	if len(p.Nth) > maxNth {
		c.Report(at+".nth", fmt.Sprintf("%d packets", len(p.Nth)), fmt.Sprintf("want at most %d", maxNth))
	}
	for i, n := range p.Nth {
		switch {
		case n < 1:
			c.Report(fmt.Sprintf("%s.nth[%d]", at, i), fmt.Sprintf("packet %d", n), "count packets from 1")
			return
		case i > 0 && n <= p.Nth[i-1]:
			c.Report(fmt.Sprintf("%s.nth[%d]", at, i),
				fmt.Sprintf("packet %d after packet %d", n, p.Nth[i-1]),
				"list the packets in ascending order, each once")
			return
		}
	}
	for key, share := range map[string]units.Ratio{"share": p.Share, "flows": p.Flows} {
		if share.Num > share.Den {
			c.Report(at+"."+key, "a share above 100%", "want at most 100%")
		}
	}
}
