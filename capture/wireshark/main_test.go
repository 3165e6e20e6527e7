package wireshark

import (
	"os"
	"testing"

	"railbed/internal/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
