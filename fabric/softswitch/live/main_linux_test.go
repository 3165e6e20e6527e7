package live

import (
	"os"
	"testing"

	"railbed/testbed/hosttest"
	"railbed/testbed/reexec"
)

func TestMain(m *testing.M) {
	parts := Parts()
	parts[ownTablePart] = ownTableMain
	reexec.Run(parts)
	os.Exit(hosttest.MainInUserNS(m))
}
