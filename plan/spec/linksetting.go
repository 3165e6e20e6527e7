package spec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"railbed/internal/strictyaml"
	"railbed/internal/units"
	"railbed/internal/wire"
)

// LinkSetting is a setting of a direction of a link.
type LinkSetting struct {
	Key, Hint string // the key in files, and an example of a value
	// Off is the value without effect, or "" if there is none.
	Off string
	// Flag is the usage of its flag of railbed link set, or "" if it has no flag of its own.
	Flag string
	By   Emulator

	// yaml is set if the value is no scalar that may be quoted.
	yaml bool
	// zero marks a value that is zero on purpose. It is 0 if the setting has no such value.
	zero     Zeros
	arrivals arrivals
	check    func(c *checker, path string, d *Direction) // nil if its type has all the bounds
	// planned returns the value of a plan, text formats that value as files have it, and effects formats it
	// for people. They get only directions that have the setting. By default the value is the file's,
	// fmt.Sprint formats it, and the effect is the key and the text.
	planned func(*Direction) any
	text    func(*PlannedDirection) string
	effects func(*PlannedDirection) []string

	inFile, inPlan int // the indexes of the fields
}

// Emulator is the part of a link that has a setting. Links of soft switches have all settings.
type Emulator int

// The emulators.
const (
	SoftSwitch Emulator = iota // Only links of soft switches have the setting.
	Netem                      // On kernel links netem has it.
	Shaper                     // On kernel links the token bucket has it.
)

// arrivals is the effect of a setting on the arrivals of packets. The zero value is any effect.
type arrivals int

const (
	same  arrivals = iota + 1 // Each packet arrives once, as it left, after a constant delay.
	fewer                     // Packets can be lost or damaged, and do not arrive closer together.
)

// indexed returns the settings with the indexes of their fields.
func indexed(all []*LinkSetting) []*LinkSetting {
	file, plan := reflect.TypeFor[Direction](), reflect.TypeFor[PlannedDirection]()
	for _, s := range all {
		s.inFile = strictyaml.FieldOf(file, s.Key).Index[0]
		f, _ := plan.FieldByName(file.Field(s.inFile).Name)
		s.inPlan = f.Index[0]
	}
	return all
}

// settingOf returns the setting with a key.
func settingOf(key string) *LinkSetting {
	return LinkSettings[slices.IndexFunc(LinkSettings, func(s *LinkSetting) bool { return s.Key == key })]
}

// Given reports whether a direction of a file has the setting with an effect.
func (s *LinkSetting) Given(d Direction) bool {
	return !strictyaml.IsZero(reflect.ValueOf(d).Field(s.inFile))
}

// On reports whether a direction of a plan has the setting with an effect.
func (s *LinkSetting) On(d *PlannedDirection) bool {
	return !strictyaml.IsZero(reflect.ValueOf(d).Elem().Field(s.inPlan))
}

// Text returns the value as files have it, or "" without an effect.
func (s *LinkSetting) Text(d *PlannedDirection) string {
	switch {
	case !s.On(d):
		return ""
	case s.text != nil:
		return s.text(d)
	}
	return fmt.Sprint(reflect.ValueOf(d).Elem().Field(s.inPlan).Interface())
}

// Parse parses and checks the text of a value like the value of the key in a file. Errors are Problems and
// call the text by the given name.
func (s *LinkSetting) Parse(name, text string) (Direction, error) {
	if !s.yaml {
		text = strconv.Quote(text)
	}
	set, err := ParseDirection(name, fmt.Sprintf("{%s: %s}", s.Key, text))
	var problems Problems
	if errors.As(err, &problems) {
		for i := range problems { // the position is the name
			problems[i].Line, problems[i].Path = 0, ""
		}
	}
	return set, err
}

// Over returns d with each field that d does not set taken from base.
func (d Direction) Over(base Direction) Direction {
	made, from := reflect.ValueOf(&d).Elem(), reflect.ValueOf(&base).Elem()
	for _, s := range LinkSettings {
		if f := made.Field(s.inFile); d.Zero&s.zero == 0 && strictyaml.IsZero(f) {
			f.Set(from.Field(s.inFile))
		}
	}
	return d
}

// With returns the direction with the settings of the file applied to it.
func (d PlannedDirection) With(set Direction) PlannedDirection {
	made, from := reflect.ValueOf(&d).Elem(), reflect.ValueOf(&set).Elem()
	for _, s := range LinkSettings {
		value, into := from.Field(s.inFile), made.Field(s.inPlan)
		switch {
		case set.Zero&s.zero == 0 && strictyaml.IsZero(value):
			continue
		case s.planned != nil:
			value = reflect.ValueOf(s.planned(&set))
		}
		into.Set(value.Convert(into.Type()))
	}
	return d
}

// Effects returns the settings of the direction other than rate and queue, in the words of files:
// "delay 5us", "loss 0.1%".
func (d PlannedDirection) Effects() (words []string) {
	for _, s := range LinkSettings {
		switch {
		case s.By == Shaper || !s.On(&d):
		case s.effects != nil:
			words = append(words, s.effects(&d)...)
		default:
			words = append(words, s.Key+" "+s.Text(&d))
		}
	}
	return words
}

// By returns the settings with an effect that an emulator has.
func (d PlannedDirection) By(e Emulator) (found []*LinkSetting) {
	for _, s := range LinkSettings {
		if s.By == e && s.On(&d) {
			found = append(found, s)
		}
	}
	return found
}

// NeedsNetem reports whether the direction has settings other than rate and queue. Links of soft
// switches need no netem for them.
func (d PlannedDirection) NeedsNetem() bool { return len(d.By(Netem)) > 0 }

// SoftOnly returns the keys of the direction's settings that only links of soft switches have.
func (d PlannedDirection) SoftOnly() (keys []string) {
	for _, s := range d.By(SoftSwitch) {
		keys = append(keys, s.Key)
	}
	return keys
}

// AltersArrivals reports whether packets can arrive at other times, in other numbers or of another size than
// they left, apart from a constant delay.
func (d PlannedDirection) AltersArrivals() bool {
	return slices.ContainsFunc(LinkSettings, func(s *LinkSetting) bool {
		return s.arrivals != same && s.On(&d)
	})
}

// HastensArrivals reports whether more can arrive in a time than the port sends in such a time.
func (d PlannedDirection) HastensArrivals() bool {
	return slices.ContainsFunc(LinkSettings, func(s *LinkSetting) bool { return s.arrivals == 0 && s.On(&d) })
}

// Equal reports whether two directions behave the same.
func (d PlannedDirection) Equal(other PlannedDirection) bool {
	same := slices.Equal(d.DropList, other.DropList)
	d.DropList, other.DropList = nil, nil
	return same && reflect.DeepEqual(d, other)
}

// Smallest returns the smallest time that the direction distinguishes, in the testbed's time: the delay, or
// the time to send a frame of the MTU if that is less. A direction without a delay and without a rate has
// none, which is 0.
func (d PlannedDirection) Smallest(mtu int) time.Duration {
	least := time.Duration(d.Delay)
	if d.Rate > 0 { // computed here: units' division is exact for any size, and slow
		frame := uint64(mtu+wire.EthernetLen) + uint64(d.Overhead)
		send := time.Duration(frame * 8 * uint64(time.Second) / uint64(d.Rate))
		if send > 0 && (least == 0 || send < least) {
			least = send
		}
	}
	return least
}

// reorderFrames is the default number of frames that overtake a reordered frame.
const reorderFrames = 4

// DefaultReorderBy returns the default time by which a reordered packet is held back: the time of
// reorderFrames full frames of a link with the given MTU.
func (d PlannedDirection) DefaultReorderBy(mtu int) units.Duration {
	return units.Duration(d.Rate.SerialisationTime(
		reorderFrames * (units.Bytes(mtu+wire.EthernetLen) + d.Overhead)))
}

// Change returns the direction of a link with the given MTU after settings are applied to it. Later
// settings override earlier ones. Settings that they do not name stay. The exception is a ReorderBy
// that is the default for the rate and the overhead: it becomes the default for the new rate and
// overhead, as in a file. Check reports settings that contradict each other.
func (d PlannedDirection) Change(mtu int, sets ...Direction) PlannedDirection {
	made, byDefault := d, d.ReorderBy != 0 && d.ReorderBy == d.DefaultReorderBy(mtu)
	for _, set := range sets {
		made = made.With(set)
		byDefault = byDefault && set.ReorderBy == 0
	}
	if byDefault {
		made.ReorderBy = made.DefaultReorderBy(mtu)
	}
	return made
}

// Conflict is a setting that another setting, or the link's MTU, does not allow.
type Conflict struct {
	*LinkSetting
	What, Want string
}

// Conflicts returns the conflicts of a direction of a link with the given MTU.
func (d PlannedDirection) Conflicts(mtu int) (found []Conflict) {
	if frame := units.Bytes(mtu + wire.EthernetLen); d.Queue < frame {
		found = append(found, Conflict{settingOf("queue"), fmt.Sprintf("queue is %s", d.Queue),
			fmt.Sprintf("want at least %s, one frame of mtu %d", frame, mtu)})
	}
	if d.Jitter > d.Delay && d.JitterKind != Exponential {
		found = append(found, Conflict{settingOf("jitter"),
			fmt.Sprintf("jitter is %s and delay %s", d.Jitter, d.Delay),
			"want a delay at least as long as the jitter: no packet arrives before it was sent"})
	}
	return found
}

// Check reports settings of a direction that contradict each other or the MTU of its link. It uses
// the messages for files. The error is a Problems.
func (d PlannedDirection) Check(mtu int) error {
	var problems Problems
	for _, found := range d.Conflicts(mtu) {
		problems = append(problems, Problem{What: found.What, Want: found.Want})
	}
	return problems.Err()
}

// ParseDirection parses settings as they are written in files, such as "{loss: 1%, drop-list: [5,
// 6]}". Errors are Problems and call the text by the given name. ParseDirection fills in no
// defaults.
func ParseDirection(name, text string) (Direction, error) {
	return parse(name, text, "set", func(c *checker, set *Direction) { c.direction("set", *set) })
}

// parse parses a value as it is written in files, at the place of a path, and checks it.
func parse[T any](name, text, at string, check func(c *checker, value *T)) (value T, err error) {
	d, err := decodePart(name, []byte(text), at, &value)
	if err != nil {
		return value, err
	}
	c := newChecker(&Testbed{Source: d.Source}, d.Wrong)
	c.Tags(at, &value)
	check(c, &value)
	return value, append(d.Problems, c.Problems...).Err()
}
