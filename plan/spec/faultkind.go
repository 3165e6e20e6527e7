package spec

import (
	"reflect"
	"slices"
	"strings"

	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// FaultKind is a kind of fault. The field of Fault with its key has its settings.
type FaultKind struct {
	Key string
	// Usage is the usage of its flag of railbed fault add, and Words are first words of the flag's value.
	Usage string
	Words []string

	Kernel  bool // Kernel links, bridges and routers have it, too.
	OfNodes bool // It is one of nodes, or of their programs.
	// Packets is the effect on packets for which counts at ports allow.
	Packets PacketEffect
	Hastens bool // More packets can arrive in a time than the port sends.

	// Harm describes the harm to nodes, for people: %[1]s are the nodes and %[2]s the settings. It is "" for
	// faults that harm packets alone. Ends is set if nodes do nothing until the fault ends, and Kills if it
	// may kill programs. Idle describes a fault that hit nothing.
	Harm, Idle  string
	Ends, Kills bool
}

// PacketEffect is an effect on packets. The zero value is none that counts at ports show.
type PacketEffect int

// Effects on packets.
const (
	PacketsLost PacketEffect = iota + 1
	PacketsChanged
	PacketsCopied
)

// The keys of kinds of faults of which other packages have more than FaultKind.
const (
	FaultDuplicates = "duplicate"
	FaultCorrupts   = "corrupt"
	FaultTruncates  = "truncate"
	FaultMarks      = "mark"
	FaultCrashes    = "crash"
)

var picks = []string{"all", "nth: [", "every: ", "share: ", "flows: "}

// FaultKinds are all kinds of faults. A kind is a field of Fault, and an element here. Package softswitch has
// the effects on packets, and package nodefault those on nodes.
var FaultKinds = []*FaultKind{
	{Key: "drop", Usage: "lose `WHICH` packets, such as all or nth: [5, 6]", Words: picks, Kernel: true,
		Packets: PacketsLost},
	{Key: "delay", Usage: "delay packets by `SETTINGS` such as 'by: 5ms'; later packets overtake them",
		Hastens: true},
	{Key: FaultDuplicates, Usage: "let `WHICH` packets arrive twice", Words: picks, Kernel: true,
		Packets: PacketsCopied, Hastens: true},
	{Key: "replay", Usage: "let copies arrive later, by `SETTINGS` such as 'after: 50ms'",
		Packets: PacketsCopied, Hastens: true},
	{Key: FaultCorrupts, Usage: "flip a random bit of `WHICH` packets, or the bits of 'at: 60B, bits: 3'",
		Words: picks, Kernel: true, Packets: PacketsChanged},
	{Key: FaultTruncates, Usage: "cut packets to `SETTINGS` such as 'to: 64B'", Kernel: true,
		Packets: PacketsChanged},
	{Key: FaultMarks, Usage: "set Congestion Experienced in `WHICH` packets of ECN-capable transports",
		Words: picks, Kernel: true},
	{Key: "reorder", Usage: "let later packets overtake packets, with `SETTINGS` such as 'by: 3'",
		Hastens: true},
	{Key: "rewrite", Usage: "change a header by `SETTINGS` such as '{field: ip.ttl, to: 1}'"},
	{Key: "trim", Usage: "cut the payload of `WHICH` packets away, as a switch that trims", Words: picks},
	{Key: "limit", Usage: "let packets pass at a rate, by `SETTINGS` such as 'rate: 10mbit'", Hastens: true},
	{Key: "mirror", Usage: "send copies to a NIC, by `SETTINGS` such as 'to: h5'"},
	{Key: "misroute", Usage: "send packets by another port, by `SETTINGS` such as 'to: leaf1:p3'"},
	{Key: "pause", Usage: "let the receiver pause the port, by `SETTINGS` such as 'priorities: [3]'"},
	{Key: "partition", Kernel: true, Packets: PacketsLost, Harm: "no packets between %[2]s",
		Usage: "lose packets between the sets of nodes in `SETTINGS`, such as '[[h0, h1], [h2]]'"},
	{Key: "reboot", Usage: "take switches down for --for, and empty their tables", Kernel: true,
		Harm: "%[1]s rebooted"},
	{Key: FaultCrashes, Usage: "take the links of nodes down, and kill their programs", OfNodes: true,
		Harm: "%[1]s crashed", Ends: true, Kills: true, Idle: "found no program"},
	{Key: "hang", Usage: "stop the programs of nodes", OfNodes: true, Harm: "%[1]s hung", Ends: true,
		Idle: "found no program"},
	{Key: "slow", Usage: "let the programs of a node share a `NUMBER` of cores, such as 0.1", OfNodes: true,
		Harm: "%[1]s had little processor time"},
	{Key: "memory", Usage: "let the programs of a node have at most `BYTES` of memory, such as 64MiB",
		OfNodes: true, Harm: "%[1]s had %[2]s of memory", Kills: true,
		Idle: "took no memory: the programs never needed more than the limit"},
	{Key: "clock", Usage: "change the clocks of virtual machines by `SETTINGS`, such as 'jump: -10s'",
		Words: []string{"jump: ", "drift: "}, OfNodes: true, Harm: "clock %[2]s in %[1]s"},
	{Key: "disk", Usage: "leave no room in /tmp of nodes: `full`", Words: []string{"full"}, OfNodes: true,
		Harm: "the disk of %[1]s was full"},
	{Key: "queue-pairs", Usage: "break queue pairs, of ranks over roce and of programs on rxe: `lost`",
		Words: []string{"lost"}, OfNodes: true, Harm: "%[1]s lost its queue pairs",
		Idle: "found no queue pair"},
}

// FaultKindOf returns the kind with a key. Other keys have an empty kind.
func FaultKindOf(key string) *FaultKind {
	if i := slices.IndexFunc(FaultKinds, func(k *FaultKind) bool { return k.Key == key }); i >= 0 {
		return FaultKinds[i]
	}
	return new(FaultKind)
}

// FaultKeys returns the keys of all kinds, or of those that kernel links, bridges and routers have.
func FaultKeys(kernel bool) (keys []string) {
	for _, k := range FaultKinds {
		if k.Kernel || !kernel {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// Switch reports whether the kind is true or false, without settings.
func (k *FaultKind) Switch() bool { return k.of(new(Fault)).Kind() == reflect.Bool }

// Value returns the text of the kind's flag as files have it.
func (k *FaultKind) Value(text string) string {
	text = strings.TrimSpace(text)
	switch t := k.of(new(Fault)).Type(); {
	case t == reflect.TypeFor[*FaultSlow]():
		return "{cpu: " + text + "}"
	case t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct, strings.HasPrefix(text, "{"):
		return text
	case text == "all":
		return "{}"
	}
	return "{" + text + "}"
}

// of returns the field of a fault for the kind.
func (k *FaultKind) of(f *Fault) reflect.Value {
	field := strictyaml.FieldOf(reflect.TypeFor[Fault](), k.Key)
	return reflect.ValueOf(f).Elem().FieldByIndex(field.Index)
}

// settings returns the settings of a fault's kind, or nil if it has no kind.
func (f *Fault) settings() any {
	if k := f.Kind(); k.Key != "" {
		return k.of(f).Interface()
	}
	return nil
}

// Settings formats the settings of the fault's kind besides Pick, for people, with a word between sets of
// nodes.
func (f *Fault) Settings(between string) string {
	switch s := f.settings().(type) {
	case interface{ words() string }:
		return s.words()
	case *units.Bytes:
		return "at most " + s.String()
	case string:
		return s
	case [][]string:
		var sets []string
		for _, set := range s {
			sets = append(sets, strings.Join(set, ", "))
		}
		return strings.Join(sets, between)
	}
	return ""
}
