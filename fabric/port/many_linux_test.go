package port_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/kernel"
	"railbed/fabric/port"
	"railbed/fabric/port/porttest"
	"railbed/testbed/hosttest"
)

// A hundred and twenty-eight ports are open at once, with the descriptors and
// the memory that are stated, and each carries its node's frames and no other's.
func TestManyPorts(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	const count = 128
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	rigs, ports := make([]*porttest.Rig, count), make([]port.Port, count)
	for i := range count {
		rigs[i] = porttest.NewRig(t, port.XDP, porttest.Settings{Switch: ns, Number: i})
	}
	before := openDescriptors(t)
	memory, slower := 0, 0
	start := time.Now()
	for i, r := range rigs {
		var handle *port.Handle
		err := ns.Do(func() (err error) {
			var reason string
			handle, reason, err = port.OpenBest(r.PortName(), port.Options{})
			if reason != "" {
				slower++
				t.Logf("port %d: %s", i, reason)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		memory += handle.Description.Memory()
		if ports[i], err = handle.Port(); err != nil {
			t.Fatal(err)
		}
	}
	// Closing one waits for all processors (packet_release), and many can wait
	// together.
	defer func() {
		var closing sync.WaitGroup
		for _, p := range ports {
			closing.Go(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
	}()
	descriptors := openDescriptors(t) - before
	t.Logf("%d ports in %v: %d descriptors, %d KiB; %d without AF_XDP", count, time.Since(start).Round(time.Millisecond), descriptors, memory>>10, slower)
	if descriptors > count*port.DescriptorsPerPort(port.XDP) || memory > count*(port.DefaultRingBytes+128<<10) {
		t.Errorf("%d descriptors, %d bytes for %d ports", descriptors, memory, count)
	}
	frames := []port.Frame{{Data: make([]byte, 0, ports[0].Description().Room())}}
	for i, r := range rigs {
		nic := r.NIC(t)
		frame := make([]byte, 60)
		frame[12], frame[13], frame[20] = 0x88, 0xB5, byte(i)
		if err := nic.Send(frame); err != nil {
			t.Fatal(err)
		}
		poll := []unix.PollFd{{Fd: int32(ports[i].Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 5000); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if n, err := ports[i].Receive(frames); n != 1 || err != nil || frames[0].Data[20] != byte(i) {
			t.Fatalf("port %d: %d frames, %v, number %d", i, n, err, frames[0].Data[20])
		}
	}
	for i, p := range ports {
		if n, err := p.Receive(frames); n != 0 || err != nil {
			t.Errorf("port %d: a frame too many, %v", i, err)
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
