// Package plantest compiles plans for tests of other packages.
package plantest

import (
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

// Compile returns the plan of a file's text. An error in the file ends the test.
func Compile(t testing.TB, text string) *plan.Plan {
	t.Helper()
	file, err := spec.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
