package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/element"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// set returns the choices of a struct that are set.
func set(v any, choices []string) []string {
	var found []string
	value := reflect.ValueOf(v)
	for _, f := range strictyaml.Fields(value.Type()) {
		if slices.Contains(choices, f.Key) && !value.FieldByIndex(f.Index).IsZero() {
			found = append(found, f.Key)
		}
	}
	return found
}

// exactlyOne checks that a struct has exactly one of its choices set.
func (c *checker) exactlyOne(path string, v any, choices ...string) {
	found := set(v, choices)
	for _, choice := range choices {
		if c.Known(strictyaml.FieldPath(path, choice)) {
			return
		}
	}
	if c.Broken(path) {
		return // the unknown key was probably meant as the choice
	}
	switch len(found) {
	case 0:
		c.Report(path, path+" does nothing", "want exactly one of "+strings.Join(choices, ", "))
	case 1:
	default:
		slices.SortStableFunc(found, func(a, b string) int {
			p := c.Source.KeyPos(strictyaml.FieldPath(path, a))
			q := c.Source.KeyPos(strictyaml.FieldPath(path, b))
			return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
		})
		c.ReportKey(strictyaml.FieldPath(path, found[1]),
			fmt.Sprintf("%s has %s", path, strings.Join(found, " and ")),
			"want exactly one of them; make the others entries of their own")
	}
}

func (c *checker) steps() {
	var last units.Duration
	for i := range c.t.Steps {
		step := &c.t.Steps[i]
		at := fmt.Sprintf("steps[%d]", i)
		c.exactlyOne(at, *step, stepKeys()...)
		if step.At != nil {
			if *step.At < last {
				c.Report(at+".at", fmt.Sprintf("%s.at is %s, before the step above at %s", at, *step.At,
					last), "write steps in the order of their times")
			}
			last = max(last, *step.At)
		}
		c.timeline(at, step, i)
		for _, row := range actions {
			if a := row.of(step); a != nil {
				a.check(c, at+"."+row.key, i)
			}
		}
	}
}

func (w Wait) check(c *checker, at string, index int) {
	for i, name := range w {
		if !slices.ContainsFunc(c.t.Steps[:index], func(s Step) bool {
			return name != "" && s.Lasts() == name
		}) && !c.Broken("steps") {
			c.Report(fmt.Sprintf("%s[%d]", at, i),
				fmt.Sprintf("no background step above is named %q", printable.Clip(name)),
				"name a workload, training, messages, traffic, stack or exec with background: true")
		}
	}
}

// unique checks that a name is used once, because checks and log files refer to it.
func (c *checker) unique(path, name string) {
	if name == "" {
		return
	}
	if !nodeName.MatchString(name) {
		c.Report(path, fmt.Sprintf("invalid name %q", printable.Clip(name)), "want "+nodeNameForm)
		return
	}
	if first, twice := c.taken[name]; twice {
		c.Report(path, fmt.Sprintf("name %q is taken by %s", name, first),
			"give each workload, training, messages, traffic, stack and exec a name of its own")
		return
	}
	c.taken[name] = strictyaml.ParentPath(path)
}

const (
	minSnapLen = units.Bytes(338) // package capture gives the reason
	maxSnapLen = units.Bytes(64 << 10)
	minLimit   = units.Bytes(64 << 10)
)

// Traits implements Action.
func (capture *Capture) Traits() Traits { return Traits{} }

func (capture *Capture) check(c *checker, at string, _ int) {
	for i, tap := range capture.At {
		c.ports(fmt.Sprintf("%s.at[%d]", at, i), tap)
	}
	if file := capture.File; file != "" {
		if !captureName.MatchString(file) {
			c.Report(at+".file", fmt.Sprintf("invalid capture file %q", printable.Clip(file)),
				"want a file name without folders that ends in .pcapng, such as run.pcapng")
		} else if first, twice := c.files[file]; twice {
			c.Report(at+".file", fmt.Sprintf("capture file %q is written by %s", file, first),
				"give each capture a file of its own")
		} else {
			c.files[file] = at
		}
	}
	capture.checkRotation(c, at)
	if len(capture.Filter) > 4096 {
		c.Report(at+".filter", fmt.Sprintf("a filter of %d bytes", len(capture.Filter)), "want at most 4096")
	}
	c.between(at+".snaplen", capture.SnapLen, minSnapLen, maxSnapLen)
	c.between(at+".limit", capture.Limit, minLimit, 1<<40)
	for name, triggers := range map[string][]string{"start": capture.Start, "stop": capture.Stop} {
		for i, trigger := range triggers {
			if len(trigger) > 4096 {
				c.Report(fmt.Sprintf("%s.%s[%d]", at, name, i), fmt.Sprintf("an event of %d bytes",
					len(trigger)), "want at most 4096")
			}
		}
	}
	c.positive(at+".last", uint64(capture.Last), "last is 0, which keeps nothing",
		"want a duration such as 5s")
	c.positive(at+".last-bytes", uint64(capture.LastBytes), "last-bytes is 0B, which keeps nothing",
		"want a size such as 64MiB")
	if capture.After > 0 && len(capture.Stop) == 0 {
		c.Report(at+".after", "after without stop", "add stop, or remove after")
	}
}

func (c *checker) between(path string, value, least, most units.Bytes) {
	if given := value != 0 || c.Source.Has(path); given && (value < least || value > most) {
		c.Report(path, fmt.Sprintf("%s is %s", path, value), fmt.Sprintf("want %s to %s", least, most))
	}
}

// Traits implements Action.
func (w *Workload) Traits() Traits {
	return Traits{Name: w.Name, Background: w.Background, Timeout: w.Timeout, Transport: w.Transport,
		Carriage: &w.Carriage}
}

func (w *Workload) check(c *checker, at string, _ int) {
	c.unique(at+".name", w.Name)
	c.sizes(at, w)
	c.positive(at+".timeout", uint64(w.Timeout), "timeout is 0", "want a duration such as 2m")
	c.collective(at, w)
	c.carriage(at, w.transport(), &w.Carriage)
	c.sgd(at+".sgd", w)
	c.moe(at+".moe", w)
}

// sizes checks that a workload sets either size or sizes.
func (c *checker) sizes(at string, w *Workload) {
	each := units.Bytes(element.Type(w.Type).Size())
	if each == 0 { // the default, or a value that the enum refuses
		each = units.Bytes(element.Float32.Size())
	}
	c.between(at+".size", w.Size, each, 1<<36)
	if w.Size%each != 0 {
		c.Report(at+".size", fmt.Sprintf("%s.size is %s", at, w.Size),
			fmt.Sprintf("want a multiple of %s, the size of an element", each))
	}
	s, hasSize := w.Sizes, w.Size != 0 || c.Source.Has(at+".size")
	if why := map[string]string{KindSGD: "whose network gives the size",
		KindMoE: "whose mixture gives the size", Barrier: "which has no data"}[w.Kind]; why != "" {
		for _, key := range []string{"size", "sizes"} {
			if c.Source.Has(at + "." + key) {
				c.ReportKey(at+"."+key, key+" of "+w.Kind+", "+why, "remove it")
			}
		}
		return
	}
	if s == nil {
		if !hasSize && !c.Source.Has(at+".sizes") {
			c.Report(at, strictyaml.Called(at)+` lacks the key "size"`,
				"add size: a size such as 40KB, or sizes: {from: 1KiB, to: 64MiB}")
		}
		return
	}
	switch {
	case hasSize:
		c.ReportKey(at+".sizes", "size and sizes are both set", "remove one of them")
	case s.From > s.To && s.To != 0:
		c.Report(at+".sizes.to", fmt.Sprintf("sizes.to is %s and sizes.from %s", s.To, s.From),
			fmt.Sprintf("want at least %s", s.From))
	case w.MayDrop():
		c.ReportKey(at+".sizes", "sizes with droppable partial sums",
			"want one size, or remove droppable")
	}
	c.between(at+".sizes.from", s.From, each, 1<<36)
	c.between(at+".sizes.to", s.To, each, 1<<36)
}

// Traits implements Action. A command has no name of its own without a key name.
func (e *Exec) Traits() Traits {
	return Traits{Name: e.Name, Background: e.Background, Serves: e.Background, Timeout: e.Timeout,
		Programs: true}
}

func (e *Exec) check(c *checker, at string, _ int) {
	c.unique(at+".name", e.Name)
	for i, node := range e.Nodes {
		c.pattern(c.Report, fmt.Sprintf("%s.nodes[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	c.words(at, e.Command, "[ping, -c1, h7]")
	if strings.ContainsRune(e.Workdir, 0) {
		c.Report(at+".workdir", "a NUL byte in the directory", "remove it")
	}
	c.positive(at+".timeout", uint64(e.Timeout), "timeout is 0", "want a duration such as 1m")
}

// words checks a command.
func (c *checker) words(at string, command []string, example string) {
	if len(command) > 0 && command[0] == "" {
		c.Report(at+".command[0]", "an empty command", "want a program, as in "+example)
	}
	for i, word := range command {
		if strings.ContainsRune(word, 0) {
			c.Report(fmt.Sprintf("%s.command[%d]", at, i), "a NUL byte in the command", "remove it")
		}
	}
}

var whereForm = regexp.MustCompile(`^(\S+)(?: (a-to-b|b-to-a))?$`)

// Target splits Where into the link's name or glob and the direction: "a-to-b", "b-to-a", or empty
// for both.
func (l *LinkChange) Target() (link, direction string) { return splitWhere(l.Where) }

// splitWhere splits a place into a name or glob and a direction, which may be empty.
func splitWhere(where string) (name, direction string) {
	parts := whereForm.FindStringSubmatch(where)
	if parts == nil {
		return where, ""
	}
	return parts[1], parts[2]
}

// ChangesRate reports whether a step sets a rate of the link in place of the plan's.
func (t *Testbed) ChangesRate(link string) bool {
	return slices.ContainsFunc(t.Steps, func(s Step) bool {
		if s.Link == nil || s.Link.Set == nil || s.Link.Set.Rate == 0 {
			return false
		}
		pattern, _ := s.Link.Target()
		return Match(pattern, link)
	})
}

// ChangesState reports whether a step takes a link down or up, so that the link is down for a
// while.
func (t *Testbed) ChangesState(link string) bool {
	return slices.ContainsFunc(t.Steps, func(s Step) bool {
		if s.Link == nil || s.Link.State == "" {
			return false
		}
		pattern, _ := s.Link.Target()
		return Match(pattern, link)
	})
}

// MayTakeDown reports whether a step or a fault may take the link down.
func (t *Testbed) MayTakeDown(link string) bool {
	return t.ChangesState(link) || slices.ContainsFunc(t.Steps, func(s Step) bool {
		return s.Fault != nil && (s.Fault.Crash || s.Fault.Reboot)
	})
}

// TakesDown reports whether a step takes both directions of a link down.
func (t *Testbed) TakesDown(link string) bool {
	return slices.ContainsFunc(t.Steps, func(s Step) bool {
		if s.Link == nil || s.Link.State != "down" {
			return false
		}
		pattern, direction := s.Link.Target()
		return direction == "" && Match(pattern, link)
	})
}

// Traits implements Action.
func (l *LinkChange) Traits() Traits { return Traits{} }

func (l *LinkChange) setDefaults() {}

func (l *LinkChange) check(c *checker, at string, _ int) {
	link, _ := l.Target()
	if l.Where != "" {
		c.pattern(c.Report, at+".where", link, "link", linkName,
			linkNameForm+`, with " a-to-b" or " b-to-a" for one direction`)
	}
	switch {
	case l.State == "" && l.Set == nil && !c.Known(at+".state") && !c.Known(at+".set"):
		c.Report(at, at+" changes nothing", "add state: up or down, or set: with settings")
	case l.State == "up" && l.For != 0:
		c.Report(at+".for", fmt.Sprintf("for: %s with state: up", l.For),
			"remove it, or take state: down or set")
	}
	if l.Set != nil {
		c.direction(at+".set", *l.Set)
		if reflect.DeepEqual(*l.Set, Direction{}) {
			c.Report(at+".set", at+".set changes nothing", "name settings, as in {loss: 1%}")
		}
	}
	c.positive(at+".for", uint64(l.For), "for is 0", "want a duration such as 200ms, or remove the key")
}
