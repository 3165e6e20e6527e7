package spec

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// editor speaks the Language Server Protocol to yaml-language-server, as editors do.
type editor struct {
	t        *testing.T
	in       io.Writer
	out      *bufio.Reader
	bound    *time.Timer // ends the server
	settings map[string]any
	asked    int
}

type message struct {
	Version string          `json:"jsonrpc"`
	ID      any             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// openEditor starts the server with a folder as its workspace. The test ends it. An answer that takes longer
// than hosttest.Bound ends it too: then all reads fail.
func openEditor(t *testing.T, folder string, schemas any) *editor {
	t.Helper()
	hosttest.Need(t, hosttest.YAMLServer)
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, "yaml-language-server", "--stdio")
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	bound := time.AfterFunc(hosttest.Bound, cancel)
	t.Cleanup(func() {
		bound.Stop()
		cancel()
		server.Wait()
	})
	e := &editor{t: t, in: in, out: bufio.NewReader(out), bound: bound}
	e.settings = map[string]any{"yaml": map[string]any{
		"validate": true, "hover": true, "completion": true, "schemas": schemas,
		"schemaStore": map[string]any{"enable": false}, // else the server asks the network for it
	}}
	e.ask("initialize", map[string]any{
		"processId": os.Getpid(), "rootUri": "file://" + folder,
		"workspaceFolders": []any{map[string]any{"uri": "file://" + folder, "name": "railbed"}},
		"capabilities": map[string]any{
			"workspace": map[string]any{"configuration": true, "workspaceFolders": true},
		},
	})
	e.tell("initialized", map[string]any{})
	return e
}

func (e *editor) write(m message) {
	e.t.Helper()
	m.Version = "2.0"
	body, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// read returns the next message. It answers requests of the server itself.
func (e *editor) read() message {
	e.t.Helper()
	for {
		header, err := textproto.NewReader(e.out).ReadMIMEHeader()
		if err != nil {
			e.t.Fatalf("yaml-language-server answers no more: %v", err)
		}
		length, err := strconv.Atoi(header.Get("Content-Length"))
		if err != nil {
			e.t.Fatal(err)
		}
		var m message
		body := make([]byte, length)
		if _, err := io.ReadFull(e.out, body); err != nil {
			e.t.Fatal(err)
		}
		if err := json.Unmarshal(body, &m); err != nil {
			e.t.Fatalf("%v: %s", err, body)
		}
		if m.Method == "" || m.ID == nil {
			return m
		}
		answer := message{ID: m.ID, Result: json.RawMessage("null")}
		if m.Method == "workspace/configuration" {
			var wanted struct{ Items []struct{ Section string } }
			if err := json.Unmarshal(m.Params, &wanted); err != nil {
				e.t.Fatal(err)
			}
			var values []any
			for _, item := range wanted.Items {
				values = append(values, e.settings[item.Section])
			}
			answer.Result = marshal(e.t, values)
		}
		e.write(answer)
	}
}

func marshal(t *testing.T, value any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (e *editor) tell(method string, params any) {
	e.t.Helper()
	e.write(message{Method: method, Params: marshal(e.t, params)})
}

func (e *editor) ask(method string, params any) json.RawMessage {
	e.t.Helper()
	e.bound.Reset(hosttest.Bound)
	e.asked++
	e.write(message{ID: e.asked, Method: method, Params: marshal(e.t, params)})
	for {
		m := e.read()
		if m.ID != float64(e.asked) || m.Method != "" {
			continue
		}
		if m.Error != nil {
			e.t.Fatalf("%s: %s", method, m.Error)
		}
		return m.Result
	}
}

// open shows the server a file, and returns the first report about it: one line:column: message each.
func (e *editor) open(path, text string) []string {
	e.t.Helper()
	e.tell("textDocument/didOpen", map[string]any{"textDocument": map[string]any{
		"uri": "file://" + path, "languageId": "yaml", "version": 1, "text": text}})
	return e.report(path)
}

// report waits for the next report about a file.
func (e *editor) report(path string) []string {
	e.t.Helper()
	e.bound.Reset(hosttest.Bound)
	for {
		m := e.read()
		if m.Method != "textDocument/publishDiagnostics" {
			continue
		}
		var published struct {
			URI         string
			Diagnostics []struct {
				Range   struct{ Start struct{ Line, Character int } }
				Message string
			}
		}
		if err := json.Unmarshal(m.Params, &published); err != nil {
			e.t.Fatal(err)
		}
		if published.URI != "file://"+path {
			continue
		}
		reported := []string{}
		for _, d := range published.Diagnostics {
			if strings.HasPrefix(d.Message, "Unused anchor") {
				continue // advice about YAML, not about the schema
			}
			start := d.Range.Start
			reported = append(reported, fmt.Sprintf("%d:%d: %s", start.Line+1, start.Character+1, d.Message))
		}
		return reported
	}
}

// at opens a file whose text has a cursor, |, and asks about the place of the cursor.
func (e *editor) at(method, path, text string) json.RawMessage {
	e.t.Helper()
	before, after, _ := strings.Cut(text, "|")
	e.open(path, before+after)
	line := strings.Count(before, "\n")
	column := len(before) - strings.LastIndex(before, "\n") - 1
	return e.ask(method, map[string]any{"textDocument": map[string]any{"uri": "file://" + path},
		"position": map[string]any{"line": line, "character": column}})
}

// completions are the labels that the server offers at the cursor.
func (e *editor) completions(path, text string) []string {
	e.t.Helper()
	var list struct{ Items []struct{ Label string } }
	if err := json.Unmarshal(e.at("textDocument/completion", path, text), &list); err != nil {
		e.t.Fatal(err)
	}
	var labels []string
	for _, item := range list.Items {
		labels = append(labels, item.Label)
	}
	return labels
}

// TestEditorCompletes asks the server that most editors use.
func TestEditorCompletes(t *testing.T) {
	schema, err := filepath.Abs("railbed.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	const fabric = "fabric: {topology: single-switch, params: {hosts: 2}}\n"
	modeline := "# yaml-language-server: $schema=file://" + schema + "\n"
	folder := t.TempDir()
	e := openEditor(t, folder, map[string]any{})
	for i, c := range []struct {
		text         string
		want, absent []string
	}{
		{"na|", []string{"name", "fabric", "nodes", "steps", "checks"}, []string{"workload", "topology"}},
		{"name: x\n" + fabric + "steps:\n  - |",
			[]string{"capture", "workload", "fault", "probe", "sleep"}, []string{"fabric", "topology"}},
		{"name: x\n" + fabric + "steps:\n  - workload:\n      name: ar\n      |",
			[]string{"kind", "size", "transport"}, []string{"capture", "name"}},
		{"name: x\nfabric:\n  topology: |",
			[]string{"leaf-spine", "fat-tree", "hpn"}, []string{"all-reduce"}},
	} {
		got := e.completions(fmt.Sprintf("%s/complete%d.yaml", folder, i), modeline+c.text)
		for _, label := range c.want {
			if !slices.Contains(got, label) {
				t.Errorf("%q: %q is not offered: %q", c.text, label, got)
			}
		}
		for _, label := range c.absent {
			if slices.Contains(got, label) {
				t.Errorf("%q: %q is offered: %q", c.text, label, got)
			}
		}
	}

	hover := string(e.at("textDocument/hover", folder+"/hover.yaml",
		modeline+"name: x\n"+fabric+"nodes: {}\nste|ps: []\n"))
	if !strings.Contains(hover, "steps run in order") {
		t.Errorf("hover over steps: %s", hover)
	}

	for name, c := range map[string]struct{ text, want string }{
		"right": {"name: x\n" + fabric + "steps:\n  - sleep: 1s\n", ""},
		"top":   {"name: x\nfabrik: {}\n" + fabric, "3:1: Property fabrik is not allowed."},
		"inside": {"name: x\n" + fabric + "steps:\n  - sleep: 1s\n    sped: 2\n",
			"6:5: Property sped is not allowed."},
		"topology": {"name: x\nfabric: {topology: ring}\n", "3:20: Value is not accepted."},
	} {
		got := e.open(folder+"/"+name+".yaml", modeline+c.text)
		if (c.want == "") != (len(got) == 0) || !strings.HasPrefix(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: reported %q, want %q", name, got, c.want)
		}
	}
}

// TestEditorAccepts shows the server the files whose first line names the schema, by a relative path.
func TestEditorAccepts(t *testing.T) {
	folder, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("files %v, %v", files, err)
	}
	e := openEditor(t, folder, map[string]any{})
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# yaml-language-server: $schema=../railbed.schema.json\n") {
			continue
		}
		if got := e.open(file, string(text)); len(got) > 0 {
			t.Errorf("%s: %q", filepath.Base(file), got)
		}
		wrong := strings.TrimSuffix(file, ".yaml") + "-wrong.yaml"
		if got := e.open(wrong, string(text)+"\nno-such-key: 1\n"); len(got) != 1 ||
			!strings.HasSuffix(got[0], ":1: Property no-such-key is not allowed.") {
			t.Errorf("%s with a wrong key: %q", filepath.Base(file), got)
		}
	}
}

// TestEditorKnowsFiles opens files without a line that names the schema, with the settings of the container
// for development.
func TestEditorKnowsFiles(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(root + "/.devcontainer/devcontainer.json")
	if err != nil {
		t.Fatal(err)
	}
	var container struct {
		Customizations struct {
			VSCode struct{ Settings map[string]any }
		}
	}
	if err := json.Unmarshal(raw, &container); err != nil {
		t.Fatal(err)
	}
	const wrong = "name: x\nfabric: {topology: single-switch, params: {hosts: 2}}\nno-such-key: 1\n"
	const want = "3:1: Property no-such-key is not allowed."
	e := openEditor(t, root, container.Customizations.VSCode.Settings["yaml.schemas"])
	// The server reads its settings after it has begun to answer, and then reports anew.
	first := root + "/out/railbed.yaml"
	for got := e.open(first, wrong); !slices.Equal(got, []string{want}); got = e.report(first) {
		if len(got) > 0 {
			t.Fatalf("reported %q, want %q", got, want)
		}
	}
	for name, known := range map[string]bool{"ring.railbed.yaml": true, "ring.railbed.yml": true,
		"railbed.yml": false, "compose.yaml": false} {
		got := e.open(root+"/out/"+name, wrong)
		if known != slices.Equal(got, []string{want}) || !known && len(got) > 0 {
			t.Errorf("%s: reported %q, and that it is a testbed is %v", name, got, known)
		}
	}
}
