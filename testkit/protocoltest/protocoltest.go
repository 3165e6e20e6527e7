// Package protocoltest reads the examples in the documents that define our formats. Tests compare
// them with the code that reads and writes these formats.
package protocoltest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents contain the examples; each name is in only one of them.
var documents = []string{"fabric/softswitch/PROTOCOL.md", "transports/rd/PROTOCOL.md"}

// Example returns the bytes of the hex block with this name. The test must run somewhere in the
// module, as under go test.
func Example(t testing.TB, name string) []byte {
	t.Helper()
	block := regexp.MustCompile("(?s)```hex " + regexp.QuoteMeta(name) + "\n(.*?)```")
	var found [][]byte
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join(module(t), filepath.FromSlash(document)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range block.FindAllSubmatch(text, -1) {
			found = append(found, match[1])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s have %d examples %s, want one", strings.Join(documents, " and "), len(found), name)
	}
	bytes, err := hex.DecodeString(strings.Join(strings.Fields(string(found[0])), ""))
	if err != nil {
		t.Fatalf("example %s: %v", name, err)
	}
	return bytes
}

// module returns the directory of go.mod: the test's working directory or one of its parents.
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
