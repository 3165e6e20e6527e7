package spec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// Fault is a packet fault, a partition of nodes, or a fault of nodes or switches. Exactly one of its actions
// is set.
//
// At soft switches, faults of packets act after a packet has left its queue at a port, so that a dropped
// packet takes its transmission time, too. The link's own loss and other settings apply after the faults. At
// kernel links, bridges and routers, faults need root, know the actions drop, duplicate, corrupt, truncate,
// mark and partition, and act before the queue. Faults at one port act in the order in which they began. A
// later fault gets the packets as the earlier faults changed them.
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
	// For a fault of nodes it is the name of a node, or a glob of names, and for reboot that of a
	// switch. Default none: a partition has no place, and with rank it may be missing.
	Where string `yaml:"where,omitempty" json:"where,omitempty"`
	// Match is a display filter for the packets, as for `railbed decode -Y`. It can use only fields of the
	// packet's own bytes. Default: all packets.
	Match string `yaml:"match,omitempty" json:"match,omitempty"`
	// Drop loses the packet. Default none.
	Drop *Pick `yaml:"drop,omitempty" json:"drop,omitempty"`
	// Delay makes the packet arrive later. Later packets overtake it. Default none.
	Delay *FaultDelay `yaml:"delay,omitempty" json:"delay,omitempty"`
	// Duplicate makes the packet arrive twice. Default none.
	Duplicate *Pick `yaml:"duplicate,omitempty" json:"duplicate,omitempty"`
	// Replay makes a copy of the packet arrive later, when it is stale. The packet itself arrives as usual.
	// Default none.
	Replay *FaultReplay `yaml:"replay,omitempty" json:"replay,omitempty"`
	// Corrupt flips bits. Default none.
	Corrupt *FaultCorrupt `yaml:"corrupt,omitempty" json:"corrupt,omitempty"`
	// Truncate cuts the end of the frame off, and changes no length field. Default none.
	Truncate *FaultTruncate `yaml:"truncate,omitempty" json:"truncate,omitempty"`
	// Mark sets Congestion Experienced in packets of ECN-capable transports. It hits no other packets.
	// Default none.
	Mark *Pick `yaml:"mark,omitempty" json:"mark,omitempty"`
	// Reorder lets later packets overtake the packet. Default none.
	Reorder *FaultReorder `yaml:"reorder,omitempty" json:"reorder,omitempty"`
	// Rewrite changes a field of a header. Default none.
	Rewrite *FaultRewrite `yaml:"rewrite,omitempty" json:"rewrite,omitempty"`
	// Trim cuts the payload away as a switch with packet trimming does. It hits only packets that such
	// a switch would trim. Default none.
	Trim *FaultTrim `yaml:"trim,omitempty" json:"trim,omitempty"`
	// Limit lets the packets pass at a lower rate, from a queue behind the port. Default none.
	Limit *FaultLimit `yaml:"limit,omitempty" json:"limit,omitempty"`
	// Mirror sends a copy of the packet to a node's NIC. Default none.
	Mirror *FaultMirror `yaml:"mirror,omitempty" json:"mirror,omitempty"`
	// Misroute makes a switch send the packet by another of its ports. Default none.
	Misroute *FaultMisroute `yaml:"misroute,omitempty" json:"misroute,omitempty"`
	// Pause makes the receiver of the packet answer with a PFC pause frame. Default none.
	Pause *FaultPause `yaml:"pause,omitempty" json:"pause,omitempty"`
	// Reboot takes the links of switches down, and empties their buffers and learned tables. Nodes lose
	// their carrier there. After for, the links come up again. It needs for. Default false.
	Reboot bool `yaml:"reboot,omitempty" json:"reboot,omitempty"`
	// Partition lists sets of nodes, by names or globs. IP packets between nodes of different sets are
	// lost. Default none.
	Partition [][]string `yaml:"partition,omitempty" json:"partition,omitempty"`
	// Program selects the programs that crash or hang, by their name or a glob: the base name of the
	// command's first word. The links of the node then stay up. Default: all programs of the node.
	Program string `yaml:"program,omitempty" json:"program,omitempty"`
	// Rank selects the processes of a rank, of a workload, or of a stack whose processes have their rank in
	// the environment. Default: all.
	Rank *int `yaml:"rank,omitempty" json:"rank,omitempty" jsonschema:"minimum=0" unit:"none"`
	// Crash takes the links of nodes down and kills the programs of the nodes. After for, the links
	// come up again. The programs stay dead. With program or rank, only these programs are killed.
	// Default false.
	Crash bool `yaml:"crash,omitempty" json:"crash,omitempty"`
	// Hang stops all programs of nodes with SIGSTOP. After for, the programs continue. Default false.
	Hang bool `yaml:"hang,omitempty" json:"hang,omitempty"`
	// Slow limits the processor time of nodes. It needs root, except for containers of engines. Default
	// none.
	Slow *FaultSlow `yaml:"slow,omitempty" json:"slow,omitempty"`
	// Memory is the most memory that the programs of each node may use together, with the files in the
	// node's /tmp. If they use more, the kernel takes back what it can, and then kills programs. It
	// needs root, except for containers of engines and virtual machines. Default none.
	Memory *units.Bytes `yaml:"memory,omitempty" json:"memory,omitempty"`
	// Clock changes the wall clock of virtual machines. Other nodes have the host's. Default none.
	Clock *FaultClock `yaml:"clock,omitempty" json:"clock,omitempty"`
	// Disk is full. It leaves no room in the nodes' /tmp, where stacks have their data. Default none.
	Disk string `yaml:"disk,omitempty" json:"disk,omitempty" jsonschema:"enum=full"`
	// QueuePairs is lost. It breaks the queue pairs of the nodes' ranks over roce, and of the nodes'
	// programs on rxe devices, as a reset of the NICs does. Default none.
	QueuePairs string `yaml:"queue-pairs,omitempty" json:"queue_pairs,omitempty" jsonschema:"enum=lost"`
	// For is how long the fault lasts, in the testbed's time. Default: until the end of the run.
	For units.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// MaxFaultName is the length of the longest name of a fault.
const MaxFaultName = 24

// Kind returns the fault's kind. A fault of a file that was decoded without problems has exactly one. A fault
// without any has a kind without a key.
func (f *Fault) Kind() *FaultKind {
	for _, k := range FaultKinds {
		if !k.of(f).IsZero() {
			return k
		}
	}
	return new(FaultKind)
}

// Action returns the key of the fault's kind, and the packets that it picks.
func (f *Fault) Action() (key string, pick Pick) {
	if action, ofPackets := f.settings().(faultAction); ofPackets {
		pick = action.picked()
	}
	return f.Kind().Key, pick
}

// whole reports whether the fault is one of whole nodes or switches.
func (f *Fault) whole() bool { return f.OfNodes() || f.Reboot }

// String describes what the fault does: "drop nth 5, 6 of tcp".
func (f *Fault) String() string {
	key, pick := f.Action()
	words := []string{key, f.Settings(" | "), pick.selection(), f.Program}
	if f.Rank != nil {
		words = append(words, fmt.Sprintf("rank %d", *f.Rank))
	}
	if f.Match != "" {
		words = append(words, "of "+f.Match)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// Place splits Where into a name or glob and a direction: "a-to-b", "b-to-a", or empty.
func (f *Fault) Place() (name, direction string) { return splitWhere(f.Where) }

// Traits implements Action.
func (f *Fault) Traits() Traits { return Traits{} }

func (f *Fault) setDefaults() {
	if action, has := f.settings().(interface{ setDefaults() }); has {
		action.setDefaults()
	}
}

// faultPlace matches a name of a link, port, node or switch.
var faultPlace = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9:._-]*$`)

func (f *Fault) check(c *checker, at string, index int) {
	for _, step := range c.t.Steps[:index] {
		if f.Name != "" && step.Fault != nil && step.Fault.Name == f.Name {
			c.Report(at+".name", fmt.Sprintf("another fault is named %q", printable.Clip(f.Name)),
				"give each fault a name of its own")
		}
	}
	if f.Name != "" && !nodeName.MatchString(f.Name) {
		c.Report(at+".name", fmt.Sprintf("invalid name %q", printable.Clip(f.Name)), "want "+nodeNameForm)
	}
	f.checkPlace(c, at)
	c.exactlyOne(at, *f, FaultKeys(false)...)
	key, pick := f.Action()
	if s, has := f.settings().(interface{ check(*checker, string) }); has {
		s.check(c, at+"."+key)
		c.pick(at+"."+key, pick)
	}
	switch {
	case f.Reboot && f.For == 0 && !c.Known(at+".for"):
		c.Report(at, "a reboot without for", "add for: with the time that the switch is down, such as 200ms")
	case f.QueuePairs != "" && f.For > 0:
		c.Report(at+".for", "queue pairs that are lost do not come back", "remove for:")
	case f.Memory != nil && *f.Memory < minFaultMemory:
		c.Report(at+".memory", fmt.Sprintf("memory is %s", f.Memory), "want at least 1MiB")
	}
	c.positive(at+".for", uint64(f.For), "for is 0", "want a duration such as 200ms, or remove the key")
}

// checkPlace checks the place of a fault and its match.
func (f *Fault) checkPlace(c *checker, at string) {
	name, direction := f.Place()
	switch {
	case f.Partition != nil && f.Where != "":
		c.Report(at+".where", "a partition with a place", "remove where: the sets name the nodes")
	case f.Partition != nil:
		if len(f.Partition) < 2 {
			c.Report(at+".partition", fmt.Sprintf("%d set of nodes", len(f.Partition)),
				"want at least two, as in [[h0, h1], [h2, h3]]")
		}
		for i, set := range f.Partition {
			for j, node := range set {
				c.pattern(c.Report, fmt.Sprintf("%s.partition[%d][%d]", at, i, j), node, "node", nodeName,
					nodeNameForm)
			}
		}
	case f.Where == "" && f.Rank != nil && f.OfNodes():
	case f.Where == "" && !c.Known(at+".where"):
		c.Report(at, at+` lacks the key "where"`, "add where: with a link, a port, a node or a switch")
	case f.whole() && direction != "":
		c.Report(at+".where", fmt.Sprintf("%q has a direction", printable.Clip(f.Where)),
			"want the name of a node, or of a switch for reboot")
	case f.whole():
		c.pattern(c.Report, at+".where", name, "node", nodeName, nodeNameForm)
	case name != "":
		c.pattern(c.Report, at+".where", name, "place", faultPlace,
			"the name of a link, "+PortForm+`; a link may have " a-to-b" or " b-to-a" after it`)
	}
	for _, key := range []struct {
		name  string
		given bool
	}{{"program", f.Program != ""}, {"rank", f.Rank != nil}} {
		if key.given && !f.Crash && !f.Hang {
			c.Report(at+"."+key.name, "only crash and hang are faults of programs", "remove "+key.name+":")
		}
	}
	if _, err := path.Match(f.Program, ""); err != nil {
		c.Report(at+".program", fmt.Sprintf("invalid pattern %q", printable.Clip(f.Program)),
			`want a name, or a pattern such as "redis-*"`)
	}
	if f.whole() && f.Match != "" {
		c.Report(at+".match", "a fault of a whole node or switch with a match", "remove match:")
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
	for i, name := range namesOfFaults(t.Steps) {
		if f := t.Steps[i].Fault; f != nil {
			f.Name = name
		}
	}
}

// namesOfFaults returns the names of the faults of steps, by the steps' indices. Faults without a name get
// the names fault-1, fault-2 and so on.
func namesOfFaults(steps []Step) []string {
	var taken []string
	for _, step := range steps {
		if step.Fault != nil {
			taken = append(taken, step.Fault.Name)
		}
	}
	number, names := 0, make([]string, len(steps))
	for i, step := range steps {
		if step.Fault == nil {
			continue
		}
		names[i] = step.Fault.Name
		for number++; names[i] == ""; number++ {
			if name := fmt.Sprintf("fault-%d", number); !slices.Contains(taken, name) {
				names[i] = name
				break
			}
		}
	}
	return names
}
