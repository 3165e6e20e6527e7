package runner

import (
	"railbed/plan/spec"
	"railbed/scenarios/proof"
)

// Provable finds the checks of a file that can never pass, and settings that can never work,
// and those that probably do not. Run judges them all the same.
func Provable(o Options) (never, hardly spec.Problems) { return proof.Look(o.File, o.Plan) }
