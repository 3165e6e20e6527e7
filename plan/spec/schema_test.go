package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"railbed/internal/units"
	"railbed/plan/schedule"
)

var update = flag.Bool("update", false, "write railbed.schema.json anew")

// Forms of the units in the schema. TestUnitPatterns compares them with the parsers.
var unitForms = map[reflect.Type]jsonschema.Schema{
	reflect.TypeFor[units.Rate](): {Type: "string", Format: "rate",
		Pattern:     `^[0-9]+(\.[0-9]+)? ?(k|[mM]|[gG]|[tT])?bit(/s)?$`,
		Description: "A bit rate such as 1gbit."},
	reflect.TypeFor[units.Bytes](): {Type: "string", Format: "size",
		Pattern:     `^[0-9]+(\.[0-9]+)?([KMG]i?)?B$`,
		Description: "A size such as 40KB or 16MiB."},
	reflect.TypeFor[units.Duration](): {Type: "string", Format: "time-span",
		Pattern:     `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`,
		Description: "A duration such as 10us."},
	reflect.TypeFor[units.Ratio](): {Format: "share",
		Description: "A share such as 0.1%, 1/1000 or 1e-12; of other bare numbers 0 alone.",
		AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(%|/[0-9]+(\.[0-9]+)?|[eE]-[0-9]{1,2})|0+(\.0+)?)$`},
			// A schema does not see how a number is written. Exponents are for shares of at most 0.001.
			{Type: "number", Minimum: "0", Maximum: "0.001"},
		}},
	reflect.TypeFor[units.Factor](): {Format: "factor",
		Description: "A number above 0 such as 0.5, 8 or 1/3.",
		AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)?(/[0-9]+(\.[0-9]+)?)?$`},
			{Type: "number", ExclusiveMinimum: "0"},
		}},
	reflect.TypeFor[units.Offset](): {Type: "string", Format: "offset",
		Pattern:     `^[+-]?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`,
		Description: "A time such as 10s or -10s."},
	reflect.TypeFor[units.Drift](): {Type: "string", Format: "drift",
		Pattern:     `^[+-]?[0-9]+(\.[0-9]+)?pp[mb]$`,
		Description: "A drift such as 100ppm or -100ppm."},
}

// newReflector returns a reflector with schemas for the types that JSON Schema's reflection does
// not know.
func newReflector(t *testing.T) *jsonschema.Reflector {
	r := &jsonschema.Reflector{FieldNameTag: "yaml"}
	if err := r.AddGoComments("railbed/plan/spec", ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	r.Mapper = func(typ reflect.Type) *jsonschema.Schema {
		if form, known := unitForms[typ]; known {
			return &form
		}
		if !strings.HasPrefix(typ.Name(), "Ordered[") {
			return nil
		}
		value, _ := typ.Elem().FieldByName("Value")
		values := &jsonschema.Schema{Type: "integer", Minimum: "0"}
		if value.Type.Kind() == reflect.Struct {
			values = &jsonschema.Schema{Ref: "#/$defs/" + value.Type.Name()}
		}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: values}
	}
	return r
}

// property returns a property of the schema, such as Workload.name.
func property(t *testing.T, s *jsonschema.Schema, path string) *jsonschema.Schema {
	t.Helper()
	typ, key, _ := strings.Cut(path, ".")
	definition := s.Definitions[typ]
	if definition == nil {
		t.Fatalf("schema has no definition of %s", typ)
	}
	found, ok := definition.Properties.Get(key)
	if !ok {
		t.Fatalf("schema has no property %s", path)
	}
	return found
}

// makeSchema makes the schema from the types. It adds constraints that struct tags cannot express:
// forms of names, lists that cannot be empty, and exclusive choices.
func makeSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := newReflector(t)
	s := r.Reflect(&Testbed{})
	for _, used := range []any{&Node{}, &Switch{}, &Link{}} {
		maps.Copy(s.Definitions, r.Reflect(used).Definitions)
	}
	s.ID, s.Title = "", "Railbed testbed"
	for path, form := range map[string]string{
		"Testbed.name": testbedName.String(), "Workload.name": nodeName.String(),
		"Exec.name":    nodeName.String(),
		"Capture.file": captureName.String(), "WorkloadCheck.busbw": comparisonForm.String(),
		"Traffic.name": nodeName.String(), "Training.name": nodeName.String(),
		"MarksCheck.share": boundForm.String(), "MarksCheck.count": boundForm.String(),
		"DropsCheck.count": boundForm.String(),
		"TrimsCheck.count": boundForm.String(), "PausesCheck.count": boundForm.String(),
		"PausesCheck.paused":    boundForm.String(),
		"ReorderingCheck.share": boundForm.String(), "QueueDepthCheck.max": boundForm.String(),
		"QueueDepthCheck.p99": boundForm.String(),
		"Probe.name":          nodeName.String(), "Probe.arrived": boundForm.String(),
		"Probe.paths": boundForm.String(), "Probe.queue": boundForm.String(),
		"ThroughputCheck.rate": boundForm.String(), "ThroughputCheck.fairness": boundForm.String(),
	} {
		property(t, s, path).Pattern = form
	}
	one := uint64(1)
	for _, path := range []string{"Capture.at", "Traffic.from", "Exec.nodes", "Exec.command"} {
		property(t, s, path).MinItems = &one
	}
	scalar := []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}
	property(t, s, "Exec.command").Items = &jsonschema.Schema{AnyOf: scalar}
	property(t, s, "Stack.command").Items = &jsonschema.Schema{AnyOf: scalar}
	property(t, s, "Node.env").AdditionalProperties = &jsonschema.Schema{AnyOf: scalar}
	property(t, s, "Node.sysctls").AdditionalProperties = &jsonschema.Schema{AnyOf: scalar}
	for _, path := range []string{"Switch.ecn", "Switch.trim", "Switch.pfc", "Switch.gfc",
		"Switch.aggregation"} {
		p := property(t, s, path)
		p.Ref, p.AnyOf = "", []*jsonschema.Schema{{Ref: p.Ref}, {Type: "boolean"}}
	}
	for _, path := range []string{"Direction.gilbert-elliott", "Direction.flap", "Link.gilbert-elliott",
		"Link.flap"} { // true has no defaults to take
		p := property(t, s, path)
		p.Ref, p.AnyOf = "", []*jsonschema.Schema{{Ref: p.Ref}, {Type: "boolean", Const: false}}
	}
	named := property(t, s, "PacketsCheck.bytes-per-rank")
	named.Ref, named.AnyOf = "", []*jsonschema.Schema{{Ref: named.Ref},
		{Type: "string", Pattern: nodeName.String()}}
	for _, path := range []string{"Scheduler.strict", "ECN.priorities", "Trim.priorities", "PFC.priorities",
		"GFC.priorities", "PauseFrames.priorities"} {
		p := property(t, s, path)
		p.UniqueItems, p.Items = true, &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: "7"}
	}
	for path, keys := range map[string]string{"Switch.priorities": `^([0-9]|[1-5][0-9]|6[0-3])$`,
		"Scheduler.weights": `^[0-7]$`} {
		property(t, s, path).PropertyNames = &jsonschema.Schema{Pattern: keys}
	}
	property(t, s, "Switch.priorities").AdditionalProperties = &jsonschema.Schema{Type: "integer",
		Minimum: "0", Maximum: "7"}
	property(t, s, "Scheduler.weights").AdditionalProperties = &jsonschema.Schema{Type: "integer",
		Minimum: "1", Maximum: "1000"}
	for path, numbers := range map[string][]any{"Workload.ip": {"4", "6", 4, 6},
		"Training.ip": {"4", "6", 4, 6}, "Messages.ip": {"4", "6", 4, 6}, "Probe.ip": {"4", "6", 4, 6},
		"SGD.bits": {"2", "4", "8", 2, 4, 8}} {
		p := property(t, s, path)
		p.Type, p.Enum = "", numbers
	}
	for typ, choices := range map[string][]string{
		"Step":         stepKeys(),
		"Check":        {"workload", "packets", "why", "fidelity"},
		"PacketsCheck": packetChecks,
		"Rule":         RuleKinds(),
		"Traffic":      {"to", "shift", "pause"},
		"Workload":     {"size", "sizes"},
		"Training":     {"model", "trace"},
		"Messages":     {"open", "closed", "cache", "blocks"},
		"OpenMessages": {"sizes", "file"}, "ClosedMessages": {"sizes", "file"},
		"CacheMessages": {"per-second", "trace"},
	} {
		for _, choice := range choices {
			s.Definitions[typ].OneOf = append(s.Definitions[typ].OneOf,
				&jsonschema.Schema{Required: []string{choice}})
		}
	}
	workload, sizeless := s.Definitions["Workload"], jsonschema.NewProperties()
	sizeless.Set("kind", &jsonschema.Schema{Enum: []any{KindSGD, KindMoE, Barrier}})
	workload.If, workload.Else, workload.OneOf = &jsonschema.Schema{Properties: sizeless},
		&jsonschema.Schema{OneOf: workload.OneOf}, nil
	addCollectives(t, s)
	addVariables(r, s)
	addWords(t, s)
	return s
}

// addCollectives adds the values and the sentences that follow from the kinds of package schedule.
func addCollectives(t *testing.T, s *jsonschema.Schema) {
	t.Helper()
	var names, kinds, formulas []string
	for _, kind := range schedule.Kinds() {
		names = append(names, string(kind))
		if about := kind.Properties().About; about != "" {
			kinds = append(kinds, inLines(fmt.Sprintf("  - %s %s.", kind, about), "    "))
		}
		if sends := kind.Properties().Sends; sends != "" {
			formulas = append(formulas, inLines(fmt.Sprintf("  - %s: %s.", formula(string(kind),
				defaultAlgorithm(string(kind))), sends), "    "))
		}
	}
	last := len(names) - 1
	p := property(t, s, "Workload.kind")
	first, rest, _ := strings.Cut(p.Description, "\n")
	first = strings.Replace(first, "{Kinds}", strings.Join(names[:last], ", ")+" or "+names[last], 1)
	p.Enum, p.Description = nil, inLines(first, "")+"\n"+
		strings.Replace(rest, "  - {About}", strings.Join(kinds, "\n"), 1)
	for _, value := range enumOf[Workload]("kind") {
		p.Enum = append(p.Enum, value)
	}
	p = property(t, s, "BytesPerRank.formula")
	p.Enum, p.Description = nil, strings.Replace(p.Description, "  - {Sends}",
		strings.Join(formulas, "\n"), 1)
	for _, value := range enumOf[BytesPerRank]("formula") {
		p.Enum = append(p.Enum, value)
	}
}

// inLines breaks a line into lines of the length of comments.
func inLines(line, indent string) string {
	const most = 93
	var text strings.Builder
	for len(line) > most {
		end := strings.LastIndexByte(line[:most+1], ' ')
		text.WriteString(line[:end] + "\n")
		line = indent + line[end+1:]
	}
	return text.String() + line
}

// addVariables adds the keys of a File, and lets each value be a variable.
func addVariables(r *jsonschema.Reflector, s *jsonschema.Schema) {
	maps.Copy(s.Definitions, r.Reflect(&Compare{}).Definitions)
	maps.Copy(s.Definitions, r.Reflect(&Claim{}).Definitions)
	s.Definitions["Compare"].Properties.Value("ratio").Pattern = rangeForm.String()
	s.Definitions["Compare"].Properties.Value("baseline").Pattern = boundForm.String()
	scalar := []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}
	for of, keys := range map[string][]string{"Compare": {"cells", "beside"}, "Claim": {"baseline",
		"treatment"}} {
		for _, key := range keys {
			p := s.Definitions[of].Properties.Value(key)
			p.AdditionalProperties = &jsonschema.Schema{AnyOf: scalar}
		}
	}
	for _, pair := range s.Definitions {
		for p := pair.Properties.Oldest(); p != nil; p = p.Next() {
			p.Value = orVariable(p.Value)
		}
	}
	s.Definitions["Variable"] = &jsonschema.Schema{Type: "string", Pattern: `\$\{` +
		strings.Trim(variableName.String(), "^$") + `\}`,
		Description: "The value of a variable or of an axis of the matrix."}
	maps.Copy(s.Definitions, r.Reflect(&Matrix{}).Definitions)
	one := uint64(1)
	names := &jsonschema.Schema{Pattern: variableName.String()}
	matrix := s.Definitions["Matrix"]
	matrix.PropertyNames = names
	matrix.AdditionalProperties = &jsonschema.Schema{Type: "array", MinItems: &one, UniqueItems: true,
		Items: &jsonschema.Schema{AnyOf: scalar}, Description: "The values of an axis."}
	keys := s.Definitions["Testbed"].Properties
	keys.Set(variablesKey, &jsonschema.Schema{Type: "object", PropertyNames: names,
		Description: "Variables maps " +
			"names to values. Each ${name} in a value of the file is replaced by the variable's " +
			"value. The option --set NAME=VALUE gives a variable another value. Default none."})
	keys.Set(matrixKey, &jsonschema.Schema{Ref: "#/$defs/Matrix",
		Description: "Matrix makes a testbed of each " +
			"combination of the values of its axes, which are variables. `railbed test` runs all of them. " +
			"Default: one testbed."})
	keys.Set(claimKey, &jsonschema.Schema{Ref: "#/$defs/Claim",
		Description: "Claim is a claim of a publication, which compare proves. Default none."})
	keys.Set(compareKey, &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Ref: "#/$defs/Compare"},
		Description: "Compare lists checks between cells of the matrix. Default none."})
	keys.Set(controlKey, &jsonschema.Schema{Type: "array", MinItems: &one, Items: &jsonschema.Schema{
		Type: "object", PropertyNames: names, AdditionalProperties: &jsonschema.Schema{AnyOf: scalar}},
		Description: "Control lists values of variables that take out the treatment of the file. " +
			"`railbed test --control` runs the file with each of them, and the run must not pass. Default " +
			"none."})
}

// orVariable returns a schema that also accepts a variable, unless the schema accepts every text.
func orVariable(p *jsonschema.Schema) *jsonschema.Schema {
	if p.Items != nil {
		p.Items = orVariable(p.Items)
	}
	if values := p.AdditionalProperties; values != nil && values != jsonschema.FalseSchema {
		p.AdditionalProperties = orVariable(values)
	}
	any := func(p *jsonschema.Schema) bool { return p.Type == "string" && p.Pattern == "" && p.Enum == nil }
	if any(p) || slices.ContainsFunc(p.AnyOf, any) {
		return p
	}
	inner := *p
	inner.Description = ""
	return &jsonschema.Schema{Description: p.Description,
		AnyOf: []*jsonschema.Schema{&inner, {Ref: "#/$defs/Variable"}}}
}

func TestSchemaFileIsMadeFromTheTypes(t *testing.T) {
	made, err := json.MarshalIndent(makeSchema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	made = append(made, '\n')
	if *update {
		if err := os.WriteFile("railbed.schema.json", made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(made, Schema()) {
		t.Error("railbed.schema.json differs from the types; run go generate ./plan/spec")
	}
}

// compiled compiles the schema in a third-party validator.
func compiled(t testing.TB) *validator.Schema {
	t.Helper()
	document, err := validator.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat() // as some editors do: no form of ours may have the name of a format of JSON Schema
	if err := c.AddResource("railbed.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("railbed.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON parses YAML as an editor's language server does.
func asJSON(t testing.TB, text []byte) any {
	t.Helper()
	var value any
	if err := yaml.Load(text, &value); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(textKeys(value))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := validator.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// textKeys turns keys such as 46 into text, because JSON has no other keys.
func textKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = textKeys(v[key])
		}
	case map[any]any:
		made := map[string]any{}
		for key := range v {
			made[fmt.Sprint(key)] = textKeys(v[key])
		}
		return made
	case []any:
		for i := range v {
			v[i] = textKeys(v[i])
		}
	}
	return value
}

func TestExamplesPassDecoderAndSchema(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	scenarios, err := filepath.Glob("../../scenarios/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../scenarios/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scenarios = append(scenarios, more...)
	s := compiled(t)
	for _, file := range append(files, scenarios...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeAll(string(text)); err != nil {
			t.Errorf("decoder: %s: %v", file, err)
		}
		if err := s.Validate(asJSON(t, text)); err != nil {
			t.Errorf("schema: %s: %v", file, err)
		}
		checkSchemaComment(t, file, string(text))
	}
}

// checkSchemaComment checks that an editor can find the schema from the file.
func checkSchemaComment(t *testing.T, file, text string) {
	t.Helper()
	first, _, _ := strings.Cut(text, "\n")
	relative, found := strings.CutPrefix(first, "# yaml-language-server: $schema=")
	if !found {
		t.Errorf("%s: the first line names no schema", file)
		return
	}
	named, err := os.ReadFile(filepath.Join(filepath.Dir(file), relative))
	if err != nil || !bytes.Equal(named, Schema()) {
		t.Errorf("%s: the schema %s: %v", file, relative, err)
	}
}

// The schema alone must refuse everything that an editor should underline.
func TestSchemaRefuses(t *testing.T) {
	const good = "name: a\nfabric: {topology: single-switch, params: {hosts: 2}}\n"
	s := compiled(t)
	if err := s.Validate(asJSON(t, []byte(good))); err != nil {
		t.Fatalf("the good file: %v", err)
	}
	for name, text := range map[string]string{
		"unknown key":          good + "sed: 1\n",
		"unknown key deep":     good + "nodes: {h0: {rank: 1}}\n",
		"unknown key in list":  good + "steps: [{sleep: 1s, slep: 1s}]\n",
		"unknown key in link":  good + "steps: [{link: {where: a--b, set: {los: 1%}}}]\n",
		"missing key":          "name: a\n",
		"missing deep key":     good + "steps: [{workload: {name: a, kind: all-reduce}}]\n",
		"name":                 "name: A B\nfabric: {topology: explicit}\n",
		"topology":             "name: a\nfabric: {topology: ring}\n",
		"rate":                 good + "nodes: {}\nsteps: [{link: {where: a--b, set: {rate: 1gbps}}}]\n",
		"bare number as size":  good + "nodes: {h0: {memory: 4096}}\n",
		"bare number as share": good + "steps: [{link: {where: a--b, set: {loss: 1}}}]\n",
		"share above one":      good + "steps: [{link: {where: a--b, set: {loss: 2}}}]\n",
		"mtu":                  "name: a\nfabric: {topology: explicit, links: {default: {mtu: 100}}}\n",
		"number as text":       good + "seed: \"7\"\n",
		"dilation":             good + "dilation: 1001\n",
		"no step":              good + "steps: [{}]\n",
		"two in one step":      good + "steps: [{sleep: 1s, exec: {nodes: [h0], command: [ls]}}]\n",
		"two in one check":     good + "checks: [{fidelity: faithful, workload: {name: a}}]\n",
		"no packets check":     good + "checks: [{packets: {}}]\n",
		"fidelity":             good + "checks: [{fidelity: best}]\n",
		"capture path":         good + "steps: [{capture: {at: [all], file: ../a.pcapng}}]\n",
		"empty command":        good + "steps: [{exec: {nodes: [h0], command: []}}]\n",
		"busbw":                good + "checks: [{workload: {name: a, busbw: 3}}]\n",
		"trim as text":         "name: a\nfabric: {topology: explicit, switch: {trim: yes please}}\n",
		"priority 8":           "name: a\nfabric: {topology: explicit, switch: {pfc: {priorities: [8]}}}\n",
		"DSCP 64":              "name: a\nfabric: {topology: explicit, switch: {priorities: {64: 1}}}\n",
		"alpha 0":              "name: a\nfabric: {topology: explicit, switch: {alpha: 0}}\n",
		"half a burst": good +
			"steps: [{link: {where: a--b, set: {gilbert-elliott: {enter: 1%}}}}]\n",
		"list instead of text": "name: [a]\nfabric: {topology: explicit}\n",
	} {
		if err := s.Validate(asJSON(t, []byte(text))); err == nil {
			t.Errorf("%s: the schema accepts\n%s", name, text)
		}
		if _, err := Decode("f", []byte(text)); err == nil {
			t.Errorf("%s: the decoder accepts\n%s", name, text)
		}
	}
}

// Every property needs a description, because editors show descriptions.
func TestSchemaDescribesEveryProperty(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal(Schema(), &document); err != nil {
		t.Fatal(err)
	}
	for typ, definition := range document["$defs"].(map[string]any) {
		fields := definition.(map[string]any)
		if typ == "Variable" {
			continue
		}
		if fields["additionalProperties"] != false && typ != "Matrix" { // its other keys are axes
			t.Errorf("%s accepts unknown keys", typ)
		}
		for key, p := range fields["properties"].(map[string]any) {
			if p.(map[string]any)["description"] == nil {
				t.Errorf("%s.%s has no description", typ, key)
			}
		}
	}
}

func TestUnitPatternsAgreeWithParsers(t *testing.T) {
	texts := map[reflect.Type][]string{
		reflect.TypeFor[units.Rate](): {"1gbit", "2.5gbit", "0bit", "1.5bit", "1", "1Gbit", "200 Mbit/s",
			"1Kbit", "1  gbit", "1gbit/", "1 /s", "1GBIT", "1gbit ", "1e3bit", "-1bit", ".5gbit", "1.gbit",
			"gbit", "8bit", "3tbit"},
		reflect.TypeFor[units.Bytes](): {"40KB", "16MiB", "0B", "1500", "1kB", "1.5KB", "1GiB", "B",
			"1TB"},
		reflect.TypeFor[units.Duration](): {"10us", "10µs", "1.5s", "1m30s", "0s", "0", "-1s", "10", "1d",
			"s", "2h"},
		reflect.TypeFor[units.Ratio](): {"0.1%", "0.001", "1", "0", "0.0", "1/1000", "0%", "100%", "%",
			"1/", "-1%", "x", "1e-12", "2.5E-09", "1e-009", "1e9", "1e-9%", ".5e-9"},
		reflect.TypeFor[units.Factor](): {"1", "0.5", "8", "1/3", "x", "-1", "1/", "1%", ".5", "1e3"},
		reflect.TypeFor[units.Offset](): {"10s", "-10s", "+1.5s", "10", "--1s", "-s"},
		reflect.TypeFor[units.Drift]():  {"100ppm", "-0.5ppm", "20ppb", "100", "1%", "ppm", "-ppb"},
	}
	for typ, list := range texts {
		schema := map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema"}
		form := unitForms[typ]
		encoded, err := json.Marshal(&form)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &schema); err != nil {
			t.Fatal(err)
		}
		c := validator.NewCompiler()
		if err := c.AddResource("unit.json", schema); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile("unit.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range list {
			into := reflect.New(typ).Interface().(interface{ UnmarshalText([]byte) error })
			parses := into.UnmarshalText([]byte(text)) == nil
			matches := s.Validate(text) == nil
			// A pattern cannot detect that 1.5bit is not a whole number of bits.
			if parses != matches && text != "1.5bit" {
				t.Errorf("%s %q: the parser says %v, the schema %v", typ, text, parses, matches)
			}
		}
	}
}
