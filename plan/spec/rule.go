package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// Rule is a condition over captured packets. Filters select the packets, in the language of Wireshark's
// display filters, as `railbed decode -Y` reads it. Each record of the capture counts: a packet that
// passes several ports is a record at each of them. Exactly one of never, always, count, share, after,
// in-order and sum is set.
type Rule struct {
	// Name is the name of the rule in reports. Default: the kind of the rule, and its filter or field.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Never is a filter that no packet may match.
	Never string `yaml:"never,omitempty" json:"never,omitempty"`
	// Always is a filter that each packet of "where" must match.
	Always string `yaml:"always,omitempty" json:"always,omitempty"`
	// Count is a filter. "is" bounds the number of packets that match it: in all, for each value of
	// "per", or within each "window" of time.
	Count string `yaml:"count,omitempty" json:"count,omitempty"`
	// Share is a filter. "is" bounds the share of the packets of "where" that match it.
	Share string `yaml:"share,omitempty" json:"share,omitempty"`
	// After is a filter. At the same port, each packet that matches it must be followed, "within" a
	// time, by a packet that matches "expect" and has the "same" values.
	After string `yaml:"after,omitempty" json:"after,omitempty"`
	// InOrder is a field whose values must not decrease at a port. Numbers wrap at the width of the
	// field. "per" is flow by default.
	InOrder string `yaml:"in-order,omitempty" json:"in-order,omitempty"`
	// Sum is a field, such as frame.len. "is" bounds the sum of its values over the packets of "where".
	Sum string `yaml:"sum,omitempty" json:"sum,omitempty"`
	// Where is a filter for the packets that the rule is about. Default: all packets.
	Where string `yaml:"where,omitempty" json:"where,omitempty"`
	// At names the ports as taps do: all, nics, switches, a switch, a node, node:port or a glob of
	// these. Default: all.
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// Per judges the packets of each flow, message, port or pair of nodes by itself, or the packets
	// that each rank of the workload sent. A message is one of rd or of RoCEv2. A group of which no packet
	// came to the ports counts with 0. Default: all together.
	Per string `yaml:"per,omitempty" json:"per,omitempty" jsonschema:"enum=flow,enum=message,enum=port,enum=pair,enum=rank"`
	// Is compares a number: "<= 2" for count, "< 5%" for share, "<= 40MB" for sum. For count and sum
	// the number may be a formula with + - * / and parentheses. With a workload, a formula can use the
	// number of ranks (n), the size of the buffers (size) and the number of executions, warm-ups
	// included (iterations). Default none.
	Is string `yaml:"is,omitempty" json:"is,omitempty" unit:"number, share or size"`
	// Tolerance is the share by which a number may differ from the formula after == of "is". Default
	// 0%: exact.
	Tolerance units.Ratio `yaml:"tolerance,omitempty" json:"tolerance,omitzero"`
	// Window is a length of time. Any such time at a port must keep the bound of count. Default: the
	// whole capture.
	Window units.Duration `yaml:"window,omitempty" json:"window,omitempty"`
	// Expect is a filter for the packet that must follow. Default none.
	Expect string `yaml:"expect,omitempty" json:"expect,omitempty"`
	// Within is the longest time until the packet that must follow. Default none.
	Within units.Duration `yaml:"within,omitempty" json:"within,omitempty"`
	// Same lists fields that have equal values in both packets. An element FIELD=FIELD has the field of
	// the first packet and then the field of the packet that follows, as in ip.src=ip.dst. Default
	// none.
	Same []string `yaml:"same,omitempty" json:"same,omitempty"`
	// Workload names the workload whose packets count, and whose numbers the formula has. Default: all
	// packets.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
}

// Kinds of rules, by their keys.
const (
	RuleNever   = "never"
	RuleAlways  = "always"
	RuleCount   = "count"
	RuleShare   = "share"
	RuleAfter   = "after"
	RuleInOrder = "in-order"
	RuleSum     = "sum"
)

// Values of Rule.Per.
const (
	PerFlow    = "flow"
	PerMessage = "message"
	PerPort    = "port"
	PerPair    = "pair"
	PerRank    = "rank"
)

// ruleKinds has the keys that each kind of rule takes besides its own, and name, at and workload. Those
// that it needs come first, up to the number.
var ruleKinds = []struct {
	kind  string
	needs int
	keys  []string
}{
	{RuleNever, 0, []string{"where"}},
	{RuleAlways, 0, []string{"where"}},
	{RuleCount, 1, []string{"is", "where", "per", "window", "tolerance"}},
	{RuleShare, 1, []string{"is", "where", "per"}},
	{RuleAfter, 2, []string{"expect", "within", "same"}},
	{RuleInOrder, 0, []string{"where", "per"}},
	{RuleSum, 1, []string{"is", "where", "per", "tolerance"}},
}

var ruleFields = strictyaml.Keys(strictyaml.Fields(reflect.TypeFor[Rule]()))

// RuleKinds returns the keys of the kinds of rules.
func RuleKinds() (kinds []string) {
	for _, k := range ruleKinds {
		kinds = append(kinds, k.kind)
	}
	return kinds
}

// Kind returns the key of the kind that is set, and its filter or field.
func (r *Rule) Kind() (key, text string) {
	if found := set(*r, RuleKinds()); len(found) > 0 {
		v := reflect.ValueOf(*r)
		for _, f := range strictyaml.Fields(v.Type()) {
			if f.Key == found[0] {
				return f.Key, v.FieldByIndex(f.Index).String()
			}
		}
	}
	return "", ""
}

// Title returns the name of the rule in reports.
func (r *Rule) Title() string {
	if r.Name != "" {
		return r.Name
	}
	kind, text := r.Kind()
	title := kind + " " + printable.Clip(text)
	if r.Per != "" {
		title += " per " + r.Per
	}
	return title
}

// Pair returns the fields of an element of Same: of the first packet and of the packet that follows.
func (r *Rule) Pair(i int) (first, following string) {
	first, following, differ := strings.Cut(r.Same[i], "=")
	if !differ {
		return strings.TrimSpace(first), strings.TrimSpace(first)
	}
	return strings.TrimSpace(first), strings.TrimSpace(following)
}

// form checks the form of a rule. The filters and fields are checked where they are compiled.
func (r *Rule) form(c *checker, at string) {
	c.exactlyOne(at, *r, RuleKinds()...)
	kind, _ := r.Kind()
	i := slices.Index(RuleKinds(), kind)
	if i < 0 || c.Broken(at) {
		return
	}
	takes := append([]string{kind, "name", "at", "workload"}, ruleKinds[i].keys...)
	for _, key := range set(*r, ruleFields) {
		if !slices.Contains(takes, key) && !slices.Contains(RuleKinds(), key) {
			c.ReportKey(at+"."+key, fmt.Sprintf("%s has no meaning for a rule of %s", key, kind),
				"remove it; "+kind+" takes "+strings.Join(takes[1:], ", "))
		}
	}
	given := set(*r, ruleFields)
	for _, key := range ruleKinds[i].keys[:ruleKinds[i].needs] {
		if !slices.Contains(given, key) {
			c.Report(at, fmt.Sprintf("a rule of %s lacks the key %q", kind, key), "add "+ruleExamples[key])
		}
	}
	if r.Per == PerRank && r.Workload == "" {
		c.Report(at+".per", "per: rank without a workload", "add workload: NAME")
	}
	c.ruleBound(at, kind, r)
}

var ruleExamples = map[string]string{"is": `is: "<= 2"`, "expect": "expect: FILTER",
	"within": "within: 1ms"}

// ruleBound checks the comparison of a rule.
func (c *checker) ruleBound(at, kind string, r *Rule) {
	at += ".is"
	switch {
	case r.Is == "":
		return
	case kind == RuleShare:
		c.bound(at, r.Is, ShareBound)
		return
	}
	op, formula, err := ParseFormulaBound(r.Is)
	if err != nil {
		c.Problems = append(c.Problems, c.Source.ProblemAt(c.Source.Within(at, err.At), at, err.What,
			"want "+err.Want))
		return
	}
	for _, name := range formula.Names() {
		if r.Workload == "" {
			c.Report(at, fmt.Sprintf("%s is a number of a workload, and the rule names none", name),
				"add workload: NAME")
			break
		}
	}
	if !r.Tolerance.IsZero() && op != "==" {
		c.Report(at, fmt.Sprintf("tolerance with %s", op), `want ==, as in "== 2*(n-1)/n*size"`)
	}
	if r.Window > 0 {
		limit, err := formula.Value(nil)
		if op == ">" || op == ">=" || op == "==" && (err != nil || limit != 0) {
			c.Report(at, fmt.Sprintf("%q within each window", r.Is), `want <= or <, as in "<= 3"`)
		} else if err == nil && limit > MaxWindowCount {
			c.Report(at, fmt.Sprintf("%q within each window", r.Is),
				fmt.Sprintf("want at most %d", MaxWindowCount))
		}
	}
}

// MaxWindowCount is the largest bound of a count within a window. It bounds the memory of a rule.
const MaxWindowCount = 10_000
