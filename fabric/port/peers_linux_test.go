package port_test

import (
	"testing"
	"time"

	"railbed/fabric/port"
	"railbed/testkit/porttest"
)

// benchOptions give the two ports of a benchmark the memory that the rings of a hundred share: a
// machine that others use stalls a thread for milliseconds.
var benchOptions = port.Options{RingBytes: 4 << 20}

// contender is a switch with two ports.
type contender struct {
	name    string
	connect func(t testing.TB, mtu int) porttest.Pair
}

var contenders = []contender{
	{"packet", ports(port.Packet, spinTime)},
	{"xdp", ports(port.XDP, spinTime)},
	{"tap", ports(port.Tap, spinTime)},
	{"xdp-sleeping", ports(port.XDP, 0)},
	{"bridge", porttest.Bridge},
	{"ovs-netdev", porttest.OpenVSwitch},
}

func ports(driver port.Driver, spin time.Duration) func(testing.TB, int) porttest.Pair {
	return func(t testing.TB, mtu int) porttest.Pair {
		porttest.Need(t, driver)
		p := porttest.Pair{
			Left:  porttest.NewRig(t, driver, porttest.Settings{MTU: mtu, Number: 0}),
			Right: porttest.NewRig(t, driver, porttest.Settings{MTU: mtu, Number: 1}),
		}
		p.CPU = startForwarder(t, p.Left.Port(t, benchOptions), p.Right.Port(t, benchOptions), spin).cpu
		return p
	}
}
