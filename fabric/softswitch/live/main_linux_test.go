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
	if os.Getenv(profileEnv) != "" {
		parts[part] = profiled(parts[part])
	}
	reexec.Run(parts)
	os.Exit(hosttest.MainInUserNS(m))
}
