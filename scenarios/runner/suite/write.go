package suite

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/printable"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/reporting"
	"railbed/reporting/sweep"
	"railbed/scenarios/runner/outdir"
)

// Files that a suite writes, besides the directories of its runs.
const (
	ResultsFile = "results.json"
	JUnitFile   = "junit.xml"
	IndexFile   = "index.html"
	// In the directory of each matrix.
	CSVFile    = "matrix.csv"
	SweepFile  = "sweep.csv" // of a matrix with sweeps
	MatrixFile = "matrix.html"
)

// write writes the files of the results.
func (r *Results) write(out *outdir.Dir) error {
	failures := []error{r.writeJSON(out), r.replace(out, JUnitFile, r.WriteJUnit),
		r.replace(out, IndexFile, r.WriteHTML)}
	for i := range r.Matrices {
		m := &r.Matrices[i]
		failures = append(failures, r.replace(out, path.Join(m.Name, CSVFile), m.WriteCSV),
			r.replace(out, path.Join(m.Name, MatrixFile), m.WriteHTML))
		if len(m.Sweeps) > 0 {
			failures = append(failures, r.replace(out, path.Join(m.Name, SweepFile), func(w io.Writer) error {
				return sweep.WriteCSV(w, m.Sweeps)
			}))
		}
	}
	return errors.Join(failures...)
}

func (r *Results) writeJSON(out *outdir.Dir) error { return r.replace(out, ResultsFile, r.WriteJSON) }

// Has reports whether the suite has written a file, whose path is relative to the directory of the suite. On
// a full disk an earlier suite's file may be there.
func (r *Results) Has(at string) bool { return !r.unwritten[at] }

// replace replaces a file. Names, values and reasons are other people's texts, and people print the files to
// terminals.
func (r *Results) replace(out *outdir.Dir, at string, write func(io.Writer) error) error {
	err := out.Replace(at, func(w io.Writer) error { return write(printable.NewWriter(w)) })
	if err != nil && r.unwritten == nil {
		r.unwritten = map[string]bool{}
	}
	if r.unwritten != nil {
		r.unwritten[at] = err != nil
	}
	return err
}

// WriteJSON writes the results as JSON.
func (r *Results) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Claim makes and opens the directory for the results. It refuses a directory with files that no suite wrote,
// and a directory that another user made where everybody can make one.
func Claim(dir string) (*outdir.Dir, error) {
	out, err := outdir.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("results directory %s: %w", dir, err)
	}
	names, err := fs.ReadDir(out.FS(), ".")
	if err == nil && len(names) > 0 {
		if _, err = readIn(out.Root); err != nil {
			err = fmt.Errorf("%s is not empty and was not made by railbed test; name another with --out", dir)
		}
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// Read reads the results in a directory.
func Read(dir string) (*Results, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; want a directory that railbed test wrote", dir, err)
	}
	defer root.Close()
	return readIn(root)
}

func readIn(root *os.Root) (*Results, error) {
	file, err := input.FolderOf(root).Open(ResultsFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; want a directory that railbed test wrote", root.Name(), err)
	}
	defer file.Close()
	r := &Results{}
	if err := input.DecodeDocument(file, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(root.Name(), ResultsFile), err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("%s: format %q, want %q", filepath.Join(root.Name(), ResultsFile), r.Format,
			Format)
	}
	return r, nil
}

// WriteJUnit writes the results as a JUnit test suite. Each case, each comparison or control, each number
// that is worse than in an earlier suite, and everything that could not be compared with it is a test case.
func (r *Results) WriteJUnit(w io.Writer) error {
	var cases []reporting.JUnitCase
	for _, o := range r.Cases {
		class, name := "railbed", o.Name
		if at := strings.LastIndexByte(o.Name, '/'); at >= 0 {
			class, name = class+"."+strings.ReplaceAll(o.Name[:at], "/", "."), o.Name[at+1:]
		}
		c := reporting.JUnitCase{Class: class, Name: name, Verdict: o.Verdict, Reason: o.Reason,
			Took:   o.Took(),
			Output: o.Path}
		if o.Note != "" {
			c.Output += "\n" + o.Note
		}
		for _, a := range o.Runs {
			if a.Kept {
				c.Output += "\n" + a.Dir
			}
		}
		cases = append(cases, c)
	}
	for _, m := range r.Matrices {
		cases = append(cases, m.junit()...)
	}
	for _, worse := range r.Worse {
		words := strings.SplitN(worse, ": ", 3) // the case, the number, and its values
		cases = append(cases, reporting.JUnitCase{Class: "railbed.baseline",
			Name: strings.Join(words[:min(2, len(words))], ": "), Verdict: verdict.Fail, Reason: worse})
	}
	for _, text := range r.NotCompared {
		of, _, _ := strings.Cut(text, ": ")
		cases = append(cases, reporting.JUnitCase{Class: "railbed.baseline", Name: of,
			Verdict: verdict.Inconclusive,
			Reason:  text})
	}
	return reporting.WriteJUnitCases(w, "railbed test", r.Started, r.Finished.Sub(r.Started), cases)
}

// junit returns the test cases of a matrix: its comparisons, or the control of its claim.
func (m *Matrix) junit() (cases []reporting.JUnitCase) {
	class, claim := "railbed."+strings.ReplaceAll(m.Name, "/", "."), ""
	if m.Claim != nil {
		claim = "\n" + strings.Join(m.Claim.Lines(), "\n")
	}
	if m.Control != nil {
		return []reporting.JUnitCase{{Class: class, Name: "control", Verdict: m.Control.Verdict,
			Reason: m.Control.Reason, Output: strings.TrimSpace(claim)}}
	}
	for i := range m.Compare {
		c := &m.Compare[i]
		one := reporting.JUnitCase{Class: class, Name: c.Title(), Verdict: c.Verdict, Reason: c.Reason,
			Output: c.Where}
		if c.Claimed {
			one.Output += "\n" + c.Reason + claim
		}
		cases = append(cases, one)
	}
	return cases
}

//go:embed index.html
var indexText string

var index = template.Must(template.New("index").Funcs(template.FuncMap{
	"style": reporting.Style,
	"took":  units.Took,
	"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"class": reporting.Class,
	"page":  func(a Attempt) string { return link(a.Dir + "/" + report.HTMLFile) },
	"table": func(m Matrix) string { return link(m.Name + "/" + MatrixFile) },
}).Parse(indexText))

// Removed counts the verdicts of the runs of which only the report is kept: "PASS", or "3 PASS".
func (o *Outcome) Removed() string {
	var verdicts []verdict.Verdict
	for _, a := range o.Runs {
		if !a.Kept {
			verdicts = append(verdicts, a.Verdict)
		}
	}
	if len(verdicts) == 1 {
		return string(verdicts[0])
	}
	return countVerdicts(verdicts)
}

// link returns a reference to a file below the page's directory.
func link(path string) string { return "./" + (&url.URL{Path: path}).EscapedPath() }

// WriteHTML writes the web page that lists the cases.
func (r *Results) WriteHTML(w io.Writer) error {
	counts, flaky := r.Counts()
	if err := index.Execute(w, struct {
		*Results
		Counts map[verdict.Verdict]int
		Flaky  int
		Took   time.Duration
	}{r, counts, flaky, r.Finished.Sub(r.Started)}); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
