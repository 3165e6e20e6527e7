package supervisor

import (
	"testing"
	"time"

	"railbed/internal/reexec"
)

// TestProgramsGiveWayToSwitchesAlone: the testbed's own load does not count as other programs' load.
func TestProgramsGiveWayToSwitchesAlone(t *testing.T) {
	const period = 4.0 // seconds of two processors in 2 s
	for name, test := range map[string]struct {
		work, total float64
		own         time.Duration
		want        int
	}{
		"idle":                     {0.1, period, 0, reexec.ProgramNice},
		"the testbed's own load":   {3.9, period, 3700 * time.Millisecond, reexec.ProgramNice},
		"others on a quarter":      {3.9, period, 2900 * time.Millisecond, reexec.ProgramNice},
		"others on half":           {3.9, period, 1900 * time.Millisecond, 0},
		"others on all processors": {4, period, 80 * time.Millisecond, 0},
		"no counters":              {0, 0, 0, reexec.ProgramNice},
	} {
		if got := niceBeside(test.work, test.total, test.own); got != test.want {
			t.Errorf("%s: nice %d, want %d", name, got, test.want)
		}
	}
}
