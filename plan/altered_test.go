package plan_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
)

// A setting of a direction alters arrivals unless it is known not to.
func TestAltersArrivals(t *testing.T) {
	harmless := []string{"Rate", "Delay", "Queue", "Overhead", "JitterKind", "ReorderBy"}
	hastens := []string{"Jitter", "Duplicate", "Reorder"}
	kind := reflect.TypeFor[plan.Direction]()
	for i := range kind.NumField() {
		var d plan.Direction
		field := reflect.ValueOf(&d).Elem().Field(i)
		fill(field)
		if field.IsZero() {
			t.Fatalf("%s has no value", kind.Field(i).Name)
		}
		if want := !slices.Contains(harmless, kind.Field(i).Name); d.AltersArrivals() != want {
			t.Errorf("%s: alters arrivals %t, want %t", kind.Field(i).Name, !want, want)
		}
		if want := slices.Contains(hastens, kind.Field(i).Name); d.HastensArrivals() != want {
			t.Errorf("%s: hastens arrivals %t, want %t", kind.Field(i).Name, !want, want)
		}
	}
}

// fill sets a value that is not the zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

// Each fault of packets alters the arrivals of the direction that it acts on, and no other.
func TestAlteredBy(t *testing.T) {
	const head = "name: x\nfabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}}\n" +
		"steps:\n- "
	for step, want := range map[string][]string{
		"fault: {where: h1--leaf1 a-to-b, delay: {by: 8ms, share: 10%}}":    {"h1"},
		"fault: {where: h1--leaf1 a-to-b, duplicate: {every: 3}}":           {"h1"},
		"fault: {where: h1--leaf1 a-to-b, replay: {after: 1s, every: 3}}":   {"h1"},
		"fault: {where: h1--leaf1 a-to-b, reorder: {by: 3, share: 10%}}":    {"h1"},
		"fault: {where: h1--leaf1 a-to-b, truncate: {to: 100B, share: 1%}}": {"h1"},
		"fault: {where: h1--leaf1 a-to-b, limit: {rate: 1mbit}}":            {"h1"},
		"fault: {where: nics, drop: {every: 3}}":                            {"h0", "h1", "h2"},
		"fault: {where: h1--leaf1 a-to-b, mirror: {to: h2}}":                {"h1", "to h2"},
		"fault: {where: h1, hang: true, for: 1s}":                           nil,
		"link: {where: h2--*, set: {delay: 1ms}}":                           {"h2", "to h2"},
		"link: {where: h2--*, state: down}":                                 nil,
		"sleep: 1s":                                                         nil,
	} {
		file, err := spec.Decode("x.yaml", []byte(head+step+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		p := plantest.Compile(t, head+step+"\n")
		by := p.AlteredBy(file)
		altered := func(link string, from, to plan.End) bool {
			return by.Changes(link) || by.FaultAt(from) || by.CopiesTo(to)
		}
		var got []string
		for _, l := range p.Links {
			host, leaf := l.A, l.B
			if p.Node(host.Node) == nil {
				host, leaf = l.B, l.A
			}
			if altered(l.Name, host, leaf) {
				got = append(got, host.Node)
			}
			if altered(l.Name, leaf, host) {
				got = append(got, "to "+host.Node)
			}
		}
		slowed := len(want) > 0 && strings.Contains(step, "h1--leaf1 a-to-b") &&
			!strings.Contains(step, "truncate") && !strings.Contains(step, "mirror")
		if by.HastenedAt(plan.End{Node: "h1", Port: "eth0"}) != slowed {
			t.Errorf("%s: hastens arrivals %t, want %t", step, !slowed, slowed)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: alters %q, want %q", step, got, want)
		}
	}
}
