package interop

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
)

// document is where the table of all cells is kept.
const document = "../../transports/roce/INTEROP.md"

// table has the results of all cells.
type table struct {
	kernel   string
	outcomes []outcome
	findings []finding
}

// proves fails the test where rdma_rxe so often fails by itself that little is known of
// ours.
func (d *table) proves(t *testing.T) {
	t.Helper()
	unclear := 0
	for _, o := range d.outcomes {
		if o.verdict == verdict.Inconclusive {
			unclear++
		}
	}
	if unclear*10 > len(d.outcomes) {
		t.Errorf("%d of %d cells are INCONCLUSIVE (rxe), want at most a tenth", unclear, len(d.outcomes))
	}
}

// String is the table in Markdown: for each impairment what each cell came to, and
// what the packets say.
func (d *table) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "rdma_rxe of Linux %s; %d cells.\n", d.kernel, len(d.outcomes))
	for i, kind := range impairments {
		fmt.Fprintf(&out, "\n### %s\n\n| operation | who asks | %s |\n|---|---|", kind.words,
			strings.Trim(strings.Join(strings.Fields(fmt.Sprint(mtus)), " | "), "[]"))
		fmt.Fprintln(&out, strings.Repeat("---|", len(mtus)))
		for _, op := range operations {
			for _, way := range append(slices.Clone(ways), control) {
				fmt.Fprintf(&out, "| %v | %s |", op, way)
				for _, mtu := range mtus {
					fmt.Fprintf(&out, " %s |", d.words(op.String(), way, mtu, i))
				}
				fmt.Fprintln(&out)
			}
		}
		for _, f := range d.findings {
			if f.kind == kind.name {
				fmt.Fprintf(&out, "\n%s\n", f)
			}
		}
	}
	for _, o := range d.outcomes {
		if o.verdict != verdict.Pass {
			fmt.Fprintf(&out, "\n%v: %s\n\nrxe to rxe: %s\n\n```\n%s\n```\n", o.cell,
				strings.Join(o.wrong, "; "), strings.Join(o.control, "; "), strings.Join(o.log, "\n"))
		}
	}
	return out.String()
}

// words describes the result of a cell.
func (d *table) words(op, way string, mtu, impair int) string {
	text := ""
	for _, o := range d.outcomes {
		if o.op != op || o.mtu != mtu || o.impair != impair {
			continue
		}
		switch {
		case way == control && len(o.control) > 0:
			return "fails"
		case way == control:
			text = "works"
		case way == o.way && o.verdict == verdict.Inconclusive:
			return "INCONCLUSIVE (rxe)"
		case way == o.way:
			return string(o.verdict)
		}
	}
	return text
}

// String describes the packets of a group.
func (f finding) String() string {
	text := fmt.Sprintf("To rdma_rxe's NIC came %d packets with the right ICRC and %d with a wrong one; it "+
		"took %d. Ours refused %d for their ICRC. Checks of the recording:",
		f.came.right, f.came.wrong, f.accepted, f.refused)
	for i, r := range f.rules {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %s %s", strings.TrimPrefix(r.Name, "roce "), r.Verdict)
	}
	return text + "."
}

// write puts the table into the document.
func (d *table) write(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- table -->\n).*(<!-- end of table -->)`)
	if !marked.Match(text) {
		t.Fatalf("%s has no marked table", document)
	}
	text = marked.ReplaceAllFunc(text, func([]byte) []byte {
		return []byte("<!-- table -->\n" + d.String() + "<!-- end of table -->")
	})
	if err := os.WriteFile(document, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
