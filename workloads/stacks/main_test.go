package stacks

import (
	"os"
	"testing"

	"railbed/testbed"
	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) {
	testbed.Init(Parts())
	os.Exit(hosttest.Main(m))
}
