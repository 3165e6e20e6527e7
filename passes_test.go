package main

import (
	"regexp"
	"testing"

	"railbed/testkit/hosttest/passes"
)

// TestEveryTestRunsInAPass divides the tests as make test does. It finds the tests without package passes,
// and so sees a test that the division lacks. A test that has the name of a marked test in another package
// may be left out with it, and needs another name.
func TestEveryTestRunsInAPass(t *testing.T) {
	packages, err := passes.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := passes.Divide(packages, "root", "-race")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)(?:[^a-z(]\w*)?)\(`)
	count := 0
	for _, s := range readSources(t) {
		if !s.isTest() {
			continue
		}
		for _, found := range declared.FindAllSubmatch(s.text, -1) {
			if name := string(found[1]); name != "TestMain" {
				count++
				if !runsIn(runs, s.folder(), name) {
					t.Errorf("%s: no run of make test has %s", s.path, name)
				}
			}
		}
	}
	if count < 1000 {
		t.Errorf("found %d tests, this cannot be the module", count)
	}
}

func runsIn(runs []passes.Run, folder, test string) bool {
	for _, run := range runs {
		if run.Runs(folder, test) {
			return true
		}
	}
	return false
}
