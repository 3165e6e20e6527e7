package porttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
)

// sizes returns frame lengths from the shortest to the largest.
func sizes(mtu int) []int {
	all := []int{14, 15, 17, 59, 60, 61, 64, 65, 127, 128, 129, 512, 1024}
	for _, size := range []int{1400, 1514, 2047, 2048, 4096, 8192} {
		if size < mtu {
			all = append(all, size)
		}
	}
	return append(all, mtu, mtu+13, mtu+14)
}

// Frames of every size arrive whole and in order, in both directions.
func sizesAndOrder(t *testing.T, driver port.Driver) {
	for _, mtu := range []int{1500, 4200, 9000} {
		r := NewRig(t, driver, Settings{MTU: mtu})
		p := r.Port(t, port.Options{})
		nic := r.NIC(t)
		all := sizes(mtu)
		for i, size := range all {
			nic.send(t, pattern(i, size))
		}
		got := collect(t, p, len(all), func(i int, f port.Frame) {
			if want := pattern(i, all[i]); !bytes.Equal(f.Data, want) {
				t.Errorf("mtu %d: frame %d of %d bytes came as %d: % x...", mtu, i, len(want), len(f.Data),
					f.Data[:14])
			}
		})
		if got != len(all) {
			t.Errorf("mtu %d: %d of %d frames came; %+v", mtu, got, len(all), stats(t, p))
		}
		for i, size := range all {
			sendAll(t, p, pattern(i, size))
		}
		for i, size := range all {
			if data := nic.receive(t); !bytes.Equal(data, pattern(i, size)) {
				t.Fatalf("mtu %d: the node got %d bytes, want frame %d of %d bytes; %+v", mtu, len(data), i,
					size, stats(t, p))
			}
		}
		if s := stats(t, p); s.Sent != uint64(len(all)) || s.Received != uint64(len(all)) ||
			s.Truncated+s.Refused+s.SendFailed != 0 {
			t.Errorf("mtu %d: %+v, want %d both ways and nothing else", mtu, s, len(all))
		}
	}
}

// Whatever bytes a node sends arrive unchanged, or not at all.
func arbitraryBytes(t *testing.T, driver port.Driver) {
	const count = 2000
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	draw := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < count; {
		var sent [][]byte
		for range 20 {
			frame := make([]byte, 14+draw.IntN(r.MTU))
			for j := range frame {
				frame[j] = byte(draw.Uint32())
			}
			if draw.IntN(2) == 0 { // as if it were IPv4, IPv6, a tag, pause
				kinds := []uint16{0x0800, 0x86DD, 0x8808, 0x0000, 0x8100, 0x88A8}
				if len(frame) < HeaderLen+port.TagLen+2 {
					kinds = kinds[:4] // the kernel drops a tag without a type in it (skb_vlan_untag)
				}
				binary.BigEndian.PutUint16(frame[12:], kinds[draw.IntN(len(kinds))])
			}
			sent = append(sent, frame)
			nic.send(t, frame)
		}
		got := collect(t, p, len(sent), func(i int, f port.Frame) {
			if !bytes.Equal(f.Data, sent[i]) {
				t.Fatalf("frame %d of %d bytes came as %d bytes", i, len(sent[i]), len(f.Data))
			}
		})
		if got != len(sent) {
			t.Fatalf("%d of %d frames came; %+v", got, len(sent), stats(t, p))
		}
		i += len(sent)
	}
}

// A frame that is longer than the MTU is never passed on, whole or truncated, and is counted. The
// frames around it are not affected.
func tooLong(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	r.setNICMTU(t, r.MTU+300) // the node's root may do that
	nic.send(t, pattern(1, r.MTU+HeaderLen))
	for _, more := range []int{1, 2, 3, 4, 5, 100, 300} {
		// A veth itself drops frames that exceed its MTU by more than a tag, and returns an error.
		if err := nic.Send(pattern(2, r.MTU+HeaderLen+more)); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
	nic.send(t, pattern(3, r.MTU+HeaderLen))
	want := []int{1, 3}
	got := collect(t, p, len(want), func(i int, f port.Frame) {
		if !bytes.Equal(f.Data, pattern(want[i], r.MTU+HeaderLen)) {
			t.Errorf("frame %d came as %d bytes, number %d", want[i], len(f.Data),
				binary.BigEndian.Uint64(f.Data[14:]))
		}
	})
	if s := stats(t, p); got != 2 || s.Received != 2 || s.Truncated < 4 {
		t.Errorf("%d frames came, want 2, and 4 or more counted as truncated: %+v", got, s)
	}

	sendAll(t, p, pattern(4, 60), pattern(5, r.MTU+HeaderLen+1), pattern(6, r.MTU+HeaderLen+600), nil,
		pattern(7, 10), pattern(8, 60))
	for _, number := range []int{4, 8} {
		if data := nic.receive(t); !bytes.Equal(data, pattern(number, 60)) {
			t.Errorf("the node got %d bytes, want frame %d", len(data), number)
		}
	}
	if s := stats(t, p); s.Sent != 2 || s.SendFailed != 4 {
		t.Errorf("%+v, want 2 sent and 4 failed", s)
	}
}

// HeaderLen is the length of an Ethernet header, in bytes.
const HeaderLen = port.HeaderLen

// Tags stay in the frame, in both directions, and the largest payload fits together with a tag.
func tags(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	tagged := func(number int, tag []byte, length int) []byte {
		plain := pattern(number, length)
		return append(append(bytes.Clone(plain[:12]), tag...), plain[12:]...)
	}
	all := [][]byte{
		tagged(1, []byte{0x81, 0x00, 0x60, 0x05}, 60),                         // 802.1Q, priority 3, VLAN 5
		tagged(2, []byte{0x81, 0x00, 0x00, 0x00}, 100),                        // of nothing
		tagged(3, []byte{0x88, 0xA8, 0x00, 0x07}, 100),                        // 802.1ad
		tagged(4, []byte{0x88, 0xA8, 0x00, 0x07, 0x81, 0x00, 0xE0, 0x05}, 90), // both
		tagged(5, []byte{0x81, 0x00, 0x60, 0x05}, r.MTU+HeaderLen),
	}
	for _, frame := range all {
		nic.send(t, frame)
	}
	got := collect(t, p, len(all), func(i int, f port.Frame) {
		if !bytes.Equal(f.Data, all[i]) {
			t.Errorf("frame %d came as % x, want % x", i, f.Data[:24], all[i][:24])
		}
	})
	if got != len(all) {
		t.Errorf("%d of %d frames came: %+v", got, len(all), stats(t, p))
	}
	sendAll(t, p, all...)
	for i, frame := range all {
		got, ok, err := nic.Receive(patience)
		if err != nil || !ok {
			t.Fatalf("frame %d did not reach the node, %v: %+v", i, err, stats(t, p))
		}
		data := got.Data
		if got.Tag != 0 { // the node's kernel removed it
			tag := binary.BigEndian.AppendUint32(nil, got.Tag)
			data = append(append(bytes.Clone(data[:12]), tag...), data[12:]...)
		}
		if !bytes.Equal(data, frame) {
			t.Errorf("frame %d reached the node as % x, want % x", i, data[:24], frame[:24])
		}
	}
}

// Stamps never go back, and lie between sending and receiving.
func stamps(t *testing.T, driver port.Driver) {
	// The difference between the kernel's and the program's reading of one clock on two processors.
	const skew = int64(50 * time.Microsecond)
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	last := int64(0)
	for i := range 200 {
		before := time.Now().UnixNano()
		nic.send(t, pattern(i, 60))
		sent := time.Now().UnixNano()
		if p.Description().KernelStamps {
			time.Sleep(time.Millisecond) // so that a stamp taken by the receiver would show
		}
		collect(t, p, 1, func(_ int, f port.Frame) {
			after := time.Now().UnixNano()
			if f.Stamp < before-skew || f.Stamp > after+skew || f.Stamp < last-skew {
				t.Errorf("frame %d: stamp %d, sent at %d, last %d, received at %d", i, f.Stamp, before, last,
					after)
			}
			// The stamp may be late if the node is interrupted in the middle.
			if late := f.Stamp - sent; p.Description().KernelStamps && late > int64(900*time.Microsecond) &&
				after-sent < int64(2*time.Millisecond) {
				t.Errorf("frame %d: stamp is %d ns after the frame was sent", i, late)
			}
			last = max(last, f.Stamp)
		})
	}
}
