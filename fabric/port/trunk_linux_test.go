package port_test

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// trunkRig is a trunk of some nodes' ports.
type trunkRig struct {
	*port.Trunk
	rigs   []*porttest.Rig
	frames []port.Frame
	from   []int
}

func newTrunk(t *testing.T, nodes int) *trunkRig {
	hosttest.Need(t, hosttest.Netns)
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	r := &trunkRig{from: make([]int, 64)}
	var ports []port.TrunkPort
	for i := range nodes {
		one := porttest.NewRig(t, port.Packet, porttest.Settings{Switch: ns, Number: i})
		r.rigs, ports = append(r.rigs, one),
			append(ports, port.TrunkPort{Index: one.PortIndex(), MTU: one.MTU})
	}
	var handle *port.Handle
	if err := ns.Do(func() (err error) {
		handle, err = port.OpenTrunk(ports[0].MTU, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if r.Trunk, err = handle.Trunk(ports); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	for range r.from {
		r.frames = append(r.frames, port.Frame{Data: make([]byte, 0, r.Room())})
	}
	return r
}

// next waits for frames.
func (r *trunkRig) next(t *testing.T) int {
	t.Helper()
	for {
		n, err := r.Receive(r.frames, r.from)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return n
		}
		poll := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 5000); n == 0 || err != nil && err != unix.EINTR {
			t.Fatalf("nothing came: %v", err)
		}
	}
}

func trunkFrame(number, length int) []byte {
	frame := bytes.Repeat([]byte{byte(number)}, length)
	copy(frame, []byte{2, 0, 0, 0, 0, byte(number), 2, 1, 1, 1, 1, byte(number), 0x88, 0xB5})
	return frame
}

// Every port of a trunk receives its own node's frames, and sends only to its own node, also when
// one call has frames of many ports. A frame of a port that is down is counted there and does not
// delay other frames.
func TestTrunk(t *testing.T) {
	const count = 128
	r := newTrunk(t, count)
	nics := make([]*porttest.NIC, count)
	for i, one := range r.rigs {
		nics[i] = one.NIC(t)
		if err := nics[i].Send(trunkFrame(i, 60+i)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[int]int{}
	for len(seen) < count {
		for i := range r.next(t) {
			data, number := r.frames[i].Data, r.from[i]
			if data[12] != 0x88 || data[13] != 0xB5 {
				continue // the kernel's own
			}
			if !bytes.Equal(data, trunkFrame(number, 60+number)) {
				t.Fatalf("port %d gave % x", number, data[:20])
			}
			if age := time.Since(time.Unix(0, r.frames[i].Stamp)); age < 0 || age > time.Minute {
				t.Errorf("port %d: stamp is %v old", number, age)
			}
			seen[number]++
		}
	}
	var frames [][]byte
	var to []int
	for i := range count {
		frames, to = append(frames, trunkFrame(count-1-i, 100)), append(to, count-1-i)
	}
	r.rigs[5].SetPort(t, false)
	taken, err := r.Send(frames, to)
	if err != nil || taken != count {
		t.Fatalf("took %d of %d: %v", taken, count, err)
	}
	for i := range count {
		if i == 5 {
			continue
		}
		got, ok, err := nics[i].Receive(5 * time.Second)
		for ok && err == nil && !(got.Data[12] == 0x88 && got.Data[13] == 0xB5) {
			got, ok, err = nics[i].Receive(5 * time.Second)
		}
		if err != nil || !ok || !bytes.Equal(got.Data, trunkFrame(i, 100)) {
			t.Errorf("node %d got % x, %v", i, got.Data[:min(20, len(got.Data))], err)
		}
	}
	if s := r.Stats(5); s.Sent != 0 || s.SendFailed != 1 || s.Received == 0 {
		t.Errorf("of the port that was down: %+v", s)
	}
	if s := r.Stats(6); s.Sent != 1 || s.SentBytes != 100 || s.SendFailed != 0 {
		t.Errorf("of its neighbour: %+v", s)
	}
	if dropped, err := r.Dropped(); err != nil || dropped != 0 {
		t.Errorf("dropped %d: %v", dropped, err)
	}
}

// An interface that was deleted and made anew with its index is the same port.
func TestTrunkOutlivesInterfaces(t *testing.T) {
	r := newTrunk(t, 2)
	r.rigs[1].Rebuild(t)
	if err := r.Recover(); err != nil {
		t.Fatal(err)
	}
	nic := r.rigs[1].NIC(t)
	if err := nic.Send(trunkFrame(7, 64)); err != nil {
		t.Fatal(err)
	}
	for {
		if n := r.next(t); r.frames[n-1].Data[12] == 0x88 && r.from[n-1] == 1 {
			break
		}
	}
	if taken, err := r.Send([][]byte{trunkFrame(9, 64)}, []int{1}); taken != 1 || err != nil ||
		r.Stats(1).Sent != 1 {
		t.Errorf("sent %d: %v; %+v", taken, err, r.Stats(1))
	}
}

// What the ring has no room for is counted.
func TestTrunkCountsWhatItDrops(t *testing.T) {
	r := newTrunk(t, 1)
	nic, slots := r.rigs[0].NIC(t), r.Description(0).Slots
	for range slots + 10 {
		if err := nic.Send(trunkFrame(1, 64)); err != nil {
			t.Fatal(err)
		}
	}
	dropped, err := r.Dropped()
	if err != nil || dropped < 10 {
		t.Errorf("dropped %d of %d in %d slots: %v", dropped, slots+10, slots, err)
	}
}

// Neither receiving nor sending takes memory.
func TestTrunkAllocatesNothing(t *testing.T) {
	r := newTrunk(t, 2)
	nic := r.rigs[0].NIC(t)
	frame, out := trunkFrame(1, 64), [][]byte{trunkFrame(1, 64), trunkFrame(2, 64)}
	to := []int{0, 1}
	if got := testing.AllocsPerRun(200, func() {
		if err := nic.Send(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Receive(r.frames, r.from); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Send(out, to); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("%v allocations for a frame each way", got)
	}
}
