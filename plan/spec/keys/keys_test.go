package keys_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/plan/spec"
	"railbed/plan/spec/keys"
	"railbed/plan/topology"
)

func TestFind(t *testing.T) {
	for path, want := range map[string]string{
		"":                                 "",
		"fabric.links.loss":                "fabric.links.loss",
		"links.mtu":                        "fabric.links.mtu",
		"switches":                         "fabric.switches",
		"pfc":                              "fabric.switch.pfc",
		"switches.pfc.xoff":                "fabric.switches.pfc.xoff",
		"checks.packets.roce":              "checks.packets.roce",
		"nodes.h0.cpu":                     "nodes.cpu",
		"nodes.*.cpu":                      "nodes.cpu",
		`fabric.switches["leaf1"].ecn`:     "fabric.switches.ecn",
		"steps[3].workload.rd":             "steps.workload.rd",
		"fabric.params":                    "fabric.params",
		"steps.workload.rd.control":        "steps.workload.rd.control",
		"matrix.repeat":                    "matrix.repeat",
		"checks.packets.bytes-per-rank":    "checks.packets.bytes-per-rank",
		"steps.fault.partition":            "steps.fault.partition",
		"fabric.links.a-to-b.jitter-kind.": "fabric.links.a-to-b.jitter-kind",
		"links.default":                    "fabric.links", // entries
		"fabric.links.leaf1--spine2":       "fabric.links",
		"fabric.links.host":                "fabric.links",
		"nodes.h0":                         "nodes",
		"nodes.gpu0":                       "nodes", // and not nodes.cpu
		"nodes.default":                    "nodes",
		"nodes.env.PATH":                   "nodes.env",
		"nodes.h0.sysctls.net.core.x":      "nodes.sysctls",
		"switches.spine*":                  "fabric.switches",
		"fabric.params.*":                  "fabric.params",
		"fabric.params.striped":            "fabric.params.striped",
		"params.rails":                     "fabric.params.rails",
		"striped":                          "fabric.params.striped",
	} {
		key, err := keys.Find(path)
		if err != nil || key.Path != want {
			t.Errorf("%q: %v, %v, want %s", path, key, err, want)
		}
	}
	if key, _ := keys.Find("rd.spray"); !slices.Contains(key.Also, "steps.training.rd.spray") {
		t.Errorf("rd.spray is also at %v", key.Also)
	}
}

func TestWrongPaths(t *testing.T) {
	for path, want := range map[string]string{
		"chekcs.packets":                 "did you mean checks.packets?",
		"checks.packets.roec":            `checks.packets has no key "roec"; did you mean checks.packets.roce?`,
		"fabric.links.los":               "did you mean fabric.links.loss?",
		"switches.pfc.xof":               "did you mean fabric.switches.pfc.xoff?",
		"workloads.collective.algorithm": "did you mean steps.workload.algorithm?",
		"loss":                           "several places; want one of fabric.links.loss",
		"fabric.qqqqqqqqqqqq":            "fabric has no key \"qqqqqqqqqqqq\"; it has topology, params",
		"seed.x":                         "it has no keys",
		"nodes.h0.cpuu":                  `nodes has no key "cpuu"; did you mean nodes.cpu?`,
		"fabric.params.stripd":           "did you mean fabric.params.striped?",
		"params.zzzzzzzzzzzz":            `no parameter "zzzzzzzzzzzz"; they have aggs, global-links, groups`,
		"retransmissions":                "keys whose descriptions have this word: ",
		"zzzzzzzzzzzzzzzzzz":             "files have no key \"zzzzzzzzzzzzzzzzzz\"; they have name",
	} {
		if key, err := keys.Find(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", path, key, err, want)
		}
	}
}

// TestParameters describes a parameter with the topologies that have it, and gives a valid example.
func TestParameters(t *testing.T) {
	for _, g := range topology.Generators() {
		for _, p := range g.Params {
			key, err := keys.Find("fabric.params." + p.Name)
			if err != nil || !strings.Contains(key.Description, "- "+g.Name+": "+p.Doc+" (") ||
				key.Since == "" || len(key.Fields()) > 0 {
				t.Errorf("%s: %+v, %v", p.Name, key, err)
				continue
			}
			value, err := strconv.Atoi(strings.TrimPrefix(key.Value(), "{"+p.Name+": ")[:1])
			if err != nil || value < p.Min || value > p.Max || p.Even && value%2 != 0 ||
				!strings.HasPrefix(key.Example(), "fabric:\n  params:\n    "+p.Name+": ") {
				t.Errorf("%s of %s: example %s", p.Name, g.Name, key.Example())
			}
		}
	}
}

// Each key of the schema is a key of the tree, and has all its words.
func TestAllKeys(t *testing.T) {
	all := keys.All()
	if len(all) < 700 {
		t.Fatalf("%d keys; there are more", len(all))
	}
	for _, k := range all {
		if k.Type == "" || k.Description == "" || k.Summary() == "" || k.Example() == "" || k.Value() == "" {
			t.Errorf("%s: type %q, description %q, example %q", k.Path, k.Type, k.Description, k.Example())
		}
		if k.Default == "" && !k.Required && !k.Choice {
			t.Errorf("%s has no default", k.Path)
		}
		if strings.Contains(strings.Join(k.Paragraphs(), " "), "Default "+k.Default+".") {
			t.Errorf("%s: the description repeats the default", k.Path)
		}
		said, _, _ := strings.Cut(keys.Group(k.Group), ". ")
		said = strings.Join(strings.Fields(said), " ")
		again := func(p string) bool { return strings.HasPrefix(p, said) }
		if k.Path != "" && said != "" && slices.ContainsFunc(k.Paragraphs()[1:], again) {
			t.Errorf("%s: the description says twice what the key is: %q", k.Path, said)
		}
	}
	roce, _ := keys.Find("checks.packets.roce.rule")
	if len(roce.Values) != 7 || roce.Type != "word" || !roce.Required {
		t.Errorf("%+v", roce)
	}
}

// The example of a key can be read as a part of a file.
func TestExamplesParse(t *testing.T) {
	for _, k := range keys.All() {
		text := k.Example()
		if _, err := spec.ParseTree("example.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v\n%s", k.Path, err, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 200 {
				t.Errorf("%s: a line of %d characters", k.Path, len(line))
			}
		}
	}
	switches, _ := keys.Find("fabric.switches")
	if want := "fabric:\n  switches:\n    spine*: {ecn: true}\n"; switches.Example() != want {
		t.Errorf("example %q, want %q", switches.Example(), want)
	}
}

var update = flag.Bool("update", false, "add new keys to the last release of since.txt")

// TestSince: each key has the release that brought it, and each key of that list exists.
func TestSince(t *testing.T) {
	text, err := os.ReadFile("since.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed, now := keys.Releases(string(text)), map[string]bool{}
	for _, k := range append(keys.All(), keys.Root()) {
		for _, f := range k.Fields() {
			now[k.Group+"."+f.Name()] = true
		}
	}
	for key := range listed {
		if !now[key] {
			t.Errorf("since.txt: no file has the key %s: remove it", key)
		}
	}
	var fresh []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if listed[key] == "" {
			fresh = append(fresh, key)
		}
	}
	if len(fresh) == 0 {
		return
	}
	if !*update {
		t.Fatalf("since.txt lacks %s; make generate adds them to the last release",
			strings.Join(fresh, ", "))
	}
	for _, key := range fresh {
		text = fmt.Appendf(text, "\t%s\n", key)
	}
	if err := os.WriteFile("since.txt", text, 0o644); err != nil {
		t.Fatal(err)
	}
}
