package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rack is the contents of a file of the tests.
type rack struct {
	Name    string            `yaml:"name"`
	Seed    uint64            `yaml:"seed,omitempty" jsonschema:"minimum=1,maximum=1000" why:"; 0 is no seed"`
	Power   length            `yaml:"power,omitempty"`
	Owner   *owner            `yaml:"owner,omitempty"`
	Fan     *fan              `yaml:"fan,omitempty"`
	Any     *anything         `yaml:"any,omitempty" empty:"all of them"`
	Servers []entry[server]   `yaml:"servers,omitempty"`
	Weights []entry[int]      `yaml:"weights,omitempty"`
	Shelves []shelf           `yaml:"shelves,omitempty"`
	Words   []string          `yaml:"words,omitempty" scalar:"any"`
	Notes   map[string]string `yaml:"notes,omitempty"`
}

// entry is an entry of a mapping in the order of the file.
type entry[T any] struct {
	Key   string
	Value T
}

// length is a scalar.
type length int

func (l *length) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscanf(string(text), "%dU", (*int)(l)); err != nil {
		return fmt.Errorf("length %q: want a number with U, as in 2U", text)
	}
	return nil
}

func (l length) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%dU", int(l)), nil }

func (length) Form() string { return "a length such as 2U" }

// owner may be written as a name.
type owner struct {
	Name  string `yaml:"name,omitempty" alone:"true"`
	Phone string `yaml:"phone,omitempty"`
}

// fan may be written as true or false.
type fan struct {
	Speed int  `yaml:"speed,omitempty"`
	Off   bool `yaml:"-"`
}

type anything struct {
	From string `yaml:"from,omitempty"`
}

type server struct {
	settings `yaml:",inline"`
	Kind     string `yaml:"kind,omitempty" jsonschema:"enum=small,enum=LARGE"`
}

type settings struct {
	Cores int     `yaml:"cores,omitempty"`
	Load  float64 `yaml:"load,omitempty"`
	On    bool    `yaml:"on,omitempty"`
	Zero  marks   `yaml:"-"`
}

// marks marks the keys of settings.
type marks map[string]bool

func (m *marks) Mark(key string) {
	if *m == nil {
		*m = marks{}
	}
	(*m)[key] = true
}

func (m marks) Marked(key string) bool { return m[key] }

type shelf struct {
	Height length   `yaml:"height"`
	Holds  []string `yaml:"holds,omitempty"`
}

var racks = Format{Noun: "rack", Empty: "write name:", InsteadOfMerge: "write the settings",
	MaxBytes: 1 << 20, Depth: 4}

// read decodes and checks the text of a rack.
func read(text string) (*rack, *Source, error) {
	root, err := racks.Parse("f.yaml", []byte(text))
	if err != nil {
		return nil, nil, err
	}
	r := new(rack)
	d := racks.Decoder(NewSource("f.yaml", []byte(text), ""))
	d.Skipped = []string{"include"}
	d.Decode(root, "", r)
	problems := d.Problems
	if !d.Full() {
		c := NewChecker(d.Source, d.Wrong)
		c.Enums = map[string][]string{"LARGE": {"large", "largest", "small"}}
		c.Tags("", r)
		if strings.HasPrefix(r.Name, "-") {
			c.Report("name", "name begins with -", "another name")
		}
		problems = append(problems, c.Problems...)
	}
	return r, d.Source, problems.Err()
}

// The mark is at the position at which the problem must be reported. It is removed before the text
// is decoded.
const here = "§"

const head = "name: a\n"

// wrongFiles are files with exactly one problem each, with the position, the error and the correct
// form.
var wrongFiles = []struct {
	name, text string
	what, want string
}{
	// Keys.
	{"unknown key", head + here + "sed: 7\n", `unknown key "sed" in the file`, `did you mean "seed"?`},
	{"unknown key near a skipped one", head + here + "inclde: 7\n", `unknown key "inclde" in the file`,
		`did you mean "include"?`},
	{"unknown key, nothing near", head + here + "frobnicate: 7\n", `unknown key "frobnicate"`,
		"want one of name, seed, power, owner, fan, any, servers, weights, shelves, words, notes, include"},
	{"unknown key deep", head + "servers:\n  h0: {kind: small, " + here + "core: 2}\n",
		`unknown key "core" in servers["h0"]`, `did you mean "cores"?`},
	{"unknown key in a list", head + "shelves:\n  - height: 1U\n  - height: 2U\n    " + here + "hold: [a]\n",
		`unknown key "hold" in shelves[1]`, `did you mean "holds"?`},
	{"key in capitals", here + "Name: a\n", `unknown key "Name"`, `did you mean "name"?`},
	{"duplicate key", head + "seed: 1\n" + here + "seed: 2\n", `key "seed" appears twice in the file`,
		"the first is at line 2, column 1"},
	{"duplicate entry", head + "servers:\n  h0: {cores: 1}\n  h1: {cores: 1}\n  " + here + "h0: {cores: 2}\n",
		`key "h0" appears twice in servers`, "remove one; the first is at line 3"},
	{"duplicate key in a map", head + "notes: {A: '1', " + here + "A: '2'}\n",
		`key "A" appears twice in notes`, "remove one"},
	{"list as a key", head + "servers:\n  ? " + here + "[h0]\n  : {}\n",
		"a key that is not plain text in servers", `write "key: value"`},
	{"merge key", head + "servers:\n  h0: &x {cores: 1}\n  h1: {" + here + "<<: *x}\n",
		`merge key << in servers["h1"]`, "merge keys are not read; write the settings"},
	{"key of 300 bytes", head + "servers: {" + here + strings.Repeat("h", 300) + ": {}}\n",
		"a key of 300 bytes in servers", "at most 256"},
	{"missing key", here + "seed: 1\n", `the file lacks the key "name"`, "add name: text"},
	{"missing key of an element", head + "shelves: [{height: 1U}, " + here + "{holds: [a]}]\n",
		`shelves[1] lacks the key "height"`, "add height: a length such as 2U"},

	// Types.
	{"list for the file", here + "- name: a\n", "the file is a list",
		"write a mapping with keys such as name"},
	{"mapping for a list", head + "shelves:\n  " + here + "height: 1U\n", "shelves is a mapping",
		"lines that start with -"},
	{"text for a list", head + "shelves: [{height: 1U, holds: " + here + "all}]\n",
		`shelves[0].holds is the text "all"`, "write a list, as in [a, b]"},
	{"nothing for a mapping", head + "servers:\n  h0:" + here + "\n", `servers["h0"] is empty`,
		"write a mapping with keys such as cores"},
	{"nothing for a mapping at the end", head + "servers:\n  ? h0" + here, `servers["h0"] is empty`,
		"write a mapping with keys such as cores"},
	{"text for a mapping that may be empty", head + "any: " + here + "x\n", `any is the text "x"`,
		"write a mapping with keys such as from, or {} for all of them"},
	{"list for a name", head + "owner: " + here + "[x]\n", "owner is a list",
		"write a name, or a mapping with keys such as name, phone"},
	{"text for a switch", head + "fan: " + here + "quiet\n", `fan is the text "quiet"`,
		"write true, false or a mapping with keys such as speed"},
	{"nothing for text", "name: " + here + "~\n", "name is empty", "write text, or remove the key"},
	{"empty text", "name: " + here + "''\n", "name is empty", "write text"},
	{"number for text", "name: " + here + "7\n", "name is the number 7", `"7" in quotes is text`},
	{"number for an entry of a map", head + "notes: {A: " + here + "[7]}\n", `notes["A"] is a list`,
		"write text"},
	{"text for a number", head + "seed: " + here + "\"7\"\n", `seed is the text "7"`, "without quotes"},
	{"hexadecimal", head + "seed: " + here + "0x1f\n", "seed is the number 0x1f", "decimal digits"},
	{"octal", head + "seed: " + here + "017\n", "seed is the number 017", "decimal digits"},
	{"fraction for a whole number", head + "servers: {h0: {cores: " + here + "1.5}}\n",
		`servers["h0"].cores is the number 1.5`, "a whole number from 0"},
	{"negative", head + "seed: " + here + "-1\n", "seed is the number -1",
		"a whole number from 0 to 18446744073709551615"},
	{"overflow", head + "seed: " + here + "18446744073709551616\n", "seed is the number 18446744073709551616",
		"from 0 to 18446744073709551615"},
	{"yes for true", head + "servers: {h0: {on: " + here + "yes}}\n", `on is the text "yes"`,
		"write true or false"},
	{"infinite", head + "servers: {h0: {load: " + here + ".inf}}\n", "load is the number .inf",
		"a number in decimal digits"},
	{"tag", head + "seed: " + here + "!!int 7\n", `tag "!!int"`, "remove it"},
	{"scalar", head + "power: " + here + "2\n", `length "2" cannot be read`, "want a number with U, as in 2U"},
	{"list for a scalar", head + "power: " + here + "[2U]\n", "power is a list", "write a length such as 2U"},

	// Tags of fields.
	{"below a bound", head + "seed: " + here + "0\n", "seed is 0", "want 1 to 1000; 0 is no seed"},
	{"above a bound", head + "seed: " + here + "1001\n", "seed is 1001", "want 1 to 1000"},
	{"word of no enumeration", head + "servers: {h0: {kind: " + here + "medium}}\n",
		`servers["h0"].kind "medium" does not exist`, "want small or large or largest"},
	{"word near one", head + "servers: {h0: {kind: " + here + "lagest}}\n", `kind "lagest" does not exist`,
		"want small or large or largest"},
	{"what the caller reports", "name: " + here + "-a\n", "name begins with -", "another name"},

	// YAML itself.
	{"only comments", here + "# nothing\n\n", "the file is empty", "write name:"},
	{"second document", head + here + "---\nname: b\n", "a second document starts here",
		"one file is one rack"},
	{"tab", head + "fan:\n" + here + "\tspeed: 1\n", "a tab in the indentation", "indent with spaces"},
	{"invalid UTF-8", "name: é" + here + "\xff\n", "byte 0xff is not UTF-8", "save the file as UTF-8"},
	{"NUL byte", "name: a" + here + "\x00\n", "character U+0000 is not text", "remove it"},
	{"line separator", "name: a" + here + "\u2028b\n", "character U+2028 is not text", "remove it"},
	{"two colons", "name: one" + here + ": two\n", `a second ": " in one value`, `quote text that holds ": "`},
	{"open bracket", "name: a\nowner: {name: x\nseed" + here + ": 1\n", "did not find expected ',' or '}'",
		"close what line 2, column 8 opened"},
	{"open brace before a comment", "{#0" + here, "a value is missing here", "close what is open"},
	{"open quote", "name: \"a\nseed: 1\n" + here, "the file ends inside quotes",
		"close what line 1, column 7 opened"},
	{"reserved character", "name: " + here + "@a\n", "text cannot start with '@'", "put the text in quotes"},
	{"text after a quote", "name: 'a' " + here + "b\nseed: 1\n", "an entry that does not line up",
		"quote the value"},
	{"unknown alias", head + "servers: {h0: " + here + "*big}\n", "unknown anchor 'big'",
		"define the anchor with &"},
	{"alias without a name", head + "words: [" + here + "*]\n", "an alias or anchor without a name",
		"quote text that starts with *"},
	{"cyclic alias", head + "words: &x [h0, " + here + "*x]\n", "alias *x is inside its own anchor",
		"cannot contain itself"},
	{"cyclic mapping", head + "servers: &x\n  h0: " + here + "*x\n", "alias *x is inside its own anchor",
		"cannot contain itself"},
	{"deep nesting", "name: " + strings.Repeat("[", 64) + here + "[]" + strings.Repeat("]", 64) + "\n",
		"too many levels of nesting", "at most 64; a rack needs 4"},
	{"deep blocks", "fan:\n  " + strings.Repeat("- ", 63) + here + strings.Repeat("- ", 4000) + "x\n",
		"too many levels of nesting", "at most 64"},
}

func TestWrongFiles(t *testing.T) {
	for _, file := range wrongFiles {
		t.Run(file.name, func(t *testing.T) {
			before, after, marked := strings.Cut(file.text, here)
			if !marked {
				t.Fatal("the text has no mark")
			}
			line := strings.Count(before, "\n") + 1
			column := len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
			_, _, err := read(before + after)
			var problems Problems
			if !errors.As(err, &problems) || len(problems) != 1 {
				t.Fatalf("want one problem, got\n%v", err)
			}
			p := problems[0]
			if p.File != "f.yaml" || p.Line != line || p.Column != column {
				t.Errorf("want f.yaml:%d:%d, got %v", line, column, p)
			}
			if !strings.Contains(p.What, file.what) || !strings.Contains(p.Want, file.want) {
				t.Errorf("want %q; %q\ngot  %q; %q", file.what, file.want, p.What, p.Want)
			}
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, _, err := read("name: 7\nshelves: [{height: 2}, {}]\nsed: 1\n")
	const want = `f.yaml:1:7: name is the number 7; write text; "7" in quotes is text
f.yaml:2:20: length "2" cannot be read; want a number with U, as in 2U
f.yaml:2:24: shelves[1] lacks the key "height"; add height: a length such as 2U
f.yaml:3:1: unknown key "sed" in the file; did you mean "seed"?`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// An alias repeats a value but not its problem.
func TestProblemOfAnAliasIsReportedOnce(t *testing.T) {
	_, _, err := read(head + "servers: {h0: &x {load: many}, h1: *x, h2: *x}\n")
	const want = `f.yaml:2:25: servers["h0"].load is the text "many"; write a number in decimal digits`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	_, _, err := read(head + "shelves:\n" + strings.Repeat("  - {}\n", 5000))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 101 ||
		!strings.Contains(lines[100], "problems more") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// Nested aliases expand to 10^9 values in a few lines.
func TestExplodingAliasesAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString(head + "shelves:\n  - {height: 1U, holds: &c [" +
		strings.TrimSuffix(strings.Repeat("a, ", 3000), ", ") + "]}\n")
	for range 200 {
		text.WriteString("  - {height: 1U, holds: *c}\n")
	}
	start := time.Now()
	_, _, err := read(text.String())
	if err == nil || !strings.Contains(err.Error(),
		"aliases stand for more than 100000 values; write fewer") {
		t.Errorf("got %.300v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	// The billion laughs attack: the types end the descent at the second level.
	laughs := head + "words: &a [x, x]\nshelves:\n  - &b [*a, *a, *a]\n  - &c [*b, *b, *b]\n" +
		"  - [*c, *c, *c]\n"
	if _, _, err := read(laughs); err == nil {
		t.Error("a list of lists of aliases is accepted")
	}
}

func TestReadFileRefusesOtherFiles(t *testing.T) {
	folder := t.TempDir()
	fifo := filepath.Join(folder, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(folder, "huge.yaml")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 100_000_000); err != nil { // sparse
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo:                          "is a FIFO, not a file; name a regular file, or - for standard input",
		folder:                        "is a directory, not a file",
		"/dev/zero":                   "is a device, not a file",
		huge:                          "has 100000000 bytes; a rack has at most 1048576 bytes",
		filepath.Join(folder, "none"): "cannot be read: no such file or directory; name a file",
	} {
		_, err := racks.ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), path+":1:1: the file ") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// endless is a reader that never ends.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	e.read += len(p)
	return len(p), nil
}

func TestReadFromStopsAtTheLimit(t *testing.T) {
	stdin := &endless{}
	text, err := racks.ReadFrom("standard input", stdin)
	if err != nil {
		t.Fatal(err)
	}
	_, err = racks.Parse("standard input", text)
	if err == nil || !strings.Contains(err.Error(),
		"standard input:1:1: the file has more than 1048576 bytes; a rack has at most 1048576 bytes") {
		t.Errorf("got %v", err)
	}
	if stdin.read > 4<<20 {
		t.Errorf("read %d bytes", stdin.read)
	}
	if text, err := racks.ReadFrom("standard input", bytes.NewReader([]byte(head))); string(text) != head {
		t.Errorf("got %q, %v", text, err)
	}
}
