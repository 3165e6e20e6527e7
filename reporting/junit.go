package reporting

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// The elements of JUnit's XML that Jenkins, GitLab, GitHub Actions and Azure all read: the common
// subset of junit-10.xsd of the Jenkins xunit plugin and surefire-test-report.xsd of Maven
// Surefire.

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Hostname   string          `xml:"hostname,attr"`
	Properties []junitProperty `xml:"properties>property,omitempty"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Skipped *junitReason `xml:"skipped,omitempty"`
	Error   *junitReason `xml:"error,omitempty"`
	Failure *junitReason `xml:"failure,omitempty"`
	Output  string       `xml:"system-out,omitempty"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// junitRunCase is the name of the case for the run as a whole.
const junitRunCase = "run"

// WriteJUnit writes junit.xml. It has a suite with one case for the run and one for each step, and
// a suite with one case for each check. A failed step or check is a failure. A step or check
// without a judgement (INCONCLUSIVE, OVERLOADED, ABORTED) is an error, because a CI system must not
// take it for a pass. A failure in an overloaded run is an error too, because it proves nothing. A
// feature that the host lacks is skipped.
func WriteJUnit(w io.Writer, r *report.Report) error {
	r = printableCopy(r)
	steps := newJUnitSuite(r, "steps", r.Elapsed())
	steps.Cases = []junitCase{{Class: r.Name, Name: junitRunCase, Time: junitTime(r.Elapsed())}}
	for i, step := range r.Steps {
		steps.Cases = append(steps.Cases, junitStep(r, i, step))
	}
	checks := newJUnitSuite(r, "checks", 0)
	for i, check := range r.Checks {
		checks.Cases = append(checks.Cases, junitCheck(r, i, check))
	}
	all := junitSuites{Name: "railbed " + r.Name, Time: junitTime(r.Elapsed())}
	steps.count()
	checks.count()
	junitRun(r, &steps, steps.Failures+steps.Errors+checks.Failures+checks.Errors > 0)
	for _, suite := range []junitSuite{steps, checks} {
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Skipped += suite.Skipped
		all.Suites = append(all.Suites, suite)
	}
	return writeJUnit(w, all)
}

func newJUnitSuite(r *report.Report, name string, took time.Duration) junitSuite {
	return junitSuite{
		Name: r.Name + "." + name, Time: junitTime(took), Hostname: r.Host.Name,
		Timestamp: r.Started.UTC().Format(junitStamp),
		Properties: []junitProperty{
			{"file", r.File}, {"plan_hash", r.PlanHash}, {"seed", fmt.Sprint(r.Seed)},
			{"railbed", r.Versions.Railbed}, {"kernel", r.Host.Kernel},
		},
	}
}

// junitRun sets the run's case to failures that no step and no check reports: a testbed that did
// not come up, an interrupt between steps, an overloaded emulator. So every CI system shows a run
// that did not pass as not passed. told is set if a step or a check reports a failure.
func junitRun(r *report.Report, steps *junitSuite, told bool) {
	switch {
	case r.Verdict == verdict.Unsupported:
		steps.Cases[0].Skipped = &junitReason{Message: r.Reason}
	case r.Verdict == verdict.Aborted, r.Verdict == verdict.Overloaded, r.Verdict != verdict.Pass && !told:
		steps.Cases[0].Error = &junitReason{Message: r.Reason, Type: string(r.Verdict)}
	}
	steps.count()
}

func junitStep(r *report.Report, i int, step report.Step) junitCase {
	c := junitCase{
		Class: r.Name + ".steps", Name: fmt.Sprintf("%d %s", i+1, step.Name),
		Time: junitTime(time.Duration((step.End - step.Start) * float64(time.Second))), Output: step.Where,
	}
	switch step.State {
	case report.Failed:
		c.fail(r.Verdict, &junitReason{Message: step.Error, Type: string(step.State),
			Text: step.Where + ": " + step.Error})
	case report.Cancelled:
		c.Error = &junitReason{Message: cmp.Or(step.Error, "ended with the run"), Type: string(step.State),
			Text: step.Where}
	case report.Skipped:
		c.Skipped = &junitReason{Message: cmp.Or(step.Error, "the run ended before this step")}
	}
	return c
}

func junitCheck(r *report.Report, i int, check report.Check) junitCase {
	c := junitCase{
		Class: r.Name + ".checks", Name: fmt.Sprintf("%d %s", i+1, check.Name), Time: junitTime(0),
		Output: strings.Join(append([]string{check.Where, check.Summary}, check.Details...), "\n"),
	}
	reason := &junitReason{Message: check.Summary, Type: string(check.Verdict),
		Text: strings.Join(append([]string{check.Where}, check.Details...), "\n")}
	switch check.Verdict {
	case verdict.Pass:
	case verdict.Fail:
		c.fail(r.Verdict, reason)
	case verdict.Unsupported:
		c.Skipped = &junitReason{Message: reason.Message}
	default:
		c.Error = reason
	}
	return c
}

// fail sets a failure, or an error if the run was overloaded.
func (c *junitCase) fail(run verdict.Verdict, reason *junitReason) {
	if run == verdict.Overloaded {
		c.Error = reason
	} else {
		c.Failure = reason
	}
}

func (s *junitSuite) count() {
	s.Tests, s.Failures, s.Errors, s.Skipped = len(s.Cases), 0, 0, 0
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

// JUnitCase is a test case of WriteJUnitCases.
type JUnitCase struct {
	Class, Name string
	Verdict     verdict.Verdict
	Reason      string
	Took        time.Duration
	// Output is text for the reader of the case.
	Output string
}

// WriteJUnitCases writes a junit.xml with one suite of runs. A FAIL is a failure, UNSUPPORTED is skipped, and
// every other verdict than PASS is an error.
func WriteJUnitCases(w io.Writer, name string, started time.Time, took time.Duration,
	cases []JUnitCase) error {
	suite := junitSuite{Name: name, Time: junitTime(took), Timestamp: started.UTC().Format(junitStamp)}
	for _, c := range cases {
		one := junitCase{Class: c.Class, Name: c.Name, Time: junitTime(c.Took), Output: c.Output}
		reason := &junitReason{Message: c.Reason, Type: string(c.Verdict), Text: c.Reason}
		switch c.Verdict {
		case verdict.Pass:
		case verdict.Fail:
			one.Failure = reason
		case verdict.Unsupported:
			one.Skipped = &junitReason{Message: c.Reason}
		default:
			one.Error = reason
		}
		suite.Cases = append(suite.Cases, one)
	}
	suite.count()
	return writeJUnit(w, junitSuites{Name: name, Time: suite.Time, Tests: suite.Tests,
		Failures: suite.Failures, Errors: suite.Errors, Skipped: suite.Skipped, Suites: []junitSuite{suite}})
}

// junitStamp is xs:dateTime without a zone, which the schemas require.
const junitStamp = "2006-01-02T15:04:05"

func writeJUnit(w io.Writer, all junitSuites) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// junitTime formats a duration as xs:decimal seconds.
func junitTime(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
