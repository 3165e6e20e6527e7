package verify

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:generate go test -run TestJudgedExamples . -update

//go:embed judged.json
var judged []byte

// Judged is a check as files have it, with its finding in a run that passes it and in a run that breaks it.
type Judged struct {
	// Kind is the key of the check in files.
	Kind  string `json:"kind"`
	Check string `json:"check"`
	// Pass and Fail are the summaries of the results. Detail is the first line of the details of Fail.
	Pass   string `json:"pass"`
	Fail   string `json:"fail"`
	Detail string `json:"detail,omitempty"`
}

// JudgedExamples returns examples of each kind of check, in the order of the kinds. A kind with several rules
// has an example for each.
func JudgedExamples() []Judged {
	var found []Judged
	if err := json.Unmarshal(judged, &found); err != nil {
		panic(fmt.Sprintf("verify: judged.json: %v", err)) // it is compiled in
	}
	return found
}
