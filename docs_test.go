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
	"slices"
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
	percentOf := func(file, name string) string {
		limit, known := numbers(t, file)[name]
		if !known {
			t.Errorf("%s has no constant %s", file, name)
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
		"| time that programs of a node waited for a CPU, while no link carried " +
			percentOf("scenarios/runner/measure/kernels.go", "linkBound") + " of its rate | " +
			percentOf("scenarios/runner/measure/kernels.go", "starvedDegraded") +
			" of the run | never by itself |",
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

// TestLinks follows the links of all pages to files of the repository and to headings.
func TestLinks(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)\s:#]*)(#[^)\s]+)?\)`)
	checked := 0
	for _, page := range markdown(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links.FindAllStringSubmatch(withoutCode(string(text)), -1) {
			target := page
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			found, err := os.ReadFile(target)
			checked++
			switch {
			case err != nil:
				t.Errorf("%s: link to %s: %v; a link to a folder has no page", page, link[1], err)
			case link[2] != "" && !slices.Contains(anchors(string(found)), link[2][1:]):
				t.Errorf("%s: %s has no heading %s", page, target, link[2])
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d links were checked", checked)
	}
}

// withoutCode is a page without its blocks and words of code.
func withoutCode(page string) string {
	return regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```|`[^`\n]*`").ReplaceAllString(page, "")
}

// anchors are the names of a page's headings in links.
func anchors(page string) (names []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := drop.ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return names
}

// markdown are the pages of the repository.
func markdown(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "out" || len(name) > 1 && name[0] == '.') {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
