package live

import (
	"os"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/reexec"
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
