package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// numbers reads the constants of a file that are plain numbers.
func numbers(t *testing.T, path string) map[string]float64 {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, declaration := range parsed.Decls {
		block, is := declaration.(*ast.GenDecl)
		if !is || block.Tok != token.CONST {
			continue
		}
		for _, spec := range block.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if i >= len(value.Values) {
					continue
				}
				if literal, is := value.Values[i].(*ast.BasicLit); is {
					if number, err := strconv.ParseFloat(literal.Value, 64); err == nil {
						found[name.Name] = number
					}
				}
			}
		}
	}
	return found
}

// FIDELITY.md gives the limits that runs and recordings are judged by.
func TestFidelityShowsTheLimits(t *testing.T) {
	limits := numbers(t, "capture/verify/limits.go")
	text, err := os.ReadFile("FIDELITY.md")
	if err != nil {
		t.Fatal(err)
	}
	percent := func(name string) string {
		limit, known := limits[name]
		if !known {
			t.Errorf("capture/verify has no constant %s", name)
		}
		return fmt.Sprintf("%.0f %%", limit*100)
	}
	for _, row := range []string{
		"| rate of a busy link, off the asked one | " + percent("RateDegraded") + " | " +
			percent("RateOverloaded") + " |",
		"| packets that captures lost | " + percent("LostDegraded") + " | " + percent("LostOverloaded") +
			" |",
		"| time in which some task waited for a CPU | " + percent("PressureDegraded") +
			" | never by itself |",
		"| CPU time that the hypervisor gave to others | " + percent("StealDegraded") + " | " +
			percent("StealOverloaded") + " |",
		fmt.Sprintf("there must be %.0f.", limits["BusyLeast"]),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("FIDELITY.md does not say %q", row)
		}
	}
}

// TestScenariosStateTheirTime: the comment at the head of each scenario has the time of a run.
func TestScenariosStateTheirTime(t *testing.T) {
	states := regexp.MustCompile(`takes? about (a|one|two|three|four|five|ten|half a|\d+) (second|minute)s?`)
	count := 0
	err := filepath.WalkDir("scenarios", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case filepath.Ext(path) != ".yaml", strings.HasSuffix(path, "pytorch.yaml"): // not measured
			return nil
		}
		text, err := os.ReadFile(path)
		head, _, _ := strings.Cut(string(text), "\nname:")
		if !states.MatchString(strings.Join(strings.Fields(strings.ReplaceAll(head, "#", "")), " ")) {
			t.Errorf("%s: the comment lacks a sentence such as: A run takes about 5 seconds.", path)
		}
		count++
		return err
	})
	if err != nil || count < 60 {
		t.Error(count, err)
	}
}
