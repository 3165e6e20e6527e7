package runner

import (
	"railbed/plan/spec"
	"railbed/scenarios/runner/proof"
)

// Provable finds the checks of a file that can never pass and the settings that can never work
// (never). It also finds checks that will probably not pass, settings that will probably not work,
// and slow rings (hardly). Run judges all checks in any case.
func Provable(o Options) (never, hardly spec.Problems) { return proof.Look(o.File, o.Plan) }
