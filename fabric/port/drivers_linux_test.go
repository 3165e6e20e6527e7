package port_test

import (
	"os"
	"testing"

	"railbed/fabric/port"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

func TestPacket(t *testing.T) { porttest.Run(t, port.Packet) }
func TestXDP(t *testing.T)    { porttest.Run(t, port.XDP) }
func TestTap(t *testing.T)    { porttest.Run(t, port.Tap) }
