package rules

import (
	"os"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

const (
	pass    = verdict.Pass
	fail    = verdict.Fail
	unclear = verdict.Inconclusive
)
