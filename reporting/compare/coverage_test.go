package compare

import (
	"reflect"
	"regexp"
	"testing"
	"time"

	"railbed/capture/report"
)

// fill sets every field of a value: texts to text, numbers to 1, and lists to one element.
func fill(v reflect.Value, text string) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
}

// change changes the leaf with a number, counted in the order of fields, and returns its path. It returns ""
// if there are fewer.
func change(v reflect.Value, leaf *int, path string) string {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return ""
		}
		for i := range v.NumField() {
			if at := change(v.Field(i), leaf, path+"."+v.Type().Field(i).Name); at != "" {
				return at
			}
		}
		return ""
	case reflect.Slice:
		return change(v.Index(0), leaf, path)
	case reflect.Pointer:
		return change(v.Elem(), leaf, path)
	case reflect.Array: // one of them stands for all
		return change(v.Index(0), leaf, path)
	case reflect.Map:
		key := v.MapKeys()[0]
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		at := change(value, leaf, path)
		v.SetMapIndex(key, value)
		return at
	}
	if *leaf--; *leaf >= 0 {
		return ""
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString("2")
	case v.CanInt():
		v.SetInt(2)
	case v.CanUint():
		v.SetUint(2)
	case v.CanFloat():
		v.SetFloat(2)
	default:
		v.SetBool(false)
	}
	return path
}

// notCompared are the fields of reports that may differ unseen, with the reason.
var notCompared = []struct{ paths, reason string }{
	{`Format|Description|Repeat|PlanHash|Started|Finished`, "of the document, or told by others"},
	{`Reason|Unsupported\..*|.*\.Where|.*\.Error|.*\.Summary|.*\.Details|.*\.Near|.*\.Excerpt|.*\.Logs|.*\.Reasons`,
		"sentences and places, behind a verdict that is compared"},
	{`Charts\..*`, "data of the page's charts"},
	{`Checks\.Commands`, "command lines that show evidence"},
	{`Began`, "of the document, or told by others"},
	{`Steps\.(Start|End|Background|Times|Called|Active\..*)`, "steps of workloads have times of their own"},
	{`Steps\.Late|Checks\.Timed`, "behind a state or verdict that is compared"},
	{`Signals\..*`, "of the plan, and counts behind notes"},
	{`Acts\..*`, "of the plan, and behind the names of steps"},
	{`.*\.Straggler\.(Worked|Others)|.*\.Slow\.(Median|Others|Trip)|.*\.Held\.(Got|Others|Stopped|Looks)`,
		"the rank is compared"},
	{`.*\.HeldUp\..*|.*\.Overruns\..*|.*\.Undilated\..*`, "reasons for the fidelity"},
	{`Fidelity\.(Cause|Remedy|Idle|Others\..*|Downs\..*|Nodes\.(Asked|Starved))`, "reasons for the fidelity"},
	{`Fidelity\.Links\.PeakOver`, "the time over which a number was measured"},
	{`Workloads\.(Time|AlgBW|BusBW|Count|Sent)|Workloads\.Rows\.(Count|Type|RedOp|Root)`,
		"of the last of several rows, or told by bytes and algorithm"},
	{`.*\.Unchecked|.*\.MayMiss|.*\.Pace\.(Packets|P50|Most)`, "behind other numbers"},
	{`.*\.Repeats\.(Payload|Order|Loss|Trimming|Timer|Refused)`, "behind the share"},
	{`.*\.RoCE\.(Packets|NAKs|RNRNAKs|DCQCN)`, "behind the share, or of the plan"},
	{`.*\.Load\.(Own|Others|Processors|Sent|Link|Direction)`, "behind other numbers"},
	{`Workloads\.Mixture\.(Hottest|Load|Times|Most|DispatchBytes|CombineBytes)`, "behind other numbers"},
	{`Trainings\.(OtherClocks|PerRank\..*|Bars\..*)`, "parts of numbers that are compared"},
	{`Messages\.(Count|Slowdowns\.Percentiles\.Count|Parts\.Times\.Count)`, "behind other numbers"},
	{`Stacks\.(Figures|Columns|Rows\.Cells|Rows\.Part)`,
		"one cell is the key of its row; Part is in the costs"},
	{`Faults\.(Does|Joined|Refused|Places\..*)`, "of the plan, behind the verdict, or parts of a number"},
	{`Stacks\.(Unit|Less)|Checks\.Values\.Unit`, "properties of a number"},
	{`Containers|EventsDropped|Routing\.(Ended\..*|Reactions\.At)`, "events, in the order of time"},
	{`Host\.Memory`, "in MiB"},
	{
		`Fidelity\.(PressureSource|Samples|Links\.(Link|Direction|Asked|Busy|Packets|Bytes|Drops)|Links\.Late\..*)`,
		"behind other numbers, or of the plan"},
	{`Fidelity\.Timing\.(Released|Unmatched|Unit|Windows|Late|First|Worst|Waited|Ran|Priority|Nice|Frames).*`,
		"told by the lateness of arrivals"},
	{`Fidelity\.Nodes\.(Node|Stack\.Received)`, "behind numbers of the worst node, or of all nodes"},
	{`Fidelity\.Timing\.Arrivals\.(Frames|Buckets.*)`, "told by its percentiles"},
	{`Captures\.Taps\.(Name|Limited)`, "told by packets"},
	{`Captures\.Files`, "told by the size"},
}

// TestFieldsAreCompared changes one field of a report at a time: the comparison differs, unless notCompared
// has the field. A new field of reports has to be in one of both.
func TestFieldsAreCompared(t *testing.T) {
	exempt := func(path string) bool {
		for _, e := range notCompared {
			if regexp.MustCompile(`^(` + e.paths + `)$`).MatchString(path) {
				return true
			}
		}
		return false
	}
	seen, compared := 0, 0
	for leaf := 0; ; leaf++ {
		var base, changed report.Report
		fill(reflect.ValueOf(&base).Elem(), "1")
		fill(reflect.ValueOf(&changed).Elem(), "1")
		left := leaf
		path := change(reflect.ValueOf(&changed).Elem(), &left, "")
		if path == "" {
			break
		}
		path = path[1:]
		seen++
		c := compare([2]*side{{runs: []*run{{report: &base}}}, {runs: []*run{{report: &changed}}}},
			Options{Alpha: DefaultAlpha})
		differs := len(c.Facts) > 0
		for i := range c.Verdicts {
			differs = differs || !c.Verdicts[i].Same()
		}
		for i := range c.Numbers {
			differs = differs || c.Numbers[i].Outcome != Equal
		}
		if differs {
			compared++
		}
		if !differs && !exempt(path) {
			t.Errorf("%s is not compared", path)
		}
	}
	if seen < 250 || compared < 100 {
		t.Errorf("of %d fields %d are compared, want more", seen, compared)
	}
}
