package cli

import (
	"railbed/capture/verify"
	"railbed/plan/spec/keys"
	"railbed/scenarios/runner"
)

// judgedBy returns examples of a check with its findings, or none if the key is no check.
func judgedBy(key *keys.Key) (found []verify.Judged) {
	for _, one := range verify.JudgedExamples() {
		if key.Path == "checks.packets."+one.Kind {
			found = append(found, one)
		}
	}
	for _, one := range runner.JudgedExamples() {
		if key.Path == "checks."+one.Kind {
			found = append(found, one)
		}
	}
	return found
}
