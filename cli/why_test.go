package cli

import (
	"bytes"
	"strings"
	"testing"

	"railbed/capture/follow"
)

// TestWhySaysTheOrderOfCauses: the answer has a line on the order if a cause has a larger share than the
// cause before.
func TestWhySaysTheOrderOfCauses(t *testing.T) {
	cause := func(share float64, unfinished int) follow.Cause {
		return follow.Cause{Where: []string{"h0"}, What: "x", Share: share, Unfinished: unfinished}
	}
	for _, test := range []struct {
		causes []follow.Cause
		said   bool
	}{
		{[]follow.Cause{cause(0.6, 0), cause(0.14, 0), cause(0.09, 0)}, false},
		{[]follow.Cause{cause(0.6, 0), cause(0.09, 0), cause(0.14, 0)}, true},
		{[]follow.Cause{cause(0.01, 2), cause(0.6, 0)}, false},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		a.printAnswer("run", &follow.Answer{Causes: test.causes})
		if said := strings.Contains(out.String(), "few long delays come before"); said != test.said {
			t.Errorf("%v: the order is in the answer: %v, want %v:\n%s", test.causes, said, test.said, &out)
		}
	}
}
