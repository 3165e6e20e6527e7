// Package rules judges captures by rules that a file states in the language of display filters (package
// capture/display).
//
// A rule is about the records of the capture that its "where" selects at its ports. Events of queues are
// no records of packets. Records of faults are only for a rule that reads railbed.fault. A rule keeps a
// bounded state for each value of "per", and names the packets that break it (evidence.Offenders). Each kind
// of rule is a judge:
//
//   - never, always, count and share compare numbers of packets (counts.go), sum adds values of a field;
//   - count with a window keeps the times of the last packets (window.go);
//   - after keeps the packets that wait for the packet that must follow (after.go);
//   - in-order keeps the last value of a field (order.go).
//
// A rule is INCONCLUSIVE if the capture may lack its packets: a port has no recording, packets were lost, or
// a capture filter left packets out. If a filter reads records of switches, the ports have to write them. A
// packet whose record does not show a field makes the rule INCONCLUSIVE, too, if the result depends on the
// field (display.Unseen). So "never" passes only if the capture would have shown the packet. A rule is also
// INCONCLUSIVE if no packet is in "where", or if it had to forget keys.
package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// Numbers returns the numbers of a workload for formulas: n, size and iterations.
type Numbers func(workload string) (map[string]float64, error)

// judge is the part of a rule that depends on its kind.
type judge interface {
	// take looks at a packet of "where".
	take(p *evidence.Packet)
	// conclude returns a line with the numbers that decide, and adds the findings.
	conclude(f *evidence.Finding) string
}

// rule is a check by a rule.
type rule struct {
	judge
	spec    *spec.Rule
	where   *display.Filter
	roles   *evidence.Roles // of the workload, if the rule names one
	need    evidence.Need
	filters []*display.Filter
	keyer   keyer
	faults  bool // a filter reads the names of faults
	// expected finds groups of which no packet came. It is nil if the rule needs none.
	expected *expected

	times     *evidence.Times // nil for all times
	analyses  bool            // a filter reads fields that follow from earlier packets
	capture   *evidence.Capture
	offenders *evidence.Offenders
	taps      evidence.Slots[bool] // by tap index
	// selected counts the packets of "where", and doubts those of which a filter cannot tell.
	selected uint64
	doubts   evidence.Doubts
}

// Check reports the problems of the filters and fields of a rule, with their positions. The path is the
// path of the rule in the source. The names are of the testbed (Names), or nil. Its error is a
// spec.Problems, or nil.
func Check(source *spec.Source, path string, r *spec.Rule, names display.Domain) error {
	_, problems := compile(source, path, r, names)
	return problems.Err()
}

var _ = evidence.Register(evidence.Kind{Key: "rule", Example: `{never: 'railbed.verdict == "drop"'}`,
	Timed:      func(p *spec.PacketsCheck) bool { return p.Rule.Window > 0 || p.Rule.Within > 0 },
	Conditions: conditions.Conditions{Examine: ruleConditions},
	Make: func(p *spec.PacketsCheck, s evidence.Sources) (evidence.Check, error) {
		w, err := s.Selected(p)
		if err != nil {
			return nil, err
		}
		return New(p.Rule, w, s.Numbers)
	}})

func ruleConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	if readsRecordsOf(p.Rule) && !l.Plan.Soft() && !l.Faults {
		l.Never(path, "want fabric: {switch: {kind: soft}}, whose ports write them, or faults, which "+
			"record the packets that they hit",
			"the rule reads records of switches, and the testbed has neither soft switches nor faults")
	}
	if readsSealed(p.Rule) { // other packets may still decide
		l.Encrypted(path, l.Hardly)
	}
	l.Named(path, p)
}

// New makes a check of a rule that Check accepts. The workload is the workload of the rule, or nil.
func New(r *spec.Rule, w *evidence.Workload, numbers Numbers) (evidence.Check, error) {
	parts, problems := compile(nil, "rule", r, nil)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	keyer, err := newKeyer(r)
	if err != nil {
		return nil, err
	}
	k := &rule{spec: r, where: parts.where, keyer: keyer}
	k.filters = parts.filters()
	k.faults = slices.ContainsFunc(k.filters, func(f *display.Filter) bool { return f.Uses("railbed.fault") })
	if w != nil {
		k.roles = evidence.NewRoles(*w)
		k.keyer.roles = k.roles
	}
	bound, err := k.bound(numbers)
	if err != nil {
		return nil, err
	}
	k.judge = k.newJudge(parts, bound)
	return k, nil
}

func (k *rule) newJudge(parts parts, bound *spec.Bound) judge {
	k.need.AnyOrder = true
	switch kind, _ := k.spec.Kind(); {
	case kind == spec.RuleNever:
		return &each{rule: k, filter: parts.filter}
	case kind == spec.RuleAlways:
		return &each{rule: k, filter: parts.filter, want: true}
	case kind == spec.RuleCount && k.spec.Window > 0:
		return newWindows(k, parts.filter, bound)
	case kind == spec.RuleCount:
		return newCounts(k, parts.filter, bound)
	case kind == spec.RuleAfter:
		return newAfter(k, parts)
	case kind == spec.RuleInOrder:
		return newOrder(k, parts.field)
	case kind == spec.RuleSum:
		return newSums(k, parts.field, bound)
	default:
		return newShares(k, parts.filter, bound)
	}
}

// bound returns the comparison of the rule, with the value of its formula.
func (k *rule) bound(numbers Numbers) (*spec.Bound, error) {
	kind, _ := k.spec.Kind()
	if k.spec.Is == "" {
		return nil, nil
	}
	if kind == spec.RuleShare {
		b, err := spec.ParseBound(k.spec.Is, spec.ShareBound)
		return &b, err
	}
	op, formula, wrong := spec.ParseFormulaBound(k.spec.Is)
	if wrong != nil {
		return nil, fmt.Errorf("is: %w", wrong)
	}
	var names map[string]float64
	if len(formula.Names()) > 0 {
		if numbers == nil {
			return nil, errors.New("is: the numbers of the workload are not known here")
		}
		var err error
		if names, err = numbers(k.spec.Workload); err != nil {
			return nil, err
		}
	}
	limit, err := formula.Value(names)
	if err != nil {
		return nil, fmt.Errorf("is: %w", err)
	}
	text := k.spec.Is
	if len(formula.Names()) > 0 {
		text += fmt.Sprintf(" = %s", amount(limit))
	}
	b := spec.NewBound(op, limit, text)
	return &b, nil
}

// parts are the compiled filters and fields of a rule.
type parts struct {
	where, filter, expect *display.Filter
	field                 *display.Field
	same                  [][2]*display.Field
}

// ofRuns are fields that no packet has. They hold what else is known of a run.
var ofRuns = []string{"run.message", "run.rank"}

// filters returns the filters that the rule has.
func (p *parts) filters() (all []*display.Filter) {
	for _, f := range []*display.Filter{p.where, p.filter, p.expect} {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

// compile compiles the filters and fields of a rule.
func compile(source *spec.Source, path string, r *spec.Rule, names display.Domain) (p parts,
	problems spec.Problems) {
	filter := func(key, text string) *display.Filter {
		if text == "" {
			return nil
		}
		f, err := display.Compile(text)
		var wrong *display.Error
		if errors.As(err, &wrong) {
			problems = append(problems, problemWithin(source, path+"."+key, wrong.Column-1, wrong.What,
				wrong.Want))
			return nil
		}
		for _, wrong := range f.Impossible(names) {
			problems = append(problems, problemWithin(source, path+"."+key, wrong.Column-1, wrong.What,
				wrong.Want))
		}
		for _, name := range ofRuns {
			if f.Uses(name) {
				problems = append(problems, problemWithin(source, path+"."+key, strings.Index(text, name),
					"no field "+name+" in rules", "a field of the packet, or the keys workload and per"))
			}
		}
		return f
	}
	field := func(path, name string, at int, fits func(*display.Field) bool, want string) *display.Field {
		f := display.FieldNamed(name)
		if slices.Contains(ofRuns, name) {
			f = nil
		}
		var wrong *display.Error
		if f != nil {
			if !fits(f) {
				problems = append(problems, problemWithin(source, path, at,
					fmt.Sprintf("%s is %s", name, f.Kind), want))
			}
		} else if _, err := display.Compile(name); errors.As(err, &wrong) {
			problems = append(problems, problemWithin(source, path, at+wrong.Column-1, wrong.What,
				wrong.Want))
		} else {
			problems = append(problems, problemWithin(source, path, at, fmt.Sprintf("%q is not a field",
				name),
				"a field such as ip.src"))
		}
		return f
	}
	p.where, p.expect = filter("where", r.Where), filter("expect", r.Expect)
	switch kind, text := r.Kind(); kind {
	case spec.RuleInOrder, spec.RuleSum:
		p.field = field(path+"."+kind, text, 0, (*display.Field).IsCount, "a number such as frame.len")
	default:
		p.filter = filter(kind, text)
	}
	for i := range r.Same {
		first, following := r.Pair(i)
		at := fmt.Sprintf("%s.same[%d]", path, i)
		a := field(at, first, 0, func(*display.Field) bool { return true }, "")
		b := field(at, following, strings.LastIndex(r.Same[i], following), func(b *display.Field) bool {
			return a == nil || a.Comparable(b)
		}, "two fields of the same kind")
		p.same = append(p.same, [2]*display.Field{a, b})
	}
	return p, problems
}

func problemWithin(source *spec.Source, path string, offset int, what, want string) spec.Problem {
	at := source.Within(path, offset)
	if want != "" {
		want = "want " + want
	}
	return spec.Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, What: what, Want: want}
}

// Begin implements evidence.Check.
func (k *rule) Begin(c *evidence.Capture) {
	k.capture, k.offenders = c, c.NewOffenders()
	if k.analyses = slices.ContainsFunc(k.filters, (*display.Filter).Analyses); k.analyses {
		c.Analyse()
	}
	k.keyer.begin(c)
	if k.expected != nil {
		k.expected.keyer.begin(c)
	}
}

// at reports whether the rule is about a tap.
func (k *rule) at(t *evidence.Tap) bool {
	return k.taps.Made(t.Index, func(i int) bool { return k.selects(k.capture.Taps[i]) })
}

// selects reports whether the rule is about a tap. Without "at" it is about every tap, also about taps
// that have no name of a port.
func (k *rule) selects(t *evidence.Tap) bool { return k.spec.At == "" || t.Selected(k.spec.At) }

// Limit implements evidence.Limiter. A packet that must follow another may come after the time.
func (k *rule) Limit(t *evidence.Times) { k.times = t }

// Packet implements evidence.Check.
func (k *rule) Packet(p *evidence.Packet) {
	in := k.times.Has(p.Time)
	if _, follows := k.judge.(*after); !in && !follows {
		if k.analyses {
			p.Display()
		}
		return
	}
	if k.expected != nil {
		k.expected.packet(p)
	}
	if !k.at(p.Tap) || k.roles != nil && !k.roles.Of(p).Relevant {
		return
	}
	if k.where != nil && !k.matches(k.where, p) {
		return
	}
	if in {
		k.selected++
	}
	k.take(p)
}

// Event implements evidence.Watcher.
func (k *rule) Event(p *evidence.Packet) {
	if p.Fault != "" && k.faults {
		k.Packet(p)
	}
}

// matches reports whether a packet surely matches a filter.
func (k *rule) matches(f *display.Filter, p *evidence.Packet) bool {
	match, unseen := f.Judge(p.Display())
	return !k.doubts.Add(p, unseen) && match
}

// Result implements evidence.Check.
func (k *rule) Result() evidence.Result {
	r := evidence.Result{Name: "rule " + k.spec.Title(), Offenders: k.offenders,
		Measured: map[string]float64{"packets": float64(k.selected), "offenders": 0}}
	var f evidence.Finding
	if k.expected != nil && k.selected > 0 {
		k.expected.finish()
	}
	r.Summary = k.conclude(&f)
	if k.selected == 0 {
		f.Unclear = append(f.Unclear, k.nothing())
	}
	f.Unseen = slices.Concat(k.doubts.Lines(), k.unseen())
	f.Unclear = append(f.Unclear, k.impossible()...)
	if k.selected > 0 && k.keyer.given == 0 && k.spec.Per != "" {
		f.Unclear = append(f.Unclear, plural.Text("none of %d packets belongs to a %s", k.selected,
			k.spec.Per))
	}
	if k.expected != nil {
		f.Unclear = slices.Concat(f.Unclear, k.expected.unknown(), k.expected.undated())
	}
	r.Measured["offenders"] = float64(k.offenders.Count)
	r.Details = k.offenders.Lines()
	k.need.Ports = k.ports()
	switch {
	case !readsRecords(k.filters):
	case slices.ContainsFunc(k.filters, readsOthers):
		k.need.Records = evidence.RecordsDrops | evidence.RecordsQueues
	default:
		k.need.Records = evidence.RecordsFaults
	}
	k.need.Earlier = k.analyses
	k.need.Around = k.real(time.Duration(k.spec.Within))
	f.Shorten()
	k.capture.Conclude(&r, k.need, f)
	return r
}

// unseen returns reasons why packets that the rule is about were not judged.
func (k *rule) unseen() (lines []string) {
	for _, tap := range k.capture.Taps {
		if !tap.Ethernet() && tap.Packets > 0 && k.at(tap) {
			lines = append(lines, plural.Text("tap %s has another link type than Ethernet, and %d packets",
				tap.Name, tap.Packets))
		}
	}
	if k.keyer.hidden > 0 {
		lines = append(lines, plural.Text("%d packets are encrypted, cut off or of a message that began "+
			"before the capture, and their message is not known", k.keyer.hidden))
	}
	if k.keyer.forgotten > 0 {
		lines = append(lines, plural.Text(
			"%d packets have keys beyond the first %d, and were not judged", k.keyer.forgotten, keysMost))
	}
	return lines
}

// nothing is the summary of a rule for which the capture has no packet.
func (k *rule) nothing() string {
	text := "no packet"
	if k.spec.Workload != "" {
		text += " of workload " + k.spec.Workload
	}
	if k.where != nil {
		text += fmt.Sprintf(" matches %q", k.where)
	}
	if k.spec.At != "" {
		text += " at " + k.spec.At
	}
	return text
}

// ports are the ports that the rule is about.
func (k *rule) ports() []string {
	if k.capture.Plan == nil && k.spec.At == "" {
		return k.capture.Recorded()
	}
	return k.capture.Ports(k.selects)
}

// readsRecordsOf reports whether a filter of a rule reads records of switches.
func readsRecordsOf(r *spec.Rule) bool {
	parts, _ := compile(nil, "rule", r, nil)
	return readsRecords(parts.filters())
}

// readsOthers reports whether a filter reads records other than those that ports of the kernel write of
// faults.
func readsOthers(f *display.Filter) bool {
	return readsRecords([]*display.Filter{f}) && (!f.Implies("railbed.fault") ||
		f.Uses("railbed.depth", "railbed.late"))
}

func readsRecords(filters []*display.Filter) bool {
	for _, f := range filters {
		for _, field := range f.Fields() {
			switch field.Name {
			case "railbed", "railbed.verdict", "railbed.reason", "railbed.fault", "railbed.depth",
				"railbed.late", "frame.interface_queue":
				return true
			}
		}
	}
	return false
}
