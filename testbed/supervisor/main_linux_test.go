package supervisor

import (
	"os"
	"testing"

	"railbed/testbed/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
