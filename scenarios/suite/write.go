package suite

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// Files that a suite writes, besides the directories of its runs.
const (
	ResultsFile = "results.json"
	JUnitFile   = "junit.xml"
	IndexFile   = "index.html"
	// In the directory of each matrix.
	CSVFile    = "matrix.csv"
	MatrixFile = "matrix.html"
)

// write writes the files of the results.
func (r *Results) write(dir string) error {
	failures := []error{
		writeFile(filepath.Join(dir, ResultsFile), r.WriteJSON),
		writeFile(filepath.Join(dir, JUnitFile), r.WriteJUnit),
		writeFile(filepath.Join(dir, IndexFile), r.WriteHTML)}
	for i := range r.Matrices {
		m := &r.Matrices[i]
		own := filepath.Join(dir, filepath.FromSlash(m.Name))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		failures = append(failures, writeFile(filepath.Join(own, CSVFile), m.WriteCSV),
			writeFile(filepath.Join(own, MatrixFile), m.WriteHTML))
	}
	return errors.Join(failures...)
}

// writeFile replaces a file, which has its old content until the new one is complete.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".railbed-*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Chmod(0o644), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), path)
}

// WriteJSON writes the results as JSON.
func (r *Results) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Claim makes the directory for the results. It refuses a directory with files that no suite wrote.
func Claim(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	if _, err := Read(dir); err != nil {
		return fmt.Errorf("%s is not empty and was not made by railbed test; name another with --out", dir)
	}
	return nil
}

// Read reads the results in a directory.
func Read(dir string) (*Results, error) {
	text, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; want a directory that railbed test wrote", dir, err)
	}
	r := &Results{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ResultsFile), err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("%s: format %q, want %q", filepath.Join(dir, ResultsFile), r.Format, Format)
	}
	return r, nil
}

// WriteJUnit writes the results as a JUnit test suite. Each case, each comparison of cells, and each number
// that is worse than in an earlier suite is a test case.
func (r *Results) WriteJUnit(w io.Writer) error {
	var cases []report.JUnitCase
	for _, o := range r.Cases {
		class, name := "railbed", o.Name
		if at := strings.LastIndexByte(o.Name, '/'); at >= 0 {
			class, name = class+"."+strings.ReplaceAll(o.Name[:at], "/", "."), o.Name[at+1:]
		}
		c := report.JUnitCase{Class: class, Name: name, Verdict: o.Verdict, Reason: o.Reason, Took: o.Took(),
			Output: o.Path}
		for _, a := range o.Runs {
			if a.Kept {
				c.Output += "\n" + a.Dir
			}
		}
		cases = append(cases, c)
	}
	for _, m := range r.Matrices {
		for _, c := range m.Compare {
			cases = append(cases, report.JUnitCase{Class: "railbed." + strings.ReplaceAll(m.Name, "/", "."),
				Name: c.Title(), Verdict: c.Verdict, Reason: c.Reason, Output: c.Where})
		}
	}
	for _, worse := range r.Worse {
		words := strings.SplitN(worse, ": ", 3) // the case, the number, and its values
		cases = append(cases, report.JUnitCase{Class: "railbed.baseline",
			Name: strings.Join(words[:min(2, len(words))], ": "), Verdict: verdict.Fail, Reason: worse})
	}
	return report.WriteJUnitCases(w, "railbed test", r.Started, r.Finished.Sub(r.Started), cases)
}

//go:embed index.html
var indexText string

var index = template.Must(template.New("index").Funcs(template.FuncMap{
	"style": report.Style,
	"took":  report.Took,
	"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"class": report.Class,
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
