package spec

import (
	"fmt"
	"reflect"
	"slices"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/plan/schedule"
)

// The keys of a check of packets have tags. A text with the tag "names" is a name, and one with "unit" is
// a bound. A check with "limited" can be limited in time. Keys of steps have "names", too.

// Kinds of names, which are the values of the tag "names".
const (
	NamesPort     = "port"
	NamesNode     = "node"
	NamesHost     = "host" // a node, or a switch in which programs run
	NamesSwitch   = "switch"
	NamesLink     = "link" // perhaps with a direction
	NamesWorkload = "workload"
	NamesOnly     = "only" // a workload, which is the only one of the file by default
	NamesSums     = "sums" // a workload that switches add up
	NamesStack    = "stack"
	NamesWord     = "word" // of an enumeration
)

// Name is a name, or a pattern of names, in a check of packets or a step. Text is empty if the key is not
// set.
type Name struct {
	Path, Kind, Text string // Path is relative to the check or step, as in "marks.at"
	// Listed is set for an element of a list.
	Listed bool
	value  reflect.Value
}

// keyValue is a key of a check or a step with its value.
type keyValue struct {
	strictyaml.Field
	path  string
	value reflect.Value
}

// kind returns the kind of a name.
func (k *keyValue) kind() string { return k.Tag.Get("names") }

// keysOfStruct returns all keys of a struct at a path.
func keysOfStruct(path string, v reflect.Value) (all []keyValue) {
	for _, f := range strictyaml.Fields(v.Type()) {
		all = append(all, keyValue{f, strictyaml.FieldPath(path, f.Key), v.FieldByIndex(f.Index)})
	}
	return all
}

// keys returns the keys of the checks that are set, and the keys of their mappings.
func (p *PacketsCheck) keys() (found []keyValue) {
	for _, k := range keysOfStruct("", reflect.ValueOf(p).Elem()) {
		if k.value.IsZero() {
			continue
		}
		found = append(found, k)
		if k.value.Kind() == reflect.Pointer {
			found = append(found, keysOfStruct(k.path, k.value.Elem())...)
		}
	}
	return found
}

// own returns the key of the check that is set. Without one it returns the zero keyValue.
func (p *PacketsCheck) own() keyValue {
	for _, k := range p.keys() {
		if slices.Contains(packetChecks, k.path) {
			return k
		}
	}
	return keyValue{}
}

// Kind returns the key of the check that is set, or "" if none is.
func (p *PacketsCheck) Kind() string { return p.own().path }

// Keys returns the value of that key, which has to be set: a pointer to the keys of the check, or a text.
func (p *PacketsCheck) Keys() any { return p.own().value.Interface() }

// Names returns the names in the check, in the order of its keys.
func (p *PacketsCheck) Names() []Name { return namesIn(p.keys()) }

// Names returns the names in the action of the step, in the order of its keys.
func (s *Step) Names() []Name {
	key, action := s.Action()
	if v := reflect.ValueOf(action); v.Kind() == reflect.Pointer {
		return namesIn(keysOfStruct(key, v.Elem()))
	}
	return nil
}

func namesIn(keys []keyValue) (found []Name) {
	for _, k := range keys {
		switch {
		case k.kind() == "":
		case k.value.Kind() == reflect.Slice:
			for i := range k.value.Len() {
				found = append(found, Name{Path: fmt.Sprintf("%s[%d]", k.path, i), Kind: k.kind(),
					Text: k.value.Index(i).String(), Listed: true, value: k.value.Index(i)})
			}
		default:
			found = append(found, Name{Path: k.path, Kind: k.kind(), Text: k.value.String(), value: k.value})
		}
	}
	return found
}

// Work returns the workload that the check names. Empty means no workload, or the only one.
func (p *PacketsCheck) Work() string {
	for _, n := range p.Names() {
		if slices.Contains([]string{NamesWorkload, NamesOnly, NamesSums}, n.Kind) {
			return n.Text
		}
	}
	return ""
}

// setDefaults fills in the only workload of the file.
func (p *PacketsCheck) setDefaults(workload string) {
	for _, n := range p.Names() {
		if n.Kind == NamesOnly && n.Text == "" {
			n.value.SetString(workload)
		}
	}
}

// formed is a check with conditions that tags cannot express.
type formed interface{ form(c *checker, at string) }

// boundOf maps the units of bounds to their kinds. A text with a unit that is not here is not parsed.
var boundOf = map[string]BoundKind{"packets": CountBound, "flows": CountBound, "pauses": CountBound,
	"requests": CountBound, "share": ShareBound, "duration": DurationBound, "rate": RateBound,
	"size": BytesBound}

// packets checks the form of a check of packets.
func (c *checker) packets(at string, p *PacketsCheck) {
	c.exactlyOne(at, *p, packetChecks...)
	c.packetLimit(at, p)
	for _, n := range p.Names() {
		c.nameForm(at+"."+n.Path, n)
	}
	for _, k := range p.keys() {
		if kind, is := boundOf[k.Tag.Get("unit")]; is && k.value.Kind() == reflect.String {
			c.bound(at+"."+k.path, k.value.String(), kind)
		}
		if check, is := k.value.Interface().(formed); is {
			check.form(c, at+"."+k.path)
		}
	}
}

// nameForm checks the form of a name in a check of packets, and that a workload or a stack exists. The plan
// knows the nodes, switches, ports and links.
func (c *checker) nameForm(path string, n Name) {
	switch n.Kind {
	case NamesPort:
		c.ports(path, n.Text)
	case NamesNode, NamesSwitch:
		if n.Text != "" {
			c.pattern(c.Report, path, n.Text, n.Kind, nodeName, nodeNameForm)
		}
	case NamesLink:
		link, _ := LinkTarget(n.Text)
		c.pattern(c.Report, path, link, "link", linkName, linkNameForm)
	case NamesWorkload:
		c.workloadNamed(path, n.Text)
	case NamesOnly:
		c.workloadOf(strictyaml.ParentPath(path), n.Text)
	case NamesStack:
		c.stackNamed(path, n.Text)
	case NamesSums:
		c.workloadNamed(path, n.Text)
		for _, step := range c.t.Steps {
			if w := step.Workload; w != nil && w.Name == n.Text && w.Algorithm != schedule.InNetwork {
				c.Report(path,
					fmt.Sprintf("no switch adds up the partial sums of %s", printable.Clip(n.Text)),
					"want the name of a workload with algorithm: "+schedule.InNetwork)
			}
		}
	}
}
