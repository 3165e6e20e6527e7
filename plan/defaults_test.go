package plan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/plan/spec/keys"
)

// TestDefaultsAreTheDefaults writes each documented default of switches, links and nodes into a file. The
// plan has to be the plan of the file without the key.
func TestDefaultsAreTheDefaults(t *testing.T) {
	compile := func(text string) ([]byte, error) {
		file, err := spec.Decode("defaults.yaml", []byte(text))
		if err != nil {
			return nil, err
		}
		p, err := plan.Compile(file)
		if err != nil {
			return nil, err
		}
		return json.Marshal(p)
	}
	files := map[string][2]string{
		"fabric.switch.": {"name: t\nfabric: {topology: single-switch, params: {hosts: 2}, " +
			"switch: {", "}}\n"},
		"fabric.links.": {"name: t\nfabric: {topology: single-switch, params: {hosts: 2}, " +
			"links: {default: {", "}}}\n"},
		"nodes.": {"name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\n" +
			"nodes: {default: {", "}}\n"},
	}
	compared := 0
	for _, k := range keys.All() {
		for prefix, file := range files {
			below, is := strings.CutPrefix(k.Path, prefix)
			if !is || !k.Literal || strings.Contains(below, "-to-") {
				continue
			}
			parts := strings.Split(below, ".")
			set, without := parts[len(parts)-1]+": "+k.Default, ""
			if len(parts) == 2 { // a group, such as ecn
				set, without = parts[0]+": {"+set+"}", parts[0]+": true"
			}
			want, err := compile(file[0] + without + file[1])
			if err != nil {
				continue // the group has required keys, or is not for this kind of node
			}
			got, err := compile(file[0] + set + file[1])
			if err != nil {
				continue // for another kind of node
			}
			if compared++; !bytes.Equal(got, want) {
				t.Errorf("%s: the plan with %q differs from the plan without it", k.Path, set)
			}
		}
	}
	if compared < 25 {
		t.Errorf("%d defaults compared; there are more", compared)
	}
}
