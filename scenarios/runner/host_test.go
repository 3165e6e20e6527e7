package runner

import "testing"

func TestMemTotal(t *testing.T) {
	if got := memTotal("MemTotal:       16316412 kB\nMemFree: 1 kB\n"); got != 16316412<<10 {
		t.Errorf("%d bytes, want 16316412 KiB", got)
	}
}
