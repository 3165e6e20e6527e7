package nearest

import (
	"strings"
	"testing"
)

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

func TestSuggest(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = "name"
	}
	for _, c := range []struct {
		word       string
		words      []string
		near, hint string
	}{
		{"rat", []string{"loss", "rate"}, "rate", `did you mean "rate"?`},
		{"x", []string{"loss", "rate"}, "", "want loss or rate"},
		{"x", []string{"a", "b", "c", "d"}, "", "want one of a, b, c, d"},
		{"x", many, "", "want one of " + strings.Repeat("name, ", 20) + "..."},
	} {
		if near, hint := Suggest(c.word, c.words); near != c.near || hint != c.hint {
			t.Errorf("%q among %q: %q, %q", c.word, c.words, near, hint)
		}
	}
}
