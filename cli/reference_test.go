package cli

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
	"railbed/plan/spec/keys"
)

//go:generate go test -run TestReference . -update

var update = flag.Bool("update", false, "write the pages of docs/reference anew")

// referenceDir is where the pages are, from this folder.
const referenceDir = "../docs/reference"

// written are the pages there that people write.
var written = []string{"scenarios.md"}

// referencePages are the pages of the reference by their names. All are made from the code.
func referencePages(t *testing.T) map[string]string {
	pages := keyPages(t)
	pages["checks.md"] = checksPage(t)
	pages["commands.md"] = commandsPage()
	pages["exit-codes.md"] = exitCodesPage(t)
	pages["report.md"] = reportPage(t)
	pages["metrics.md"] = metricsPage(t)
	pages["fields.md"] = fieldsPage(t)
	return pages
}

// TestReference compares the pages of the reference with fresh ones. With -update it writes them.
func TestReference(t *testing.T) {
	pages := referencePages(t)
	if *update {
		if err := os.MkdirAll(referenceDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range pages {
		file := filepath.Join(referenceDir, name)
		text, err := os.ReadFile(file)
		switch {
		case err == nil && string(text) == want:
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not fresh (%v); make generate writes it", file, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(referenceDir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); pages[name] == "" && !slices.Contains(written, name) {
			t.Errorf("nothing makes %s", file)
		}
	}
}

// TestReferenceIsComplete finds each check with a finding of each kind, each command and each key of the file
// in the pages, and a heading for each link.
func TestReferenceIsComplete(t *testing.T) {
	pages := referencePages(t)
	for _, check := range spec.PacketChecks() {
		head := regexp.MustCompile("\n### `(checks\\.packets\\.)?" + check + "`\n")
		at := head.FindStringIndex(pages["checks.md"])
		if at == nil {
			t.Errorf("checks.md has no %s; make generate adds it if TestJudgedExamples has it", check)
			continue
		}
		part, _, _ := strings.Cut(pages["checks.md"][at[1]:], "\n### ")
		if !strings.Contains(part, "\n- PASS: ") || !strings.Contains(part, "\n- FAIL: ") {
			t.Errorf("checks.md has no findings of %s", check)
		}
	}
	for _, path := range CommandPaths() {
		cmd, _, err := Root().Find(strings.Fields(path))
		if err != nil || cmd.Hidden || strings.HasPrefix(path, "help") ||
			strings.HasPrefix(path, "completion") {
			continue
		}
		if !strings.Contains(pages["commands.md"], "\n## railbed "+path+"\n") {
			t.Errorf("commands.md has no %s", path)
		}
	}
	var all strings.Builder
	for _, page := range pages {
		all.WriteString(page)
	}
	for _, k := range keys.All() {
		if !strings.Contains(all.String(), "# `"+k.Name()+"`\n") &&
			!strings.Contains(all.String(), "# `"+k.Path+"`\n") {
			t.Errorf("no page has the key %s", k.Path)
		}
	}
	link := regexp.MustCompile(`\]\(([a-z-]*(?:\.md)?)#([^)]+)\)`)
	for name, page := range pages {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			if !hasHeading(pages[cmp.Or(found[1], name)], found[2]) {
				t.Errorf("%s: the link %s leads nowhere", name, found[0])
			}
		}
	}
}

func hasHeading(page, link string) bool {
	for line := range strings.Lines(page) {
		heading := strings.TrimLeft(line, "#")
		if heading != line && anchor(strings.TrimSpace(heading)) == link {
			return true
		}
	}
	return false
}

// page is a page that is being written.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// newPage begins a page with its title and its first paragraph.
func newPage(title, purpose string) *page {
	p := &page{}
	p.line("# %s\n", title)
	p.prose("%s", purpose)
	return p
}

// prose writes a paragraph in lines of the usual length.
func (p *page) prose(format string, args ...any) {
	p.line("%s\n", wrapped(fmt.Sprintf(format, args...), ""))
}

// wrapped breaks text into lines of at most 110 columns. All but the first have an indent.
func wrapped(text, indent string) string {
	var out strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 110:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}

// code writes a block of code.
func (p *page) code(language, text string) {
	p.line("```%s\n%s\n```\n", language, strings.TrimRight(text, "\n"))
}

// paragraphs writes paragraphs and elements of lists, which begin with "- ".
func (p *page) paragraphs(words []string) {
	for i, word := range words {
		item, isItem := strings.CutPrefix(word, "- ")
		if isItem {
			p.line("%s", wrapped("- "+escaped(item), "  "))
			if i+1 == len(words) || !strings.HasPrefix(words[i+1], "- ") {
				p.line("")
			}
			continue
		}
		p.prose("%s", escaped(word))
	}
}

// escaped protects the signs that Markdown would read, outside of `code`.
func escaped(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("*", `\*`, "<", "&lt;", "_", `\_`, "|", `\|`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

// anchor is the link to a heading, as mkdocs and GitHub make it.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case strings.ContainsRune("`.:*,()/", r):
			return -1
		}
		return r
	}, strings.ToLower(heading))
}
