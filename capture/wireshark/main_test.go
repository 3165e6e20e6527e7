package wireshark

import (
	"os"
	"testing"

	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
