package plan

import (
	"strings"
	"testing"
)

func TestLinksAt(t *testing.T) {
	p := mustCompileText(t, leafSpineFile())
	for where, want := range map[string]string{
		"leaf1--spine2":                 "leaf1--spine2",
		"leaf1--spine2 b-to-a":          "leaf1--spine2 b-to-a",
		"spine2--leaf1":                 "leaf1--spine2",
		"spine2--leaf1 a-to-b":          "leaf1--spine2 b-to-a",
		"leaf1--spine* a-to-b":          "leaf1--spine1 a-to-b, leaf1--spine2 a-to-b",
		"spine1--* a-to-b":              "leaf1--spine1 b-to-a, leaf2--spine1 b-to-a",
		"spine[1-2]--leaf2":             "leaf2--spine1, leaf2--spine2",
		"*--spine2":                     "leaf1--spine2, leaf2--spine2",
		"leaf1-spine1":                  `no link is named "leaf1-spine1"; did you mean "leaf1--spine1"?`,
		"spine1--leaf3":                 `no link is named "spine1--leaf3"; want the name of a link`,
		"spine2":                        "the links of spine2 are leaf1--spine2, leaf2--spine2",
		"q*--*":                         "a pattern that matches one",
		"leaf1--spine1 sideways":        `direction "sideways": want a-to-b or b-to-a`,
		"leaf1--spine1 a-to-b backward": `direction "a-to-b backward": want a-to-b or b-to-a`,
	} {
		var got []string
		places, err := p.LinksAt(where)
		for _, place := range places {
			got = append(got, place.Where())
		}
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", where, err, want)
			}
		} else if have := strings.Join(got, ", "); have != want {
			t.Errorf("%q: %s, want %s", where, have, want)
		}
	}
}
