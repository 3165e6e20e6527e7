package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// Texts of the largest size, each built to cost as much as possible in one place.
func TestHostileTextsAreRefusedInBoundedTime(t *testing.T) {
	const size = 1 << 20
	filled := func(start, format string) string {
		var text strings.Builder
		text.WriteString(start)
		for i := 0; text.Len() < size-100; i++ {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	texts := map[string]string{
		"brackets":          "a: " + strings.Repeat("[", size-3),
		"dashes":            strings.Repeat("- ", size/2),
		"question marks":    strings.Repeat("? ", size/2),
		"block of newlines": "a: |\n " + strings.Repeat("\n", size-6),
		"comments":          filled("", "k%d: 1\n") + strings.Repeat("k: []#c\n", maxLenient+1),
		"quoted tabs":       `a: "` + strings.Repeat("\t", size-4),
		"merge marks":       strings.Repeat("<<", size/2),
		"unknown keys":      filled(head, "k%d: 1\n"),
		"entries":           filled(head+"servers:\n", "  h%d: {}\n") + "  h0: {}\n",
		"aliases":           filled(head+"servers:\n  a: &a {cores: 1, load: 2, on: true}\n", "  h%d: *a\n"),
		"empty elements":    filled(head+"shelves:\n", "- {a%d: 1}\n"),
	}
	hosttest.RefusesHostile(t, texts, size, func(text string) error {
		_, _, err := read(text)
		return err
	})
}

// FuzzDecode reads any text. A text that is accepted is accepted again as the encoder writes it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(strings.ReplaceAll("\uFEFF"+valid, "\n", "\r\n")))
	f.Add([]byte(head + "servers: &n {h0: &x {cores: 1}, \"<<\": *x, 'b\\0': {}}\nnotes: {\"\\x07\": 1}\n"))
	for _, file := range wrongFiles {
		f.Add([]byte(strings.Replace(file.text, here, "", 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, _, err := read(string(text))
		if err != nil {
			checkProblems(t, text, err)
			return
		}
		written, err := racksEncoder.Text(first)
		if err != nil {
			t.Fatal(err)
		}
		second, _, err := read(string(written))
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, written)
		}
		if again, err := racksEncoder.Text(second); string(again) != string(written) {
			t.Fatalf("%v: written as\n%s\nand then as\n%s", err, written, again)
		}
	})
}

// checkProblems checks that each problem has a position in the text and both of its texts.
func checkProblems(t *testing.T, text []byte, err error) {
	t.Helper()
	var problems Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("want Problems, got %v", err)
	}
	lines := strings.Split(string(text), "\n")
	for _, p := range problems {
		if p.File != "f.yaml" || p.Line < 1 || p.Line > len(lines) || p.Column < 1 ||
			p.Column > len([]rune(lines[p.Line-1]))+1 {
			t.Errorf("%v: no such place in %d lines", p, len(lines))
		}
		if p.What == "" || p.Want == "" || strings.ContainsAny(p.Error(), "\n\x00\x1b") {
			t.Errorf("%q is no line for people", p.Error())
		}
	}
}

// Fields of inlined structs have the tags and indices of their own.
func TestFields(t *testing.T) {
	f := FieldOf(reflect.TypeFor[server](), "load")
	if !slices.Equal(f.Index, []int{0, 1}) || f.Tag.Get("yaml") != "load,omitempty" {
		t.Errorf("%+v", f)
	}
	if keys := Keys(Fields(reflect.TypeFor[server]())); !slices.Equal(keys, []string{"cores", "load", "on",
		"kind"}) {
		t.Error(keys)
	}
	words := FieldOf(reflect.TypeFor[server](), "kind").Words(
		map[string][]string{"LARGE": {"b", "small", "c"}})
	if !slices.Equal(words, []string{"small", "b", "c"}) {
		t.Error(words)
	}
}
