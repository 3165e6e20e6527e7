package rocechecks

import (
	"os"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

const (
	pass    = verdict.Pass
	fail    = verdict.Fail
	unclear = verdict.Inconclusive
)
