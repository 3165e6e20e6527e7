package runner

import (
	"os"
	"testing"

	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// The tests run testbeds on this executable, and measure their rates.
var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) {
	testbed.Init(Parts())
	os.Exit(hosttest.Main(m))
}
