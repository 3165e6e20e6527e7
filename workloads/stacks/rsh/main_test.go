package rsh_test

import (
	"os"
	"testing"

	"railbed/internal/reexec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/workloads/stacks/rsh"
)

func TestMain(m *testing.M) {
	testbed.Init(rsh.Parts(), reexec.Parts{impostorPart: impostor, strangerPart: stranger})
	os.Exit(hosttest.Main(m))
}
