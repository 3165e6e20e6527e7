// Package verdict holds the words with which Railbed reports how a check or run ended. They are the
// verdicts and their exit codes, and the error that means "this host cannot do it".
package verdict

import (
	"errors"
	"fmt"
)

// Verdict is the outcome of a check or a run. The zero value is not a verdict.
type Verdict string

// Verdicts; each is overruled by those after it. A failure while the emulator did not keep up, or
// while the host lacked a feature that the file needs, may have that cause. So it proves nothing
// about the system under test.
const (
	Pass         Verdict = "PASS"
	Inconclusive Verdict = "INCONCLUSIVE" // the evidence was empty or incomplete
	Fail         Verdict = "FAIL"
	Overloaded   Verdict = "OVERLOADED"  // the emulator did not keep up, so nothing is proved
	Unsupported  Verdict = "UNSUPPORTED" // the host lacks a feature that the file needs
	Aborted      Verdict = "ABORTED"     // interrupted, or the supervisor died
)

// Exit codes of the railbed command.
const (
	// ExitPass is success: the command did what was asked, or the run passed.
	ExitPass = 0
	// ExitFail is a failure: of the command, of a check or of a step. An aborted run has it, too.
	ExitFail = 1
	// ExitUsage is bad input: a wrong file, flag, name or number of arguments. Nothing was changed.
	ExitUsage = 2
	// ExitUnsupported means that the host lacks a feature that the file needs. `railbed doctor` names the
	// remedy.
	ExitUnsupported = 3
	// ExitOverloaded means that the emulation did not keep up, so that the run proves nothing.
	ExitOverloaded = 4
	// ExitInconclusive means that nothing was proved: the evidence was empty or incomplete.
	ExitInconclusive = 5
)

var rank = map[Verdict]int{Pass: 0, Inconclusive: 1, Fail: 2, Overloaded: 3, Unsupported: 4, Aborted: 5}

var exitCode = map[Verdict]int{
	Pass: ExitPass, Inconclusive: ExitInconclusive, Overloaded: ExitOverloaded,
	Unsupported: ExitUnsupported, Fail: ExitFail, Aborted: ExitFail,
}

// Worst returns the verdict that overrules the others. Without verdicts it returns Inconclusive: a
// run without a judged check is not a pass.
func Worst(verdicts ...Verdict) Verdict {
	if len(verdicts) == 0 {
		return Inconclusive
	}
	worst := verdicts[0]
	for _, v := range verdicts[1:] {
		if rank[v] > rank[worst] {
			worst = v
		}
	}
	return worst
}

// ExitCode returns the exit code of a run that ended with v.
func (v Verdict) ExitCode() int {
	if code, known := exitCode[v]; known {
		return code
	}
	return ExitFail
}

// ErrUnsupported matches every UnsupportedError with errors.Is.
var ErrUnsupported = errors.New("unsupported here")

// UnsupportedError reports that the host lacks a feature, and how to get it.
type UnsupportedError struct {
	Feature string // as doctor names it: "netem"
	Reason  string // the attempt and the kernel's answer
	Remedy  string // the user's next step
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	text := fmt.Sprintf("%s: unsupported here: %s", e.Feature, e.Reason)
	if e.Remedy != "" {
		text += "; " + e.Remedy
	}
	return text
}

// MistakeError reports that a file names an image or another file that does not exist where it would have to,
// such as an image that its registry does not have. A run that ends with it is FAIL and not UNSUPPORTED.
type MistakeError struct {
	Text string // what the file names, what is wrong, and what would be right
}

// Error implements error.
func (e *MistakeError) Error() string { return e.Text }

// Is reports a match with ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
