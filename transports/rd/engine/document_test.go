package engine

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDocumentNamesTests holds that the tests exist that the document says hold
// its rules.
func TestDocumentNamesTests(t *testing.T) {
	document, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources []byte
	for _, pattern := range []string{"*_test.go", "../*_test.go", "../../../scenarios/engine/*_test.go", "../privacy/*_test.go", "../rate/*/*_test.go", "../../wire/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source...)
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllSubmatch(document, -1)
	if len(named) < 25 {
		t.Fatalf("it names %d tests", len(named))
	}
	for _, name := range named {
		if !regexp.MustCompile("(?m)^func " + string(name[1]) + `\(`).Match(sources) {
			t.Errorf("there is no %s", name[1])
		}
	}
}
