package reporting

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// Direction is the direction in which the values of a number are better.
type Direction string

// Directions.
const (
	Neither Direction = ""
	More    Direction = "more"
	Less    Direction = "less"
)

// Units of numbers. Others are words to print behind the number.
const (
	Seconds = "s"
	BitRate = "bit/s"
	Share   = "share" // 0 to 1
	Bytes   = "B"
)

// Sections are the sections of numbers, in order. Those before RecordingSection are of steps. Those of
// RecordingSection are not in reports: a comparison takes them from recordings.
var Sections = []string{WorkloadSection, "trainings", "stacks", "messages", RecordingSection, "routing",
	"checks", "links", "fidelity", "captures", "testbed", "faults"}

// Sections that other packages name.
const (
	WorkloadSection  = "workloads"
	RecordingSection = "times of messages in recordings"
)

// Quantity is the meaning of a number of a report.
type Quantity struct {
	Section string    `json:"section"`
	Of      string    `json:"of"`
	What    string    `json:"what"`
	Unit    string    `json:"unit,omitempty"`
	Better  Direction `json:"better,omitempty"`
	// Unclocked is set if no clock measured the number. Then a host that does not keep up does not change it.
	Unclocked bool `json:"unclocked,omitempty"`
}

// Timed reports whether the number is a time or may follow from one, so that the speed of the host may change
// it. Counts, bytes and losses of a training do not, unless a check counted them.
func (q *Quantity) Timed() bool {
	return !q.Unclocked && (q.Section == "checks" || q.Unit != "" && q.Unit != Bytes && q.Unit != inNats.name)
}

// OfStep reports whether the number is a result of a step of the file.
func (q *Quantity) OfStep() bool {
	return slices.Contains(Sections[:slices.Index(Sections, RecordingSection)], q.Section)
}

// Number names a number of a report.
type Number struct {
	Quantity
	// Size is the size in bytes of a number of one of several sizes. Figure is its name without the size.
	Size   uint64 `json:"size_bytes,omitempty"`
	Figure string `json:"figure,omitempty"`
}

// figure is a number of a report: a row of a list.
type figure struct {
	Number
	unit unit
	// value is in the unit of the report. It is NaN if the report lacks the number.
	value float64
	// heads are the heads of the columns, by view. A view without a head does not show the figure.
	heads [views]string
	// bound describes the bound that checks of workloads can set, or nil.
	bound *bound
	// hidden keeps the figure out of comparisons, and part out of the table of the whole.
	hidden, part bool
}

// unclocked marks a figure that no clock measured.
func (f *figure) unclocked() *figure {
	f.Unclocked = true
	return f
}

// under sets the heads of the figure's columns in the brief report, in the report with all tables, and on the
// page. %s stands for the unit.
func (f *figure) under(brief, full, page string) *figure {
	f.heads = [views]string{brief, full, page}
	return f
}

// bounded lets checks of workloads bound the figure. The key is the Go field in lower case, and about
// describes the figure in the schema. ratio describes a bound of its ratio to the same figure of another
// workload. Without ratio, checks have no such bound.
func (f *figure) bounded(field, about string, ratio ...string) {
	f.bound = &bound{field, about, strings.Join(ratio, "")}
}

// bound is a bound in checks of workloads. TestFigureKeysAreMade writes the keys to plan/spec.
type bound struct{ field, about, ratio string }

// list is a list of figures.
type list struct {
	all []*figure
	// section and of begin the names of the figures.
	section, of string
	// hide is the value of hidden for the figures that are added.
	hide bool
	// rename changes the names of the figures of a part or a size. It is nil for the whole.
	rename func(*Number)
}

// add adds a figure. Without a name it is only in tables.
func (l *list) add(name string, in unit, better Direction, value float64) *figure {
	f := &figure{Number: Number{Quantity: Quantity{Section: l.section, Of: l.of, What: name, Unit: in.name,
		Better: better}}, unit: in, value: value, hidden: l.hide || name == "", part: l.rename != nil}
	if f.part {
		l.rename(&f.Number)
	}
	l.all = append(l.all, f)
	return f
}

// start begins the figures of an object of a section.
func (l *list) start(section, of string) { l.section, l.of, l.rename = section, of, nil }

// part begins the figures of a part.
func (l *list) part(prefix string) {
	l.rename = func(n *Number) { n.What = prefix + n.What }
}

// sized begins the figures of a size. mode is "", or names other figures of this size.
func (l *list) sized(size uint64, mode string) {
	l.rename = func(n *Number) {
		n.Size, n.Figure = size, n.What+mode
		n.What = fmt.Sprintf("%s, %d B%s", n.What, size, mode)
	}
}

// Numbers calls add for each number of the report. A value is NaN if the report lacks it.
func Numbers(r *report.Report, add func(n Number, value float64)) {
	var l list
	l.report(r)
	for _, f := range l.all {
		if !f.hidden {
			add(f.Number, f.value/f.unit.per)
		}
	}
}

// find returns the figure with a key of checks. A time or a rate of 0 was not measured.
func find(key string, figures func(*list)) (value float64, there bool) {
	var l list
	figures(&l)
	for _, f := range l.all {
		if f.bound != nil && strings.ToLower(f.bound.field) == key && !math.IsNaN(f.value) {
			return f.value, f.value != 0 || f.unit.name != Seconds && f.unit.name != BitRate
		}
	}
	return 0, false
}

// WorkloadFigure returns the figure that checks bound by a key: "busbw". there is false if there is none.
func WorkloadFigure(w *report.Workload, key string) (value float64, there bool) {
	return find(key, func(l *list) { l.workload(w) })
}

// TrainingFigure returns the figure that checks bound by a key: "iteration". there is false if there is none.
func TrainingFigure(t *report.Training, key string) (value float64, there bool) {
	return find(key, func(l *list) { l.training(t) })
}

// MessagesFigure returns the figure that checks bound by a key: "p99". there is false if there is none.
func MessagesFigure(m *report.Messages, key string) (value float64, there bool) {
	return find(key, func(l *list) { l.messages(m) })
}

// view is a place that shows tables.
type view int

const (
	briefView view = iota
	fullView
	pageView
	views
)

// unit is the unit of a figure.
type unit struct {
	// name is the unit in comparisons. Values in the report are per times as large.
	name string
	per  float64
	// text formats a value for a table.
	text func(v view, in tableUnits, value float64) string
}

var (
	inTime    = unit{Seconds, 1, timeText}
	inMicros  = unit{Seconds, 1e6, shortText}
	inRate    = unit{BitRate, 1, func(_ view, in tableUnits, v float64) string { return in.Rate.Text(v) }}
	inShare   = unit{Share, 1, func(_ view, _ tableUnits, v float64) string { return units.Percent(v) }}
	inCount   = unit{"", 1, wholeText}
	inBytes   = unit{Bytes, 1, wholeText}
	perSecond = unit{"/s", 1, shortText}
	inNats    = unit{"nats", 1, digitsText}
	inTimes   = unit{"times", 1, digitsText}
)

// timeText formats a time in the unit of the table. On a page whose tables have none, it has its own unit.
func timeText(_ view, in tableUnits, v float64) string {
	if in.Time.Size == 0 {
		return units.Seconds(v)
	}
	return in.Time.Text(v)
}

func digitsText(_ view, _ tableUnits, v float64) string { return units.Digits(v) }

func shortText(v view, _ tableUnits, value float64) string {
	if v == pageView {
		return units.Number(value)
	}
	return units.Digits(value)
}

func wholeText(_ view, _ tableUnits, v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
