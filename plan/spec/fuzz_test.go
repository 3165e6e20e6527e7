package spec

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// maxTime bounds the decoding of a fuzzed file of at most some KiB. It has a wide margin for a busy
// machine.
const maxTime = 5 * time.Second

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"testdata/scenario.yaml", "testdata/soft.yaml"} {
		example, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(example)
		f.Add(bytes.ReplaceAll(example, []byte("\n"), []byte("\r\n")))
	}
	f.Add([]byte("\uFEFF" + head))
	f.Add([]byte(head + "nodes: &n {h0: &x {env: {A: 'b\\0', \"<<\": \"\\x07\"}}, h1: *x}\n"))
	for _, file := range slices.Concat(wrongFiles, wrongSoftFiles, wrongJobFiles, wrongFaultFiles,
		wrongTimelineFiles, wrongMatrixFiles) {
		f.Add([]byte(strings.Replace(file.text, here, "", 1)))
	}
	schema := compiled(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		start := time.Now()
		first, err := Decode("f.yaml", text)
		if took := time.Since(start); took > maxTime {
			t.Fatalf("took %v", took)
		}
		if err != nil {
			checkProblems(t, text, err)
			return
		}
		again, err := Decode("f.yaml", text)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("a second decoding differs: %v", err)
		}
		if err := first.Check(); err != nil {
			t.Fatalf("accepted, and then refused: %v", err)
		}
		written := roundTrip(t, first)
		if err := schema.Validate(asJSON(t, written)); err != nil {
			t.Fatalf("the schema refuses %v\n%s", err, written)
		}
	})
}

// checkProblems checks that each problem has a position in the file and both of its texts.
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
