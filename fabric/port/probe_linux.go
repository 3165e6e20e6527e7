package port

import (
	"errors"
	"fmt"
	"sync"

	"railbed/internal/kernel"
	"railbed/internal/verdict"
)

// probed keeps the results of Probe.
var probed struct {
	sync.Mutex
	answers map[probeKey]error
}

type probeKey struct {
	driver Driver
	mtu    int
}

// Probe tries a driver at an MTU once per process, in a network namespace of its own. It returns
// nil if the driver works, else a verdict.UnsupportedError. It needs the right to make network
// namespaces. It is safe for concurrent use.
func Probe(driver Driver, mtu int) error {
	probed.Lock()
	defer probed.Unlock()
	key := probeKey{driver, mtu}
	answer, known := probed.answers[key]
	if !known {
		answer = probe(driver, mtu)
		if probed.answers == nil {
			probed.answers = map[probeKey]error{}
		}
		probed.answers[key] = answer
	}
	return answer
}

func probe(driver Driver, mtu int) (err error) {
	ns, err := kernel.NewNamespace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	const name, index = "probe", 2
	if driver != Tap {
		conn, err := kernel.OpenIn(ns)
		if err != nil {
			return err
		}
		batch := kernel.NewBatch("probe", nil)
		batch.AddVeth(kernel.VethEnd{Namespace: ns, Name: name, Index: index, MTU: mtu,
			MAC: kernel.MAC{2, 0, 0, 0, 0, 1}},
			kernel.VethEnd{Namespace: ns, Name: name + "2", Index: index + 1, MTU: mtu,
				MAC: kernel.MAC{2, 0, 0, 0, 0, 2}}, 1)
		if err := errors.Join(conn.Do(batch), conn.Close()); err != nil {
			return err
		}
	}
	return ns.Do(func() error {
		handle, err := Open(driver, name, Options{MTU: mtu, RingBytes: 1})
		if err != nil {
			return err
		}
		port, err := handle.Port()
		if err != nil {
			return err
		}
		return port.Close()
	})
}

// Default returns the driver for the switch's end of a veth with an MTU, and one line with the
// reason, from docs/explanation/notes/soft-switch.md. It tries the driver that it recommends.
// Rootless is true if the caller is an ordinary user, whose locked memory is limited: later ports
// may then have to use Packet (OpenBest).
func Default(mtu int, rootless bool) (Driver, string) {
	if err := Probe(XDP, mtu); err != nil {
		return Packet, fmt.Sprintf("packet: AF_XDP would be faster, but: %v", err)
	}
	reason := "xdp: AF_XDP sends 1.3 to 1.4 times as fast as sendmmsg, at any MTU, and needs no BPF; " +
		"receiving through AF_XDP would need BPF and, above MTU 3,500, xdp.frags; a tap needs a system " +
		"call for each frame"
	if rootless {
		chunks, chunk := xdpGeometry(mtu)
		reason += fmt.Sprintf("; each port takes %d KiB of your locked memory (ulimit -l), and ports "+
			"beyond that limit use the driver packet", chunks*chunk>>10)
	}
	return XDP, reason
}

// OpenBest opens the switch's end of a veth with XDP or, if the host or a limit refuses that, with
// Packet. In that case reason and the description contain the cause.
func OpenBest(name string, options Options) (h *Handle, reason string, err error) {
	h, err = Open(XDP, name, options)
	if err == nil || !errors.Is(err, verdict.ErrUnsupported) {
		return h, "", err
	}
	reason = err.Error()
	h, err = Open(Packet, name, options)
	if err == nil {
		h.Description.Reason = reason
	}
	return h, reason, err
}
