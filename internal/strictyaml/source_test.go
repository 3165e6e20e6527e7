package strictyaml

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const valid = `name: b # a comment
power: 3U
owner: Ann
fan: {speed: 0}
servers:
  "h[0-1]": {kind: small, cores: 4}
  h2: &two
    load: 0.5
  h3: *two
shelves:
  - {height: 1U, holds: [a, "b c"]}
  - height: 2U
`

func TestPositions(t *testing.T) {
	for _, ending := range []string{"\n", "\r\n"} {
		// Characters of several bytes count as one column.
		text := strings.ReplaceAll(strings.Replace(valid, "name: b", `name: "Ä→𝄞"`, 1), "\n", ending)
		_, source, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"":                        "1:1",
			"name":                    "1:7",
			"fan":                     "4:1",
			"fan.speed":               "4:14",
			`servers["h[0-1]"]`:       "6:3",
			`servers["h[0-1]"].cores`: "6:34",
			`servers["h2"].load`:      "8:11",
			`shelves[0].holds[1]`:     "11:29",
			`shelves[1]`:              "12:5",
			`shelves[1].height`:       "12:13",
			// A value that the file omits has the position of the value that would contain it.
			`servers["h[0-1]"].load`: "6:3",
			`servers["h9"].load`:     "5:1",
			"seed":                   "1:1",
		} {
			if got := source.Pos(path).String(); got != "f.yaml:"+want {
				t.Errorf("%s: got %s, want %s", path, got, want)
			}
		}
		for path, want := range map[string]string{"name": "1:1", `servers["h[0-1]"].cores`: "6:27",
			"shelves[1]": "12:5", "seed": "1:1"} {
			if got := source.KeyPos(path).String(); got != "f.yaml:"+want {
				t.Errorf("key of %s: got %s, want %s", path, got, want)
			}
		}
		for path, want := range map[string]bool{"name": true, "fan.speed": true, "seed": false,
			"shelves[2]": false} {
			if source.Has(path) != want {
				t.Errorf("%s: got %v", path, !want)
			}
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		want   string
	}{
		{"name: abc", 1, "f:1:8"},
		{"name: 'it''s'", 3, "f:1:12"},
		{`name: "a\"b"`, 2, "f:1:11"},
		{"name: a\n  b", 2, "f:2:3"},
		{"name: |\n  a\n  bc\n", 3, "f:3:4"},
		{"name: >-\n   a\n   bc\n", 2, "f:3:4"},
		{"name: ä→b", 5, "f:1:9"},
	} {
		root, err := racks.Parse("f", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		d := racks.Decoder(NewSource("f", []byte(c.text), ""))
		d.Decode(root, "", new(rack))
		if got := d.Source.Within("name", c.offset).String(); got != c.want {
			t.Errorf("byte %d of %q is at %s, want %s", c.offset, c.text, got, c.want)
		}
		d.FailAt(root.Content[1], c.offset, "wrong", "right")
		if got := d.Problems.Error(); got != c.want+": wrong; right" {
			t.Errorf("byte %d of %q: %s", c.offset, c.text, got)
		}
		d.Replaced(root.Content[1])
		if got := d.Source.Within("name", c.offset); got != d.Source.Pos("name") {
			t.Errorf("a replaced value: %s", got)
		}
	}
}

// A value built in Go has no positions, so that its problems have the paths.
func TestNoSource(t *testing.T) {
	c := NewChecker(nil, nil)
	c.Tags("", &rack{Shelves: []shelf{{}}})
	const want = "name: the file lacks the key \"name\"; add name: text\n" +
		"shelves[0].height: shelves[0] lacks the key \"height\"; add height: a length such as 2U"
	if err := c.Problems.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var none *Source
	if none.Cell() != "" || none.Has("a") || none.Within("a", 3) != (Position{}) {
		t.Error("a nil source has positions")
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a": "", FieldPath("", "a"): "", FieldPath("a", "b"): "a", "a[3]": "a", "a[3].b": "a[3]",
		`a["x.y[0]"]`: "a", FieldPath(EntryPath("a", "x.y[0]"), "b"): `a["x.y[0]"]`,
		EntryPath("a", `x"]`): "a",
	} {
		if got := ParentPath(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestErrOfNoProblems(t *testing.T) {
	if err := (Problems)(nil).Err(); err != nil {
		t.Errorf("got %v", err)
	}
}

// FuzzWithin parses any text, and asks for the places of the bytes of its first value. They are within the
// text.
func FuzzWithin(f *testing.F) {
	for _, text := range []string{"name: a\nnote: b c", "note: 'it''s'", `note: "a\"b"`, "note: >-\n  a\n  b\n",
		"note: |\n  a\n\n  b\n", "note: a\n  b\n", "note: 'a\n\n  b'"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, err := racks.Parse("f", []byte(text))
		if err != nil || len(root.Content) < 2 {
			return
		}
		value := root.Content[1]
		d := racks.Decoder(NewSource("f", []byte(text), ""))
		d.Mark("x", root.Content[0], value)
		lines := strings.Split(text, "\n")
		for offset := range len(value.Value) + 2 {
			at := d.Source.Within("x", offset)
			if at.Line < 1 || at.Line > len(lines) || at.Column < 1 ||
				at.Column > utf8.RuneCountInString(lines[at.Line-1])+1 {
				t.Fatalf("byte %d of %q in %q is at %v", offset, value.Value, text, at)
			}
		}
	})
}
