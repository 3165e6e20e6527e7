package strictyaml

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestTextsOfPyYAML has texts that PyYAML 6.0.3 accepts and the parser refuses: of 14,000 random texts that
// PyYAML accepts these were the only classes, besides empty documents. The values are PyYAML's.
func TestTextsOfPyYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: [x, y]#comment\nb: 1\n":      "a=[x y] b=1",
		"a: {x: y}#comment\nb: 1\n":      "a={x=y} b=1",
		"a: \"x\"#comment\nb: 1\n":       "a=x b=1",
		"a: 'x'#comment\nb: 1\n":         "a=x b=1",
		"a: [x,#c\n y]\n":                "a=[x y]",
		"a: [#c\n x]\n":                  "a=[x]",
		"a: ['x'#c\n, y]#d\nb: {#e\n}\n": "a=[x y] b={}",
		"a: é\nb: ['é']#c\n":             "a=é b=[é]",
		"a: x#y\n":                       "a=x#y",
		"%YAML 1.2\n---\na: 1\n":         "a=1",
		"%YAML 1.3 # c\r\n---\r\na: 1\n": "a=1",
		"a: 1\n---\n":                    "a=1",
		"a: 1\n...\n---\n# end\n":        "a=1",
	} {
		tree, err := racks.Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := values(tree); got != "{"+want+"}" {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	// Positions behind a comment are positions in the file.
	tree, err := racks.Parse("f", []byte("a: [x, #c\n y]#d\nb: [z]#e\n"))
	if err != nil {
		t.Fatal(err)
	}
	if b := tree.Content[2]; b.Line != 3 || b.Column != 1 || tree.Content[1].Content[1].Column != 2 {
		t.Errorf("b is at %d:%d, y in column %d, want 3:1 and 2", b.Line, b.Column,
			tree.Content[1].Content[1].Column)
	}
	for text, want := range map[string]string{
		strings.Repeat("- []#c\n", maxLenient+1): "f:9:5: a comment without a space before its #",
		"%YAML 2.0\n---\na: 1\n":                 "f:1:1: ",
		"a: 1\n---\n---\nb: 1\n":                 "f:3:1: a second document starts here",
	} {
		if _, err := racks.Parse("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

// values returns the values of a tree in a short form.
func values(n *yaml.Node) string {
	var all []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			all = append(all, n.Content[i].Value+"="+values(n.Content[i+1]))
		}
		return "{" + strings.Join(all, " ") + "}"
	case yaml.SequenceNode:
		for _, c := range n.Content {
			all = append(all, values(c))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return n.Value
}
