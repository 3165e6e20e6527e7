package doctor

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestKernelBypassNamesWhatIsMissing forbids a system call, as seccomp profiles of containers do. The row
// then names the system call.
func TestKernelBypassNamesWhatIsMissing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	if err := Has(t.Context(), "kernel-bypass"); err != nil {
		t.Fatal(err)
	}
	for call, words := range map[uint32]string{
		unix.SYS_MEMFD_CREATE: "make memory by memfd_create: function not implemented",
		unix.SYS_SOCKETPAIR:   "make doorbell: function not implemented",
	} {
		var probes []Probe
		var err error
		hosttest.WithoutCall(t, call, func() {
			probes, err = Run(t.Context(), Options{Features: []string{"kernel-bypass"}})
		})
		if err != nil {
			t.Fatal(err)
		}
		err = probes[0].Unsupported()
		if !errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), "CONFIG_MEMFD_CREATE") {
			t.Errorf("%v, want %s and the remedy", err, words)
		}
	}
}
