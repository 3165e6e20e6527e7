package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"railbed/internal/svg"
	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/reporting/compare"
	"railbed/scenarios/runner/suite"
)

var claimResults = flag.String("claims", "", "results of railbed test of scenarios/claims, for "+
	"docs/claims.json")

// The page of claims is made from the files of the claims and from their results.
const (
	claimsPage     = "../docs/claims.md"
	claimsData     = "../docs/claims.json"
	claimsPictures = "../docs/pictures/claims"
)

// measuredClaim is the result of a claim.
type measuredClaim struct {
	// Scenario is the name of the file, without its extension. Measured is the date, Host the machine.
	Scenario string     `json:"scenario"`
	Measured string     `json:"measured"`
	Host     string     `json:"host"`
	Rows     []claimRow `json:"rows"`
}

// claimRow is a comparison of the treatment and the baseline, with all their values.
type claimRow struct {
	suite.Comparison
	Unit      string        `json:"unit"`
	Treatment suite.Summary `json:"treatment"`
	Baseline  suite.Summary `json:"baseline"`
}

// TestReferenceOfClaims compares the page of the claims with a fresh one. With -update it writes the page and
// its pictures, and with -claims it takes the results in a directory before.
func TestReferenceOfClaims(t *testing.T) {
	data := readClaims(t)
	if *claimResults != "" {
		data = mergeClaims(t, data)
	}
	made := map[string]string{claimsPage: claimsText(t, data)}
	for _, c := range data {
		for i := range c.Rows {
			made[filepath.Join(claimsPictures, pictureName(&c, i))] = drawClaim(&c.Rows[i])
		}
	}
	for path, want := range made {
		text, err := os.ReadFile(path)
		switch {
		case err == nil && string(text) == want:
		case *update:
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not fresh (%v); make generate writes it", path, err)
		}
	}
}

func readClaims(t *testing.T) (all []measuredClaim) {
	t.Helper()
	text, err := os.ReadFile(claimsData)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return all
}

// mergeClaims takes the results of claims in a directory, and writes the data.
func mergeClaims(t *testing.T, all []measuredClaim) []measuredClaim {
	t.Helper()
	r, err := suite.Read(*claimResults)
	if err != nil {
		t.Fatal(err)
	}
	if r.Control || r.Quick {
		t.Fatalf("%s has results with --control or --quick: want those of all runs", *claimResults)
	}
	host := fmt.Sprintf("%d processors", runtime.NumCPU())
	for i := range r.Matrices {
		m := &r.Matrices[i]
		if m.Claim == nil {
			continue
		}
		one := measuredClaim{Scenario: filepath.Base(m.Name), Measured: r.Finished.Format("2006-01-02"),
			Host: host}
		for _, c := range m.Compare {
			if c.Claimed {
				one.Rows = append(one.Rows, rowOf(m, c))
			}
		}
		all = slices.DeleteFunc(all, func(c measuredClaim) bool { return c.Scenario == one.Scenario })
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b measuredClaim) int { return strings.Compare(a.Scenario, b.Scenario) })
	text, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(claimsData, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rowOf returns a comparison with the values of its cells.
func rowOf(m *suite.Matrix, c suite.Comparison) claimRow {
	row := claimRow{Comparison: c}
	row.Where = filepath.Base(c.Where)
	beside := c.BesideOf
	if beside == "" {
		beside = c.Of
	}
	for i, cell := range m.Cells {
		for _, n := range m.Numbers {
			if n.What == c.Metric && n.Of == c.Of && cell.Name == c.Cell {
				row.Unit, row.Treatment = n.Unit, n.Cells[i]
			}
			if n.What == c.Metric && n.Of == beside && cell.Name == c.Beside {
				row.Baseline = n.Cells[i]
			}
		}
	}
	return row
}

// text formats values of the row in one unit.
func (r *claimRow) text(v float64) string {
	var unit units.Unit
	switch r.Unit {
	case reporting.Seconds:
		unit = units.Times.Of(r.Treatment.Median, r.Baseline.Median)
	case reporting.BitRate:
		unit = units.Rates.Of(r.Treatment.Median, r.Baseline.Median)
	default:
		return compare.Text(v, r.Unit)
	}
	return unit.Text(v) + " " + unit.Name
}

func pictureName(c *measuredClaim, row int) string {
	return fmt.Sprintf("%s-%d.svg", c.Scenario, row+1)
}

// drawClaim draws the values of the baseline above those of the treatment. A line reaches from the least to
// the greatest value, and a box from P25 to P75. A mark is at the median.
func drawClaim(r *claimRow) string {
	const width, height, names, row = 640, 104, 110, 34
	var out bytes.Buffer
	d := svg.Drawing{Writer: &out}
	d.Open(svg.File+` aria-label="`+svg.Escape(r.Title())+`"`, width, height)
	d.Head(".cv{stroke:#5b6878;fill:none}.cb{fill:#9fb6d6}.ct{fill:#5f9e6e}" +
		".cm{stroke:#1d2530;stroke-width:2}\n")
	x := svg.Axis{To: 1.05 * max(r.Baseline.Most, r.Treatment.Most), Left: names, Size: width - names - 20}
	for i, s := range []suite.Summary{r.Baseline, r.Treatment} {
		y := float64(22 + i*row)
		d.Text("k", 8, y+4, []string{"baseline", "treatment"}[i])
		d.Line("cv", 1, svg.MoveTo(x.Place(s.Least), y).To("H", x.Place(s.Most)).String())
		d.Rect([]string{"cb", "ct"}[i], x.Place(s.P25), y-8, max(1, x.Place(s.P75)-x.Place(s.P25)), 16, 2)
		d.Line("cm", 0, svg.MoveTo(x.Place(s.Median), y-11).To("V", y+11).String())
	}
	unit := ""
	ticks := x.Ticks(func(v float64) string {
		number, of, _ := strings.Cut(r.text(v), " ")
		unit = of
		return number
	})
	d.Text("k", 8, height-8, unit)
	for _, tick := range ticks {
		d.Line("cv", 1, svg.MoveTo(tick.At, height-26).To("V", height-20).String())
		d.Text("k", tick.At-svg.Width(tick.Text, 5), height-8, tick.Text)
	}
	d.Printf("</svg>\n")
	return out.String()
}

// claimsText returns the page.
func claimsText(t *testing.T, data []measuredClaim) string {
	t.Helper()
	files, err := filepath.Glob("../scenarios/claims/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d claims, %v", len(files), err)
	}
	var table, sections strings.Builder
	for _, file := range files {
		f, err := spec.LoadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		at := slices.IndexFunc(data, func(c measuredClaim) bool { return c.Scenario == name })
		if f.Claim == nil {
			t.Errorf("%s has no claim", file)
			continue
		}
		fmt.Fprintf(&sections, "\n## %s\n\n%s\n\n%s\n%s\n%s\n", name,
			wrapped(f.Claim.System+": *"+f.Claim.Source+"*", ""),
			wrapped("- published: "+f.Claim.Published, "  "), wrapped("- here: "+f.Claim.Holds, "  "),
			fmt.Sprintf("- file: [scenarios/claims/%s.yaml](../scenarios/claims/%[1]s.yaml)", name))
		if at < 0 {
			fmt.Fprintf(&table, "| [%s](#%s) | %s | not measured yet | |\n", name, name, f.Claim.System)
			continue
		}
		c := &data[at]
		for i := range c.Rows {
			r := &c.Rows[i]
			if r.Median == nil || r.Other == nil {
				t.Fatalf("%s: %s has no medians: %s", name, r.Title(), r.Reason)
			}
			fmt.Fprintf(&table, "| [%s](#%s) | %s | %s: %s | %s |\n", name, name, f.Claim.System,
				strings.TrimSpace(r.Of+" "+r.Metric), r.result(), r.Verdict)
			fmt.Fprintf(&sections, "\n%s\n\n![%s](pictures/claims/%s)\n", wrapped(fmt.Sprintf(
				"%s: %s beside %s, %s. Want %s: %s.", r.Title(), r.text(*r.Median), r.text(*r.Other),
				r.result(), r.Want, r.Verdict), ""), r.Title(), pictureName(c, i))
		}
		fmt.Fprintf(&sections, "\nMeasured on %s, on %s.\n", c.Measured, c.Host)
	}
	return claimsHead + table.String() + claimsRest + sections.String()
}

// result returns the ratio with its interval.
func (r *claimRow) result() string {
	if r.Ratio == nil || r.Low == nil || r.High == nil {
		return "no ratio"
	}
	return fmt.Sprintf("%.3g %% (%.3g to %.3g, %d pairs)", *r.Ratio*100, *r.Low*100, *r.High*100, r.Pairs)
}

// claimsFence begins and ends a block of code.
const claimsFence = "```"

const claimsHead = `# Claims of published systems

This page is for those who want to know which results of publications Railbed holds, and how well. Each claim
is a file with a baseline and a treatment. Its figures are from packets and programs of emulated runs, at
rates that two processors carry. [Run a test suite](how-to/test-suites.md#claims) explains the form.

<!-- not run: takes about twenty minutes -->
` + claimsFence + `console
$ railbed test scenarios/claims
$ railbed test scenarios/claims --control
` + claimsFence + `

The first command takes about twenty minutes. With ` + "`--quick`" + ` it judges only directions, in five
minutes. The second runs the baseline in place of each treatment, and no claim may pass. A ratio divides the
medians of the treatment and of the baseline, and has its 95 % interval.

| claim | system | measured | verdict |
|---|---|---|---|
`

const claimsRest = `
## Claims that do not hold here

- **Luna and Solar, latency**: an idle fabric of this size serves a block in 3.67 ms at the median over
  reliable datagrams, and in 3.32 ms over TCP. Programs take most of this time, and not the network.

## Out of scope

| subject | reason |
|---|---|
| trusted execution, SR-IOV, off-path SmartNICs, transfers that a GPU starts | they need this hardware |
| rates of FPGAs and ASICs; back ends for Tofino and PSA | processors forward the packets here |
| LSTM by HLS, malware monitoring, vehicle control, layered video | no part of a training cluster's network |
| placement of network functions | no part of a training cluster's network |
| the physical layer of time synchronisation | all nodes share the clock of one kernel |
`
