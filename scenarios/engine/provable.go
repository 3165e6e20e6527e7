package engine

import "railbed/testbed/spec"

// Provable finds the checks and settings that can never come true.
func Provable(o Options) (warnings spec.Problems, err error) { return nil, nil }
