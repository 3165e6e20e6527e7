package cli_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// page has the console blocks, and the files that titles of blocks of YAML and shell programs name.
type page struct {
	files  map[string]string
	blocks []block
}

// block is a console block of a page. HTML comments above it say how it is tested.
type block struct {
	at     string             // page and line
	needs  []hosttest.Feature // <!-- needs: tshark, redis -->
	notRun string             // <!-- not run: REASON -->
	varies bool               // <!-- output varies -->: only exit codes are compared
	exit   int                // <!-- exits with: 2 -->
	// until is the text of <!-- ends after: TEXT -->. A command that has printed it is interrupted.
	until string
	// tested is the text NEW for OLD of <!-- tested with NEW for OLD -->, for commands that take long.
	tested   *strings.Replacer
	commands []shown
}

// shown is a command of a block and the lines that the page shows after it.
type shown struct {
	text   string
	output []string
}

var (
	fenced = regexp.MustCompile(
		"(?ms)((?:^[ \t]*<!--[^\n]*-->\n)*)^([ \t]*)```(console|yaml|sh)([^\n]*)\n(.*?)^[ \t]*```$")
	titled   = regexp.MustCompile(`title="([^"]+)"`)
	comments = regexp.MustCompile(`<!-- ([a-z ]+?)(?:: (.*?))? -->`)
	replaced = regexp.MustCompile(`<!-- tested with (.+) for (.+) -->`)
)

// readPage reads a page, given from the root of the repository.
func readPage(t *testing.T, path string) (p page) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	p.files = map[string]string{}
	for _, m := range fenced.FindAllSubmatchIndex(text, -1) {
		group := func(i int) string { return string(text[m[2*i]:m[2*i+1]]) }
		body := strings.ReplaceAll("\n"+group(5), "\n"+group(2), "\n")[1:]
		if group(3) != "console" {
			if title := titled.FindStringSubmatch(group(4)); title != nil {
				p.files[title[1]] = body
			}
			continue
		}
		line := 1 + bytes.Count(text[:m[4]], []byte("\n"))
		b := block{at: path + ":" + strconv.Itoa(line), tested: strings.NewReplacer(),
			commands: commandsOf(body)}
		if len(b.commands) == 0 {
			t.Errorf("%s: a console block without a command after $ or #", b.at)
		}
		b.read(t, group(1))
		p.blocks = append(p.blocks, b)
	}
	return p
}

// read reads the comments above a block.
func (b *block) read(t *testing.T, text string) {
	t.Helper()
	if r := replaced.FindStringSubmatch(text); r != nil {
		b.tested = strings.NewReplacer(r[2], r[1])
	}
	for _, c := range comments.FindAllStringSubmatch(text, -1) {
		switch c[1] {
		case "needs":
			for _, feature := range strings.Split(c[2], ", ") {
				b.needs = append(b.needs, hosttest.Feature(feature))
			}
		case "not run":
			b.notRun = c[2]
		case "output varies":
			b.varies = true
		case "exits with":
			b.exit, _ = strconv.Atoi(c[2])
		case "ends after":
			b.until = c[2]
		default:
			t.Errorf("%s: unknown comment %q", b.at, c[0])
		}
	}
}

// commandsOf divides a console block into commands, after $ or #, and their output. A backslash at its end
// continues a command.
func commandsOf(body string) (list []shown) {
	continued := false
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case continued:
			list[len(list)-1].text += "\n" + line
		case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "# "):
			list = append(list, shown{text: line[2:]})
		case len(list) > 0:
			list[len(list)-1].output = append(list[len(list)-1].output, line)
			continue
		}
		continued = strings.HasSuffix(line, `\`)
	}
	return list
}

// pages lists the pages of the manual, from the root of the repository.
func pages(t *testing.T) (list []string) {
	t.Helper()
	list = []string{"README.md"}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			list = append(list, strings.TrimPrefix(path, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// missing is the first line that a page shows and a command did not print. The words of a line must be in a
// printed line, in the same order. This line comes after those of the lines before. A word with a digit
// stands for any word with a digit. A line of three dots stands for any lines.
func missing(shown []string, text string) string {
	words := func(line string) (list []string) {
		for _, word := range strings.Fields(line) {
			if strings.ContainsAny(word, "0123456789") {
				word = "0"
			}
			list = append(list, word)
		}
		return list
	}
	lines := strings.Split(text, "\n")
	for _, want := range shown {
		wanted := words(want)
		if len(wanted) == 0 || want == "..." {
			continue
		}
		at := slices.IndexFunc(lines, func(line string) bool {
			next := 0
			for _, word := range words(line) {
				if next < len(wanted) && word == wanted[next] {
					next++
				}
			}
			return next == len(wanted)
		})
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

// TestPagesAreCompared shows that a line is missing if a command did not print it.
func TestPagesAreCompared(t *testing.T) {
	const text = "name  rate\nh0:p1 12 Mbit/s\nPASS\n"
	for shown, want := range map[string]string{
		"name rate\nh0:p1 99 Mbit/s\n...\nPASS": "",
		"name rate\nFAIL":                       "FAIL",
		"PASS\nname rate":                       "name rate", // other order
		"h0:p1 fast":                            "h0:p1 fast",
	} {
		if got := missing(strings.Split(shown, "\n"), text); got != want {
			t.Errorf("%q: %q is missing, want %q", shown, got, want)
		}
	}
	list := commandsOf("$ a \\\n    b\nout\n# c &\n")
	if len(list) != 2 || list[0].text != "a \\\n    b" || list[0].output[0] != "out" ||
		list[1].text != "c &" {
		t.Errorf("%q", list)
	}
}

// TestPagesAreRead reads the console blocks of all pages and the comments above them.
func TestPagesAreRead(t *testing.T) {
	blocks := 0
	for _, path := range pages(t) {
		blocks += len(readPage(t, path).blocks)
	}
	if blocks < 30 {
		t.Errorf("the pages have %d console blocks", blocks)
	}
}
