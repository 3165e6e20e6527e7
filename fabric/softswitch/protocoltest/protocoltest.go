// Package protocoltest reads the examples of fabric/softswitch/PROTOCOL.md, which
// tests hold against what reads and writes these formats.
package protocoltest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Example is the bytes of the document's hex block with a name. The test runs
// somewhere in the module, as go test has it.
func Example(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(module(t), "fabric", "softswitch", "PROTOCOL.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hex " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("PROTOCOL.md has no example %s", name)
	}
	bytes, err := hex.DecodeString(strings.Join(strings.Fields(string(found[1])), ""))
	if err != nil {
		t.Fatalf("example %s of PROTOCOL.md: %v", name, err)
	}
	return bytes
}

// module is the folder of go.mod above the one that the test runs in.
func module(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("no go.mod above the test's folder")
		}
		folder = above
	}
}
