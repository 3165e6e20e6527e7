package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
)

// commandsPage writes each command with its flags.
func commandsPage() string {
	p := newPage("Commands", "This page has every command with its flags. `railbed help COMMAND` and "+
		"`man railbed-COMMAND` show the same.")
	root := newRootCommand(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		p.line("## %s\n", cmd.CommandPath())
		p.prose("%s.", escaped(strings.TrimSuffix(cmd.Short, ".")))
		if cmd.Runnable() {
			p.code("text", cmd.UseLine())
		}
		longWords(p, cmd.Long)
		if cmd.Example != "" {
			p.code("sh", unindented(cmd.Example))
		}
		if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
			p.code("text", flags.FlagUsagesWrapped(100))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// longWords writes a description, whose indented lines are code.
func longWords(p *page, long string) {
	for block := range strings.SplitSeq(markdownOf(long), "\n\n") {
		if block = strings.Trim(block, "\n"); strings.HasPrefix(block, "    ") {
			p.code("text", unindented(block))
		} else if block != "" {
			p.prose("%s", escaped(block))
		}
	}
}

// unindented removes the indent of the first line from all lines.
func unindented(text string) string {
	text = strings.Trim(text, "\n")
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimPrefix(line, indent))
	}
	return strings.Join(lines, "\n")
}

// constants returns the constants of a file, whose names begin with a prefix, with their values and comments.
func constants(t *testing.T, file, prefix string) (found [][2]string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		c, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(c.Names[0].Name, prefix) || len(c.Values) != 1 {
			return true
		}
		value, is := c.Values[0].(*ast.BasicLit)
		if !is {
			return true
		}
		words := strings.Join(strings.Fields(c.Doc.Text()), " ")
		if words == "" {
			t.Errorf("%s of %s has no comment", c.Names[0].Name, file)
		}
		found = append(found, [2]string{value.Value, strings.TrimPrefix(words, c.Names[0].Name+" ")})
		return true
	})
	return found
}

func exitCodesPage(t *testing.T) string {
	p := newPage("Exit codes", "This page is for those who call `railbed` from scripts and CI.")
	p.line("| code | meaning |\n|---|---|")
	codes := constants(t, "../internal/verdict/verdict.go", "Exit")
	for i, c := range codes {
		if c[0] != strconv.Itoa(i) {
			t.Errorf("exit code %s at place %d", c[0], i)
		}
		words := strings.TrimPrefix(strings.TrimPrefix(c[1], "is "), "means that ")
		p.line("| %s | %s |", c[0], escaped(strings.ToUpper(words[:1])+words[1:]))
	}
	if len(codes) < 6 {
		t.Errorf("%d exit codes; there are more", len(codes))
	}
	p.line("")
	p.prose("`run`, `test`, `verify` and `report` exit with the code of their verdict:")
	p.line("| verdict | code |\n|---|---|")
	for _, v := range []verdict.Verdict{verdict.Pass, verdict.Inconclusive, verdict.Fail, verdict.Overloaded,
		verdict.Unsupported, verdict.Aborted} {
		p.line("| %s | %d |", v, v.ExitCode())
	}
	p.line("")
	p.prose("Of several verdicts the worst one decides. `exec` and `shell` exit with the exit code of " +
		"their program.")
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// metric is a metric of a testbed.
type metric struct{ name, help, labels string }

// metricsOf reads the metrics from the calls that declare them.
func metricsOf(t *testing.T) (found []metric) {
	t.Helper()
	files, err := filepath.Glob("../testbed/supervisor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lists, calls := map[string]ast.Expr{}, []*ast.CallExpr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, value := range n.Values {
					lists[n.Names[i].Name] = value
				}
			case *ast.CallExpr:
				if f, is := n.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "NewDesc" {
					calls = append(calls, n)
				}
			}
			return true
		})
	}
	for _, call := range calls {
		found = append(found, metric{constantText(call.Args[0]), constantText(call.Args[1]),
			labelsOf(t, call.Args[2], lists)})
	}
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found
}

// constantText returns the value of a text, or of texts that are added.
func constantText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			return ""
		}
		return text
	case *ast.BinaryExpr:
		return constantText(e.X) + constantText(e.Y)
	}
	return ""
}

// labelsOf returns a list of labels, which may be a variable or have elements appended.
func labelsOf(t *testing.T, e ast.Expr, lists map[string]ast.Expr) string {
	t.Helper()
	var labels []string
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "nil" {
			return ""
		}
		return labelsOf(t, lists[e.Name], lists)
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			labels = append(labels, "`"+constantText(element)+"`")
		}
	case *ast.CallExpr: // append(list, "label") or slices.Concat
		for _, argument := range e.Args {
			if text := constantText(argument); text != "" {
				labels = append(labels, "`"+text+"`")
			} else {
				labels = append(labels, labelsOf(t, argument, lists))
			}
		}
	default:
		t.Errorf("labels are %T", e)
	}
	return strings.Join(labels, ", ")
}

func metricsPage(t *testing.T) string {
	p := newPage("Metrics", "This page is for those who watch a running testbed. Its supervisor serves "+
		"these metrics at `/metrics` of its Unix socket, `control.sock`, in the format of Prometheus, "+
		"together with metrics of the Go runtime. "+
		"`railbed inspect` and `railbed ui` show their values, and captures can start and stop by them.")
	p.line("| metric | labels | meaning |\n|---|---|---|")
	found := metricsOf(t)
	for _, m := range found {
		if m.name == "" || m.help == "" {
			t.Errorf("metric %+v has no name or no help", m)
		}
		p.line("| `%s` | %s | %s |", m.name, m.labels, escaped(m.help))
	}
	if len(found) < 30 {
		t.Errorf("%d metrics; there are more", len(found))
	}
	return fmt.Sprintln(strings.TrimRight(p.String(), "\n"))
}
