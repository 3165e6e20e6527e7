package nearest

import "testing"

func TestWord(t *testing.T) {
	for _, c := range []struct {
		word       string
		candidates []string
		want       string
	}{
		{"rat", []string{"loss", "rate", "delay"}, "rate"},
		{"raet", []string{"rate"}, "rate"}, // A swapped pair counts as two.
		{"Leaf1--Spine2", []string{"leaf1--spine2"}, "leaf1--spine2"},
		{"x", []string{"y"}, ""}, // All letters differ.
		{"leaf", []string{"spine"}, ""},
		{"leafspine", []string{"fat-tree", "leaf-spine"}, "leaf-spine"},
		{"h9", []string{"h0", "h1"}, "h0"}, // the first of equals
		{"", []string{"a"}, ""},
	} {
		if got := Word(c.word, c.candidates); got != c.want {
			t.Errorf("%q among %q: %q, want %q", c.word, c.candidates, got, c.want)
		}
	}
}
