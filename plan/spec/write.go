package spec

import (
	"fmt"
	"reflect"

	"railbed/internal/strictyaml"
)

// Marshal encodes the testbed as a file for people. Keys are in the order of the types, settings
// that equal their defaults are left out, and short mappings are on one line. Decoding the file
// gives a testbed that is equal except for its Source.
func Marshal(t *Testbed) ([]byte, error) {
	text, err := newEncoder().Text(t)
	if err != nil {
		return nil, fmt.Errorf("write testbed %s: %w", t.Name, err)
	}
	return text, nil
}

func newEncoder() *strictyaml.Encoder {
	return &strictyaml.Encoder{Defaults: defaultValues().of,
		Blocks: []reflect.Type{reflect.TypeFor[Testbed](), reflect.TypeFor[Fabric]()}}
}

// defaultsOf has, for each struct whose fields have defaults, a value with all of them.
type defaultsOf map[reflect.Type]any

func defaultValues() defaultsOf {
	t := Testbed{Steps: []Step{{Capture: &Capture{}}, {Workload: &Workload{}}, {Exec: &Exec{}},
		{Training: &Training{}}, {Messages: &Messages{}}}, Fabric: Fabric{Routing: &Routing{}}}
	t.SetDefaults()
	values := defaultsOf{}
	for _, v := range []any{Testbed{Seed: t.Seed, Dilation: t.Dilation}, t.Addressing, *t.Steps[0].Capture,
		*t.Steps[1].Workload, *t.Steps[2].Exec, *t.Steps[3].Training, *t.Steps[4].Messages,
		*t.Fabric.Routing} {
		values[reflect.TypeOf(v)] = v
	}
	return values
}

// of returns the defaults of a struct. Some depend on its other settings.
func (d defaultsOf) of(v any) any {
	defaults := d[reflect.TypeOf(v)]
	switch v := v.(type) {
	case Workload:
		own := defaults.(Workload)
		ofKind := Step{Workload: &Workload{Kind: v.Kind, SGD: v.SGD}}
		ofKind.setDefaults()
		own.Algorithm, own.Type, own.Op, own.Iterations = ofKind.Workload.Algorithm, ofKind.Workload.Type,
			ofKind.Workload.Op, ofKind.Workload.Iterations
		return own
	case Model:
		return v.defaults()
	}
	return defaults
}
