package cli_test

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestWithoutSharedMemory runs the command where memfd_create fails. Soft switches need the call only for
// recordings: a testbed comes up without, and a run that records is UNSUPPORTED and names the call.
func TestWithoutSharedMemory(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	out := filepath.Join(t.TempDir(), "out")
	file := writeFile(t, twoHostsOn("no-memfd", "soft")+
		"steps:\n  - capture: {at: [all], file: all.pcapng}\n")
	must(t, "validate", file)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"up", file}, 0, "no-memfd: up"},
		{[]string{"down", "no-memfd"}, 0, "no-memfd: down"},
		{[]string{"run", file, "--out", out}, verdict.ExitUnsupported,
			"make memory by memfd_create: function not implemented"},
	} {
		var text bytes.Buffer
		var err error
		hosttest.WithoutCall(t, unix.SYS_MEMFD_CREATE, func() {
			cmd := command(c.args...)
			cmd.Stdout, cmd.Stderr = &text, &text
			err = cmd.Run()
		})
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code || !strings.Contains(text.String(), c.want) {
			t.Errorf("railbed %q: exit %d, want %d and %q\n%s", c.args, code, c.code, c.want, text.String())
		}
	}
	noTrace(t, "no-memfd")
}
