package keep

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// Trigger is an event of a recording, written as one of
//
//	FILTER                    the first packet that the filter matches (package display)
//	100th FILTER              the hundredth such packet
//	pause > 10ms              a port that has been paused for longer (IEEE 802.1Qbb and 802.3x)
//	pause > 10ms at leaf1:*   one of these taps
//	counter SERIES > 5        a counter that grew by more since the recording began
//
// A pause lasts from a frame that asks for it to the frame that ends it, for each tap and priority. SERIES
// is a series of the testbed's metrics, as Prometheus writes it. Labels that it does not name may have any
// value, and then all these counters are added. A Trigger has state, and serves one recording.
type Trigger struct {
	text   string
	filter *display.Filter
	nth    int
	pause  time.Duration
	at     string
	series string
	above  float64

	matched int
	paused  map[class]int64 // since when
}

// class is a priority of a port that can be paused. Without priorities it is 8.
type class struct{ tap, priority int }

var (
	nthForm     = regexp.MustCompile(`^\s*([0-9]+)(?:st|nd|rd|th)\s+`)
	pauseForm   = regexp.MustCompile(`^\s*pause\s*>\s*(\S+?)(?:\s+at\s+(\S+))?\s*$`)
	counterForm = regexp.MustCompile(`^\s*counter\s+(.*\S)\s*>\s*([0-9.eE+]+)\s*$`)
)

// ParseTrigger parses a trigger. The error says what was wanted, and for a filter names the column.
func ParseTrigger(text string) (*Trigger, error) {
	t := &Trigger{text: text, nth: 1}
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch strings.TrimSuffix(word, ">") {
	case "":
		return nil, errors.New("an empty trigger; want a filter, pause > TIME or counter SERIES > NUMBER")
	case "pause":
		parts := pauseForm.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%q; want pause > TIME, such as pause > 10ms, or pause > 10ms at leaf1:*",
				text)
		}
		length, err := time.ParseDuration(parts[1])
		if err != nil || length <= 0 {
			return nil, fmt.Errorf("%q is not a time above 0; want pause > 10ms", parts[1])
		}
		t.pause, t.at, t.paused = length, parts[2], map[class]int64{}
		return t, nil
	case "counter":
		parts := counterForm.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf(`%q; want counter SERIES > NUMBER, such as `+
				`counter railbed_node_drops_total{node="h1"} > 0`, text)
		}
		above, err := strconv.ParseFloat(parts[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number; want counter SERIES > 0", parts[2])
		}
		t.series, t.above = parts[1], above
		return t, nil
	}
	rest := text
	if parts := nthForm.FindStringSubmatch(text); parts != nil {
		nth, err := strconv.Atoi(parts[1])
		if err != nil || nth < 1 {
			return nil, fmt.Errorf("%q; want 1st, 2nd, ... before the filter", strings.TrimSpace(parts[0]))
		}
		t.nth, rest = nth, text[len(parts[0]):]
	}
	filter, err := display.Compile(rest)
	if wrong := (*display.Error)(nil); errors.As(err, &wrong) {
		wrong.Filter, wrong.Column = text, wrong.Column+len(text)-len(rest)
	}
	t.filter = filter
	return t, err
}

// String returns the trigger as it was written.
func (t *Trigger) String() string { return t.text }

// saw takes a packet, and reports whether it is the event. tap is its tap's name. Packets count while the
// event is awaited. A pause may have begun before.
func (t *Trigger) saw(p *display.Packet, tap string, awaited bool) bool {
	if t.pause > 0 {
		t.follow(p.Raw, tap)
	}
	if !awaited {
		return false
	}
	if t.filter != nil && t.filter.Match(p) {
		t.matched++
		return t.matched == t.nth
	}
	for _, since := range t.paused {
		if p.Raw.Time-since > int64(t.pause) {
			return true
		}
	}
	return false
}

// follow takes note of a frame that asks for pauses or ends them.
func (t *Trigger) follow(p *pcapng.Packet, tap string) {
	ethernet := wire.Ethernet(p.Data)
	if !ethernet.Valid() || ethernet.EtherType() != wire.EtherTypeMACControl ||
		t.at != "" && !spec.Match(t.at, tap) {
		return
	}
	set := func(priority int, quanta uint16) {
		of := class{p.Interface, priority}
		if _, paused := t.paused[of]; quanta == 0 {
			delete(t.paused, of)
		} else if !paused {
			t.paused[of] = p.Time
		}
	}
	frame := wire.MACControl(ethernet.Payload())
	if !frame.Valid() {
		return
	}
	switch frame.Opcode() {
	case wire.OpcodePause:
		set(8, frame.PauseQuanta())
	case wire.OpcodePFC:
		pfc := wire.PFC(frame)
		for q := range 8 {
			if pfc.Enabled(q) {
				set(q, pfc.Quanta(q))
			}
		}
	}
}

// Triggers are alternative events: each of them counts. Like a Trigger, the list has state.
type Triggers []*Trigger

// ParseTriggers reads triggers. The error names the number of the wrong one, from 1 on, if there are several.
func ParseTriggers(texts []string) (all Triggers, err error) {
	for i, text := range texts {
		t, err := ParseTrigger(text)
		if err != nil && len(texts) > 1 {
			return nil, fmt.Errorf("trigger %d: %w", i+1, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Dilated multiplies the times of the triggers by a factor, which is 1 or more, and returns the triggers.
func (all Triggers) Dilated(by time.Duration) Triggers {
	for _, t := range all {
		t.pause *= by
	}
	return all
}

// String lists the triggers.
func (all Triggers) String() string {
	var texts []string
	for _, t := range all {
		texts = append(texts, t.text)
	}
	return strings.Join(texts, ", or ")
}

// saw takes a packet, and reports whether it is one of the events.
func (all Triggers) saw(p *display.Packet, tap string, awaited bool) (event bool) {
	for _, t := range all {
		event = t.saw(p, tap, awaited) || event // each follows the recording
	}
	return event
}

// analyses reports whether a trigger has a field below tcp.analysis.
func (all Triggers) analyses() bool {
	return slices.ContainsFunc(all, func(t *Trigger) bool { return t.filter != nil && t.filter.Analyses() })
}

// counts reports whether a counter is awaited.
func (all Triggers) counts() bool {
	return slices.ContainsFunc(all, func(t *Trigger) bool { return t.series != "" })
}

// Counters reads the sum of the counters of a series.
type Counters func(series string) (float64, error)

// grown reads the counters and reports whether one has grown enough. was holds the values at the start.
func (all Triggers) grown(read Counters, was map[*Trigger]float64) (bool, error) {
	for _, t := range all {
		if t.series == "" {
			continue
		}
		now, err := read(t.series)
		if err != nil {
			return false, fmt.Errorf("counter %s: %w", t.series, err)
		}
		if before, read := was[t]; !read {
			was[t] = now
		} else if now-before > t.above {
			return true, nil
		}
	}
	return false, nil
}
