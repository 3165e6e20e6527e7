package port_test

import (
	"os"
	"testing"

	"railbed/fabric/port"
	"railbed/fabric/port/porttest"
	"railbed/testbed/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

func TestPacket(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	porttest.Run(t, port.Packet)
}
