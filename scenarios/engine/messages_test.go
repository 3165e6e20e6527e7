package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Messages that there cannot be on a testbed are errors with their place, before anything runs.
func TestMessagesThatCannotBe(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"open: {file: none.txt, load: 40%, count: 5}", "none.txt: no such file"},
		{"open: {file: wrong.txt, load: 40%, count: 5}", `wrong.txt:2: share "most" is no number`},
		{"open: {sizes: data-mining, load: 40%, count: 100000}", "want at most 1GiB"},
		{"cache: {prefill: 2, requests: 1, per-second: 1, layers: 1, layer-time: 1ms, layer-bytes: 1KB}", "2 ranks that prefill, of 2"},
		{"cache: {prefill: 1, trace: wrong.csv, layers: 1, layer-time: 1ms, layer-bytes: 1KB}", `wrong.csv:2: a prompt of "long" tokens`},
		{"blocks: {servers: 2, count: 1}", "2 ranks with storage, of 2"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"file.yaml": "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\nsteps:\n  - messages: {name: m, " + c.keys + "}\n", "wrong.txt": "10 0\n20 most\n", "wrong.csv": "Timestamp,Request tokens\n1,long\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := load(t, filepath.Join(dir, "file.yaml"))
		o.Out = filepath.Join(dir, "out")
		_, err := Run(t.Context(), o)
		if !errors.Is(err, ErrMessages) || !strings.Contains(err.Error(), "file.yaml:4:5: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		}
		if _, err := os.Stat(o.Out); !os.IsNotExist(err) {
			t.Errorf("%s: there are results: %v", c.keys, err)
		}
	}
}
