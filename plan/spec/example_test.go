package spec_test

import (
	"errors"
	"fmt"

	"railbed/plan/spec"
)

// Each problem of a file has a position, and says what would be right.
func ExampleDecode() {
	_, err := spec.Decode("f.yaml", []byte(`name: four
fabric:
  topology: leaf-spine
  links:
    default: {rate: fast, delay: 5ms}
  swich: {kind: soft}
`))
	var problems spec.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p)
		}
	}
	// Output:
	// f.yaml:5:21: rate "fast" cannot be read; want a number with bit, kbit, mbit, gbit or tbit, as in 1gbit
	// f.yaml:6:3: unknown key "swich" in fabric; did you mean "switch"?
}
