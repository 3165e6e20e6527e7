// Package plantest makes the plans that tests of other packages are about.
package plantest

import (
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

// Compile is the plan of a file's text. Whatever is wrong with the file ends the
// test.
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
