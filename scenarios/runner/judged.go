package runner

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"railbed/capture/verify"
)

//go:generate go test -run TestJudgedExamples . -update

//go:embed judged.json
var judged []byte

// JudgedExamples returns examples of the checks of workloads and of the fidelity. Each has its finding in a
// run that passes it and in a run that breaks it. The kind is the path of the key in a check.
func JudgedExamples() []verify.Judged {
	var found []verify.Judged
	if err := json.Unmarshal(judged, &found); err != nil {
		panic(fmt.Sprintf("runner: judged.json: %v", err)) // it is compiled in
	}
	return found
}
