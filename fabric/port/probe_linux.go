package port

import (
	"errors"
	"sync"

	"railbed/fabric/kernel"
)

var probes = map[Driver]func() error{
	Packet: sync.OnceValue(func() error { return probe(Packet) }),
	Tap:    sync.OnceValue(func() error { return probe(Tap) }),
	XDP:    sync.OnceValue(func() error { return probe(XDP) }),
}

// Probe tries a driver once per process, in a network namespace of its own. It
// is nil where the driver works, and a verdict.UnsupportedError where it does
// not. It needs the right to make network namespaces.
func Probe(driver Driver) error {
	if probe, known := probes[driver]; known {
		return probe()
	}
	return errors.New("no such driver")
}

func probe(driver Driver) (err error) {
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
		batch.AddVeth(kernel.VethEnd{Namespace: ns, Name: name, Index: index, MTU: 1500, MAC: kernel.MAC{2, 0, 0, 0, 0, 1}},
			kernel.VethEnd{Namespace: ns, Name: name + "2", Index: index + 1, MTU: 1500, MAC: kernel.MAC{2, 0, 0, 0, 0, 2}}, 1)
		if err := errors.Join(conn.Do(batch), conn.Close()); err != nil {
			return err
		}
	}
	return ns.Do(func() error {
		handle, err := Open(driver, name, Options{RingBytes: 1})
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
