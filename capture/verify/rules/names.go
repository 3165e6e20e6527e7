package rules

import (
	"slices"
	"strconv"

	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/plan"
	"railbed/plan/spec"
)

// Names returns the values that fields have in recordings of a testbed: of the names of its nodes, switches
// and ports, and of its ranks. Faults are the names of the faults that the file begins, nil if
// they are not known. The plan may be nil.
func Names(p *plan.Plan, faults []string) display.Domain {
	if p == nil {
		return nil
	}
	d := ofPorts(p.Ports())
	if faults != nil {
		d["railbed.fault"] = faults
	}
	for rank := range p.Ranks {
		d["railbed.rank"] = append(d["railbed.rank"], strconv.Itoa(rank))
	}
	return d
}

// ofPorts returns the values of the fields that name ports.
func ofPorts(ports []string) display.Domain {
	d := display.Domain{"frame.interface_name": ports}
	for _, name := range ports {
		node, port := spec.SplitPort(name)
		d["railbed.node"] = append(d["railbed.node"], node)
		d["railbed.port"] = append(d["railbed.port"], port)
	}
	for field, names := range d {
		slices.Sort(names)
		d[field] = slices.Compact(names)
	}
	return d
}

// impossible returns a reason for each comparison that no packet at the ports of the rule can fulfil.
func (k *rule) impossible() (lines []string) {
	ports := k.ports()
	if k.capture.Plan == nil && k.spec.At == "" && slices.ContainsFunc(k.capture.Taps,
		func(t *evidence.Tap) bool { return t.Node == "" }) || len(ports) == 0 {
		return nil // the records have no such fields
	}
	for _, f := range k.filters {
		for _, wrong := range f.Impossible(ofPorts(ports)) {
			lines = append(lines, wrong.What+" at the ports of the rule: column "+
				strconv.Itoa(wrong.Column)+" of "+strconv.Quote(f.String()))
		}
	}
	return lines
}

// readsSealed reports whether a rule reads fields of reliable datagrams that privacy encrypts.
func readsSealed(r *spec.Rule) bool {
	parts, _ := compile(nil, "rule", r, nil)
	fields := []*display.Field{parts.field}
	for _, f := range parts.filters() {
		fields = append(fields, f.Fields()...)
	}
	for _, pair := range parts.same {
		fields = append(fields, pair[:]...)
	}
	return slices.ContainsFunc(fields, func(f *display.Field) bool {
		return f != nil && slices.ContainsFunc(f.Places, func(at display.Place) bool {
			return at.Header >= display.RDDataHeader && at.Header <= display.RDRejectHeader
		})
	})
}
