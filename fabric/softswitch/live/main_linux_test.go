package live

import (
	"os"
	"testing"

	"railbed/testbed/hosttest"
	"railbed/testbed/reexec"
)

func TestMain(m *testing.M) {
	reexec.Run(Parts())
	os.Exit(hosttest.MainInUserNS(m))
}
