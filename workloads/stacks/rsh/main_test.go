package rsh_test

import (
	"os"
	"testing"

	"railbed/testbed"
	"railbed/testbed/hosttest"
	"railbed/workloads/stacks/rsh"
)

func TestMain(m *testing.M) {
	testbed.Init(rsh.Parts())
	os.Exit(hosttest.Main(m))
}
