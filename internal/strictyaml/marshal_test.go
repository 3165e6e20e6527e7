package strictyaml

import (
	"reflect"
	"testing"
)

var racksEncoder = Encoder{Blocks: []reflect.Type{reflect.TypeFor[rack]()}, Defaults: func(v any) any {
	if _, is := v.(rack); is {
		return rack{Seed: 1}
	}
	return nil
}}

func TestText(t *testing.T) {
	const want = `name: '7'
power: 3U
owner: Ann
fan: true
servers:
  h[0-1]: {cores: 4, load: 0.5}
  'null': {cores: 0, on: false}
weights: {46: 5, b: 0}
shelves:
  - height: 1U
    holds: [a, b c, 'true']
  - height: 2U
notes: {a: "x\L", b: '~'}
`
	first := &rack{Name: "7", Seed: 1, Power: 3, Owner: &owner{Name: "Ann"}, Fan: &fan{},
		Servers: []entry[server]{{"h[0-1]", server{settings: settings{Cores: 4, Load: 0.5}}},
			{"null", server{settings: settings{Zero: marks{"cores": true, "on": true}}}}},
		Weights: []entry[int]{{"46", 5}, {"b", 0}},
		Shelves: []shelf{{Height: 1, Holds: []string{"a", "b c", "true"}}, {Height: 2}},
		Notes:   map[string]string{"b": "~", "a": "x\u2028"}}
	text, err := racksEncoder.Text(first)
	if err != nil || string(text) != want {
		t.Fatalf("%v, got\n%s\nwant\n%s", err, text, want)
	}
	second, _, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if second.Seed = 1; !reflect.DeepEqual(first, second) {
		t.Errorf("decoding gives\n%+v\nwant\n%+v", second, first)
	}
}

// A switch is a mapping, true or false, and an owner a mapping or a name.
func TestShortForms(t *testing.T) {
	for text, want := range map[string]rack{
		"fan: true":                      {Fan: &fan{}},
		"fan: false":                     {Fan: &fan{Off: true}},
		"fan: {speed: 3}":                {Fan: &fan{Speed: 3}},
		"owner: Ann":                     {Owner: &owner{Name: "Ann"}},
		"owner: {phone: '5'}":            {Owner: &owner{Phone: "5"}},
		"owner: {name: Ann, phone: '5'}": {Owner: &owner{Name: "Ann", Phone: "5"}},
	} {
		got, _, err := read("{name: a, " + text + "}")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want.Name = "a"; !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		if line, err := racksEncoder.Line(got); line != "{name: a, "+text+"}" {
			t.Errorf("%s is written as %s, %v", text, line, err)
		}
	}
}
