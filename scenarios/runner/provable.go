package runner

import (
	"railbed/plan/spec"
	"railbed/scenarios/proof"
)

// Provable finds the checks of a file that can never pass and the settings that can never work
// (never), and those that probably do not (hardly). Run judges such checks all the same.
func Provable(o Options) (never, hardly spec.Problems) { return proof.Look(o.File, o.Plan) }
