package live

import (
	"os"
	"testing"

	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) {
	parts := Parts()
	parts[ownTablePart] = ownTableMain
	if os.Getenv(profileEnv) != "" {
		parts[part] = profiled(parts[part])
	}
	reexec.Run(parts)
	os.Exit(hosttest.MainInUserNS(m))
}
