package runner

import (
	"os"
	"testing"

	"railbed/internal/hosttest"
	"railbed/testbed"
)

func TestMain(m *testing.M) {
	testbed.Init(Parts())
	os.Exit(hosttest.Main(m))
}
