package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/transports/rd/privacy"
)

// TestDocumentNamesTests holds that the tests exist that the document says hold
// its rules.
func TestDocumentNamesTests(t *testing.T) {
	document, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources []byte
	for _, pattern := range []string{"*_test.go", "../*_test.go", "../../../scenarios/runner/*_test.go",
		"../privacy/*_test.go", "../rate/*/*_test.go", "../../../internal/wire/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source...)
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllSubmatch(document, -1)
	if len(named) < 25 {
		t.Fatalf("it names %d tests", len(named))
	}
	for _, name := range named {
		if !regexp.MustCompile("(?m)^func " + string(name[1]) + `\(`).Match(sources) {
			t.Errorf("there is no %s", name[1])
		}
	}
}

// TestDocumentNumbers checks that the numbers of section 9 match this package's. Package privacy
// checks its own.
func TestDocumentNumbers(t *testing.T) {
	document, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(document), "\n## 9. Numbers\n")
	section, _, _ := strings.Cut(rest, "\n## 10.")
	duration := func(d time.Duration) string {
		text := strings.Replace(d.String(), "µs", "us", 1)
		return regexp.MustCompile(`([0-9])([mu]?s)$`).ReplaceAllString(text, "$1 $2")
	}
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	want := []string{
		thousands(Window) + " packets of the window",
		fmt.Sprintf("%d messages outstanding in a sequence", Messages),
		fmt.Sprintf("%d packets in a turn", quantum),
		fmt.Sprintf("%d, %s, %s ACKs (section 5.4)", ackEvery, duration(ackDelay), duration(endDelay)),
		fmt.Sprintf("%d the least Room", minRoom),
		duration(activity) + " for which a sender shares Room",
		duration(firstProbe) + " first PROBE, when no round trip is known",
		duration(leastProbe) + " least silence before a PROBE",
		duration(mostProbe) + " longest silence between PROBEs",
		duration(defaultPeerTimeout) + " peer timeout",
		duration(slack) + " slack of the bound",
		fmt.Sprintf("%s to %s a `busy` packet waits", duration(leastBusy), duration(mostBusy)),
		fmt.Sprintf("%s to %s pause for a `stranger`", duration(leastPause), duration(mostPause)),
		fmt.Sprintf("%d times that a packet is lost", mostTries),
		fmt.Sprintf("%d answers that wait to be sent in an engine", len(ring{}.entries)),
		duration(behind) + " by which a late pacer catches up",
		"2^22 packets, 10 min of a key",
		"2^32 packets of a key whose successor the peer cannot know",
		"1 s for which packets of the previous epoch are opened",
		thousands(privacy.Window) + " counters of the replay window",
		fmt.Sprintf("%d in %s hints of a peer", hints, duration(hintTime)),
	}
	var got []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|.*\|$`).FindAllStringSubmatch(
		section, -1) {
		got = append(got, row[1]+" "+row[2])
	}
	if !slices.Equal(got, want) {
		t.Errorf("section 9 has\n%s\nand the code\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
