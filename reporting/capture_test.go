package reporting

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestFilesOfARecording: the page links the first files of a recording, and counts the others.
func TestFilesOfARecording(t *testing.T) {
	for files, want := range map[int]string{
		0: `<a href="run.pcapng">run.pcapng</a></td>`,
		3: `<a href="run.pcapng">run.pcapng</a><br><a href="run-2.pcapng">run-2.pcapng</a><br>` +
			`<a href="run-3.pcapng">run-3.pcapng</a></td>`,
		25: `<a href="run-20.pcapng">run-20.pcapng</a><br>and 5 more</td>`,
	} {
		r := sample()
		r.Captures[0].Files = files
		var page, text bytes.Buffer
		if err := WriteHTML(&page, r, HTMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), want) {
			t.Errorf("%d files: the page lacks %s", files, want)
		}
		if err := WriteText(&text, r, TextOptions{Dir: "out"}); err != nil {
			t.Fatal(err)
		}
		told := fmt.Sprintf("packets:  out/run.pcapng and %d more files (", files-1)
		if strings.Contains(text.String(), told) != (files > 0) {
			t.Errorf("%d files: %s", files, text.String())
		}
	}
}
