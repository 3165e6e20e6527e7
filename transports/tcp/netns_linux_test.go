package tcp

import (
	"testing"

	"railbed/testkit/transportstest"
)

func openAtNIC(c transportstest.NICConfig) (transportstest.NICEndpoint, error) {
	return Open(Config{Addr: c.Addr, Port: c.Port, Device: c.Device, PeerTimeout: c.PeerTimeout})
}

func TestVanishedPeer(t *testing.T) { transportstest.VanishedPeer(t, openAtNIC) }

func TestDeviceBound(t *testing.T) { transportstest.DeviceBound(t, openAtNIC) }

func TestOpenRefuses(t *testing.T) { transportstest.OpenRefuses(t, openAtNIC) }
