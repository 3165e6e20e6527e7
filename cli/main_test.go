package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"railbed/cli"
	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// The tests run testbeds on this executable.
var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.AsNobody)

// asCommand is the argv[0] with which this test binary is the railbed command.
const asCommand = "railbed"

func TestMain(m *testing.M) {
	cli.Init()
	// Plugins are called by CNI_COMMAND, and by the path of a program. Wireshark's plugin calls the program
	// that installed it: here the test binary, which go test calls with flags alone.
	if filepath.Base(os.Args[0]) == asCommand || os.Getenv("CNI_COMMAND") != "" ||
		len(os.Args) > 1 && os.Args[1] == "extcap" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(hosttest.Main(m))
}

// command is the railbed command in a process of its own.
func command(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: reexec.Self, Args: append([]string{asCommand}, args...), Env: os.Environ()}
}
