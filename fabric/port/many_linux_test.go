package port_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// A hundred and twenty-eight ports are open at once, with the descriptors and
// the memory that are stated, and each carries its node's frames and no other's.
func TestManyPorts(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
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
			handle, err = port.OpenBest(r.PortName(), port.Options{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		d := handle.Description
		if d.Reason != "" {
			slower++
			t.Logf("port %d: %s", i, d.Reason)
		}
		memory += d.Slots*d.SlotBytes + d.SendSlots*d.SendSlotBytes
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
	t.Logf("%d ports in %v: %d descriptors, %d KiB; %d without AF_XDP", count,
		time.Since(start).Round(time.Millisecond), descriptors, memory>>10, slower)
	if descriptors > count*porttest.Descriptors(port.XDP) ||
		memory > count*(port.DefaultRingBytes+128<<10) {
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

// An ordinary user's locked memory is enough for some ports. The others work without AF_XDP, and
// report that.
func TestOpenBestWithoutLockedMemory(t *testing.T) {
	if !hosttest.InUserNS(t) {
		return
	}
	const enough = 100 << 10 // for one port
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: enough, Max: enough}); err != nil {
		t.Fatal(err)
	}
	var ports []port.Port
	for i, want := range []port.Driver{port.XDP, port.Packet} {
		r := porttest.NewRig(t, port.XDP, porttest.Settings{Number: i})
		var handle *port.Handle
		err := r.Switch.Do(func() (err error) {
			handle, err = port.OpenBest(r.PortName(), port.Options{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := handle.Port()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, p)
		if d := p.Description(); d.Driver != want ||
			strings.Contains(d.Reason, "ulimit -l") != (want == port.Packet) {
			t.Errorf("port %d uses %s: %q; want %s", i, d.Driver, d.Reason, want)
		}
	}
	for _, p := range ports {
		if err := p.Close(); err != nil {
			t.Error(err)
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
