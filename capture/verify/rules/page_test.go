package rules

import (
	"os"
	"strings"
	"testing"

	"railbed/plan/spec"
)

// TestPageShowsEveryKind parses and compiles the examples of docs/how-to/rules.md, which has each kind of
// rule.
func TestPageShowsEveryKind(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "<!-- examples of rules -->\n```yaml\n")
	examples, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("the page has no examples")
	}
	asked, source, err := spec.ParseRules("page", []byte("rules:\n"+examples))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for i := range asked {
		if asked[i].Rule == nil {
			kinds[asked[i].Kind()] = true
			continue
		}
		if err := Check(source, spec.RulesPath(i)+".rule", asked[i].Rule, nil); err != nil {
			t.Error(err)
		}
		kind, _ := asked[i].Rule.Kind()
		kinds[kind] = true
	}
	for _, kind := range append(spec.RuleKinds(), "latency", "link-bytes") {
		if !kinds[kind] {
			t.Errorf("the page has no example of %s", kind)
		}
	}
}
