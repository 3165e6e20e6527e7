package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch/live"
)

// TestTimingBeforeAnythingWasSent: the smallest time of the links in use is not 0
// while none is in use; it is not known, in the table and in the document.
func TestTimingBeforeAnythingWasSent(t *testing.T) {
	for _, c := range []struct {
		unit       time.Duration
		says, json string
	}{
		{0, "smallest time of the links in use not yet known, late", ""},
		{12112, "smallest time of the links in use 12.112µs, late", `"unit_ns":12112`},
	} {
		timing := live.Timing{Unit: c.unit}
		var out bytes.Buffer
		(&app{stdout: &out}).printTiming(&timing)
		if !strings.Contains(out.String(), c.says) {
			t.Errorf("the table says %q, want %q", out.String(), c.says)
		}
		document, err := json.Marshal(&timing)
		if err != nil || strings.Contains(string(document), "unit_ns") != (c.json != "") ||
			!strings.Contains(string(document), c.json) {
			t.Errorf("%s, %v; want %q", document, err, c.json)
		}
	}
}
