package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"railbed/testbed/verdict"
)

// The elements of JUnit's XML that Jenkins, GitLab, GitHub actions and Azure
// all read: the subset that the Jenkins xunit plugin's junit-10.xsd and Maven
// Surefire's surefire-test-report.xsd share.

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

// junitRunCase is the name of the case that stands for the run as a whole.
const junitRunCase = "run"

// WriteJUnit writes junit.xml: a suite of one case for the run and one for each
// step, and a suite of one case for each check. What failed is a failure; what
// could not be judged (INCONCLUSIVE, OVERLOADED, ABORTED) is an error, because a
// CI system must not take it for a pass; what the host cannot do is skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	steps := r.junitSuite("steps", r.Elapsed())
	steps.Cases = append(steps.Cases, r.junitRun())
	for i, step := range r.Steps {
		steps.Cases = append(steps.Cases, r.junitStep(i, step))
	}
	checks := r.junitSuite("checks", 0)
	for i, check := range r.Checks {
		checks.Cases = append(checks.Cases, r.junitCheck(i, check))
	}
	all := junitSuites{Name: xmlText("railbed " + r.Name), Time: junitTime(r.Elapsed())}
	for _, suite := range []junitSuite{steps, checks} {
		suite.count()
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Skipped += suite.Skipped
		all.Suites = append(all.Suites, suite)
	}
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

func (r *Report) junitSuite(name string, took time.Duration) junitSuite {
	return junitSuite{
		Name: xmlText(r.Name + "." + name), Time: junitTime(took), Hostname: xmlText(r.Host.Name),
		// xs:dateTime without a zone, in UTC, is what the schemas ask for.
		Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{
			{"file", xmlText(r.File)}, {"plan_hash", r.PlanHash}, {"seed", fmt.Sprint(r.Seed)},
			{"railbed", r.Versions.Railbed}, {"kernel", r.Host.Kernel},
		},
	}
}

// junitRun carries what no step and no check says: a testbed that did not come
// up, or an interrupt between steps.
func (r *Report) junitRun() junitCase {
	c := junitCase{Class: xmlText(r.Name), Name: junitRunCase, Time: junitTime(r.Elapsed())}
	switch {
	case r.Verdict == verdict.Unsupported:
		c.Skipped = &junitReason{Message: xmlText(r.Reason)}
	case r.Verdict == verdict.Aborted:
		c.Error = &junitReason{Message: xmlText(r.Reason), Type: string(r.Verdict)}
	}
	return c
}

func (r *Report) junitStep(i int, step Step) junitCase {
	c := junitCase{
		Class: xmlText(r.Name + ".steps"), Name: xmlText(fmt.Sprintf("%d %s", i+1, step.Name)),
		Time: junitTime(time.Duration((step.End - step.Start) * float64(time.Second))), Output: xmlText(step.Where),
	}
	switch step.State {
	case Failed:
		c.Failure = &junitReason{Message: xmlText(step.Error), Type: string(step.State), Text: xmlText(step.Where + ": " + step.Error)}
	case Cancelled:
		c.Error = &junitReason{Message: xmlText(cmp.Or(step.Error, "ended with the run")), Type: string(step.State), Text: xmlText(step.Where)}
	case Skipped:
		c.Skipped = &junitReason{Message: xmlText(cmp.Or(step.Error, "the run ended before this step"))}
	}
	return c
}

func (r *Report) junitCheck(i int, check Check) junitCase {
	c := junitCase{
		Class: xmlText(r.Name + ".checks"), Name: xmlText(fmt.Sprintf("%d %s", i+1, check.Name)), Time: junitTime(0),
		Output: xmlText(strings.Join(append([]string{check.Where, check.Summary}, check.Details...), "\n")),
	}
	reason := &junitReason{Message: xmlText(check.Summary), Type: string(check.Verdict), Text: xmlText(strings.Join(append([]string{check.Where}, check.Details...), "\n"))}
	switch check.Verdict {
	case verdict.Pass:
	case verdict.Fail:
		c.Failure = reason
	case verdict.Unsupported:
		c.Skipped = &junitReason{Message: reason.Message}
	default:
		c.Error = reason
	}
	return c
}

func (s *junitSuite) count() {
	s.Tests = len(s.Cases)
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

// junitTime is xs:decimal seconds.
func junitTime(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText drops what XML 1.0 cannot carry even when escaped (section 2.2,
// production Char): a program's output may hold anything.
func xmlText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= 0x20 && r <= 0xd7ff, r >= 0xe000 && r <= 0xfffd, r >= 0x10000 && r <= 0x10ffff:
			return r
		}
		return -1
	}, text)
}
