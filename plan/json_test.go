package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"testing"

	"railbed/plan/spec"
)

// encoded returns the plan's JSON by encoding/json.
func encoded(t *testing.T, p *Plan) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// TestWriteJSON compares the output of WriteJSON and encoding/json, indented and as it is hashed.
// The plans are the golden plans, plans with tables of blocks and of lists, and plans without
// nodes, switches, links or routes.
func TestWriteJSON(t *testing.T) {
	plans := map[string]*Plan{
		"nil":   {Name: "t"},
		"empty": {Nodes: []Node{}, Switches: []Switch{}, Links: []Link{}},
		"links": {Nodes: []Node{{Env: map[string]string{"A": "<&>\n  \"links\": [\n    "}}},
			Links: []Link{{}, {}}},
		"zero": {Switches: []Switch{{Ports: make([]Interface, 2)},
			{Routes: NewRouteTable(make([]Route, 2))}}},
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		testbed, err := spec.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		plans[file] = mustCompile(t, testbed)
	}
	for name, testbed := range routedShapes {
		plans[name] = mustCompile(t, testbed)
		var back Plan
		if err := json.Unmarshal(encoded(t, plans[name]), &back); err != nil {
			t.Fatal(err)
		}
		plans[name+", read back"] = &back
	}
	for name, p := range plans {
		var got bytes.Buffer
		if err := p.WriteJSON(&got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := encoded(t, p); !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.Bytes(), want)
		}
		got.Reset()
		j := newJSONWriter(&got)
		if err := errors.Join(j.plan(p), j.out.Flush()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want, err := json.Marshal(p); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s, for its hash: got\n%s\nwant\n%s, error %v", name, got.Bytes(), want, err)
		}
	}
}

// TestWriteJSONStreams: the JSON of 128 switches with routes over 64 ports takes little memory, and
// equals the output of encoding/json.
func TestWriteJSONStreams(t *testing.T) {
	p := mustCompile(t, generated("leaf-spine", "leaves=64", "spines=64", "hosts-per-leaf=1"))
	want := encoded(t, p)
	got := bytes.NewBuffer(make([]byte, 0, len(want)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := p.WriteJSON(got)
	runtime.ReadMemStats(&after)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("other JSON than that of encoding/json, of %d and %d bytes, error %v", got.Len(), len(want),
			err)
	}
	// With the race detector encoders are pooled now and then only.
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*uint64(len(want)) {
		t.Errorf("%d bytes of JSON took %d bytes of memory, want at most twice as many", len(want), took)
	}
}

// bounded is a writer that accepts only the bytes that are left.
type bounded int

func (left *bounded) Write(p []byte) (int, error) {
	if *left -= bounded(len(p)); *left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestWriteJSONError: WriteJSON returns the error of its writer, wherever in the document it
// occurs.
func TestWriteJSONError(t *testing.T) {
	p := mustCompile(t, generated("leaf-spine", "leaves=8", "spines=8", "hosts-per-leaf=8"))
	whole := len(encoded(t, p))
	for size := 0; size < whole; size += whole / 20 {
		left := bounded(size)
		if err := p.WriteJSON(&left); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %d bytes of %d: error %v", size, whole, err)
		}
	}
}
