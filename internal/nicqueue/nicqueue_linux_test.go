package nicqueue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var small = Geometry{Send: 4, Receive: 8, Room: 1518}

func pair(t testing.TB, g Geometry) (*Device, *Program) {
	t.Helper()
	device, files, err := Create(g)
	if err != nil {
		t.Fatal(err)
	}
	program, err := Map(files, g)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(device.Close(), program.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	})
	return device, program
}

func pattern(number, length int) []byte {
	frame := make([]byte, length)
	for i := range frame {
		frame[i] = byte(number + i*7)
	}
	return frame
}

// Frames of every size cross in both directions whole and in order, many times around the rings.
func TestFramesCross(t *testing.T) {
	device, program := pair(t, small)
	draw := rand.New(rand.NewPCG(1, 2))
	into := make([]byte, small.Room)
	for number := range 500 {
		length := leastFrame + draw.IntN(small.Room-leastFrame+1)
		sent := pattern(number, length)
		copy(program.Frame(), sent)
		program.Put(length, int64(number))
		if got, err := device.Take(into); got != 0 || err != nil {
			t.Fatalf("frame %d crossed before Post: %d bytes, %v", number, got, err)
		}
		if err := program.Post(); err != nil {
			t.Fatal(err)
		}
		departs, _ := device.Head()
		got, err := device.Take(into)
		if err != nil || departs != int64(number) || !bytes.Equal(into[:got], sent) {
			t.Fatalf("frame %d: %d bytes at %d, %v, want %d bytes", number, got, departs, err, length)
		}
		if !device.Deliver(sent, 0, true) {
			t.Fatalf("frame %d was not delivered", number)
		}
		back, _, err := program.Next()
		if err != nil || !bytes.Equal(back, sent) {
			t.Fatalf("frame %d came back as %d bytes, %v", number, len(back), err)
		}
		program.Return()
	}
}

// A full queue takes no more frames; room comes back only when the other side has taken one.
func TestQueuesFill(t *testing.T) {
	device, program := pair(t, small)
	for i := range small.Send {
		if room := program.Room(); room != small.Send-i {
			t.Fatalf("room for %d frames after %d", room, i)
		}
		copy(program.Frame(), pattern(i, 60))
		program.Put(60, 0)
	}
	if program.Post(); program.Room() != 0 {
		t.Errorf("a full queue has room for %d", program.Room())
	}
	into := make([]byte, small.Room)
	if device.Take(into); program.Room() != 1 {
		t.Errorf("room for %d frames, want 1", program.Room())
	}
	for i := range small.Receive {
		if !device.Deliver(pattern(i, 60), 0, true) {
			t.Fatalf("frame %d was not delivered", i)
		}
	}
	if device.Deliver(pattern(9, 60), 0, true) || device.Overrun != 1 {
		t.Errorf("a full queue took a frame, or did not count it: %d", device.Overrun)
	}
	if program.Next(); device.Deliver(pattern(9, 60), 0, true) {
		t.Error("memory was used again before Return")
	}
	if program.Return(); !device.Deliver(pattern(9, 60), 0, true) {
		t.Error("memory was not used again after Return")
	}
	for i := range small.Receive {
		frame, _, err := program.Next()
		want := pattern(i+1, 60)
		if i == small.Receive-1 {
			want = pattern(9, 60)
		}
		if err != nil || !bytes.Equal(frame, want) {
			t.Fatalf("frame %d: % x, %v", i+1, frame[:min(4, len(frame))], err)
		}
	}
}

func rung(t *testing.T, fd int) bool {
	t.Helper()
	var count [8]byte
	n, err := unix.Read(fd, count[:])
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	return n > 0
}

// A doorbell rings once, and only for a side that rests.
func TestDoorbells(t *testing.T) {
	device, program := pair(t, small)
	post := func() {
		copy(program.Frame(), pattern(1, 60))
		program.Put(60, 0)
		if err := program.Post(); err != nil {
			t.Fatal(err)
		}
	}
	if post(); rung(t, device.Bell()) {
		t.Error("it rang while the device was awake")
	}
	if device.Rest(1) {
		t.Error("the device may rest although a frame waits")
	}
	into := make([]byte, small.Room)
	if device.Take(into); !device.Rest(1) {
		t.Error("the device may not rest")
	}
	if post(); !rung(t, device.Bell()) {
		t.Error("it did not ring")
	}
	if post(); rung(t, device.Bell()) {
		t.Error("it rang twice")
	}
	if !program.Rest(1) {
		t.Error("the program may not rest")
	}
	device.Deliver(pattern(1, 60), 0, true)
	if rung(t, program.Bell()) {
		t.Error("it rang before Ring")
	}
	if err := device.Ring(); err != nil || !rung(t, program.Bell()) {
		t.Errorf("it did not ring: %v", err)
	}
	if program.Rest(1) {
		t.Error("the program may rest although a frame waits")
	}
}

// A device that sleeps until a time is woken for a batch only if one of its frames leaves before.
func TestSleepingDevice(t *testing.T) {
	const until = 1000
	for name, c := range map[string]struct {
		departs []int64
		rings   bool
	}{
		"at once":                {[]int64{-5}, true},
		"before":                 {[]int64{999}, true},
		"then":                   {[]int64{1000}, false},
		"later":                  {[]int64{1001, 2000}, false},
		"later, and one before":  {[]int64{2000, 999, 3000}, true},
		"all before":             {[]int64{1, 2, 3}, true},
		"as late as a time goes": {[]int64{1<<63 - 1}, false},
	} {
		device, program := pair(t, small)
		for range 2 { // a batch does not remember the one before it
			if !device.Rest(until) {
				t.Fatalf("%s: the device may not rest", name)
			}
			for _, at := range c.departs {
				program.Put(60, at)
			}
			if err := program.Post(); err != nil || rung(t, device.Bell()) != c.rings {
				t.Errorf("%s: it rings: %t, want %t, %v", name, !c.rings, c.rings, err)
			}
			device.Wake()
			for range c.departs {
				if n, err := device.Take(make([]byte, small.Room)); n != 60 || err != nil {
					t.Fatalf("%s: %d bytes, %v", name, n, err)
				}
			}
		}
	}
}

// A program that waits for several frames is woken at their number, or by a frame that is solicited.
func TestModeration(t *testing.T) {
	device, program := pair(t, small)
	deliver := func(arrived int64, solicited bool) bool {
		if !device.Deliver(pattern(1, 60), arrived, solicited) {
			t.Fatal("no room")
		}
		if err := device.Ring(); err != nil {
			t.Fatal(err)
		}
		return rung(t, program.Bell())
	}
	read := func(want int) {
		for i := range want {
			frame, arrived, err := program.Next()
			if frame == nil || err != nil || arrived != int64(i) {
				t.Fatalf("frame %d: %d bytes that arrived at %d: %v", i, len(frame), arrived, err)
			}
		}
		program.Wake(false)
		program.Return()
	}
	for range 20 {
		program.Rest(3)
		for i := range 3 {
			if deliver(int64(i), false) != (i == 2) {
				t.Fatalf("frame %d of 3 rang, or the last did not", i)
			}
		}
		if deliver(3, true) {
			t.Fatal("it rang twice")
		}
		read(4)
		program.Rest(3)
		if deliver(0, false) || !deliver(1, true) {
			t.Fatal("only the solicited frame must ring")
		}
		read(2)
		if deliver(0, true) {
			t.Fatal("it rang for a program that is awake")
		}
		read(1)
		program.Rest(3)
		if deliver(0, false) {
			t.Fatal("a solicited frame of before rang")
		}
		read(1)
	}
}

// A doorbell that rings after its program woke by itself is quiet once a wait has found it readable.
func TestLateRing(t *testing.T) {
	device, program := pair(t, small)
	program.Rest(1)
	program.Wake(false)
	if err := device.bell.ring(); err != nil {
		t.Fatal(err)
	}
	program.Rest(1)
	if program.Wake(true); rung(t, program.Bell()) {
		t.Error("it is still readable")
	}
}

// A program whose device has ended gets the frames that are left, and then an error instead of a wait without
// end.
func TestEndedDevice(t *testing.T) {
	device, program := pair(t, small)
	device.Deliver(pattern(1, 60), 0, true)
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	if frame, _, err := program.Next(); len(frame) != 60 || err != nil {
		t.Errorf("%d bytes, %v, want the frame that was delivered", len(frame), err)
	}
	if frame, _, err := program.Next(); frame != nil || err != nil {
		t.Errorf("%d bytes, %v before a wait", len(frame), err)
	}
	if !program.Rest(1) || !readable(t, program.Bell()) {
		t.Error("a wait for the doorbell does not end")
	}
	program.Wake(true)
	if _, _, err := program.Next(); !errors.Is(err, ErrEnded) {
		t.Errorf("%v, want %v", err, ErrEnded)
	}
}

// readable reports whether a descriptor is readable.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// Whatever a program does with its end of the doorbell, ringing does not make the device wait.
func TestRingingNeverWaits(t *testing.T) {
	device, program := pair(t, small)
	for _, c := range []struct {
		name  string
		spoil func(fd int) error
	}{
		{"blocking and full", func(fd int) error {
			_, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, ^uint64(1))) // what an eventfd holds
			return unix.SetNonblock(fd, false)
		}},
		{"shut down", func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) }},
	} {
		if err := c.spoil(program.Bell()); err != nil {
			t.Fatal(err)
		}
		rang := make(chan error, 1)
		go func() {
			var err error
			for range 10_000 { // more than the sockets hold
				program.counter(programRests).Store(1)
				device.solicited = true
				err = errors.Join(err, device.Ring())
			}
			rang <- err
		}()
		select {
		case err := <-rang:
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the device waits for a program", c.name)
		}
	}
}

// FuzzProgramLies writes arbitrary bytes over the program's counters and descriptors. The device returns
// frames within their bounds, or ErrBroken, and stays within its memory.
func FuzzProgramLies(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, uint8(3))
	f.Add(binary.NativeEndian.AppendUint64([]byte{0, 0}, 1<<63), uint8(1))
	f.Add(binary.NativeEndian.AppendUint64([]byte{1, 0}, 5), uint8(1))
	f.Add(binary.NativeEndian.AppendUint64([]byte{0x10, 8}, 0xFFFF_FFFF), uint8(1))
	f.Fuzz(func(t *testing.T, lies []byte, posts uint8) {
		device, program := pair(t, small)
		for range min(int(posts), small.Send) {
			program.Put(60, 0)
		}
		if err := program.Post(); err != nil {
			t.Fatal(err)
		}
		for len(lies) >= 3 {
			at := int(binary.BigEndian.Uint16(lies)) % (countersLen/64 + 1) * 64
			if at == countersLen { // the descriptors
				at += int(lies[1]) % (small.Send * descriptorLen)
			}
			n := copy(program.bytes[at:min(at+8, len(program.bytes))], lies[2:])
			lies = lies[2+n:]
		}
		into := make([]byte, small.Room)
		for range 2 * small.Send {
			n, err := device.Take(into)
			if err != nil && !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
			if n > small.Room || n > 0 && n < leastFrame {
				t.Fatalf("a frame of %d bytes", n)
			}
		}
		for range 2 * small.Receive {
			device.Deliver(into[:60], 0, true)
			if err := device.Ring(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The memory of queues is as docs/how-to/nodes.md has it.
func TestMemoryOfQueues(t *testing.T) {
	const (
		frame = 4200 + 14
		each  = 16 + 67*64 // 66 lines hold it
	)
	for _, c := range []struct{ send, receive, want int }{{64, 512, 2_500_000}, {64, 1024, 4_700_000}} {
		g := Geometry{Send: c.send, Receive: c.receive, Room: frame}
		want := 4096 + (c.send+c.receive)*each
		if got := g.size(); got < want || got >= want+4096 || (got+50_000)/100_000 != c.want/100_000 {
			t.Errorf("%+v: %d bytes, want %d, which is about %d", g, got, want, c.want)
		}
	}
}

// What no queues can have is refused before memory is made.
func TestGeometry(t *testing.T) {
	for _, g := range []Geometry{{}, {Send: 3, Receive: 4, Room: 60}, {Send: -4, Receive: 4, Room: 60},
		{Send: 2 * MaxSend, Receive: 4, Room: 60}, {Send: 4, Receive: 2 * MaxReceive, Room: 60},
		{Send: 4, Receive: MaxReceive, Room: 2048}, {Send: 4, Receive: 4, Room: 13},
		{Send: 4, Receive: 4, Room: MaxRoom + 1}} {
		if _, _, err := Create(g); err == nil {
			t.Errorf("%+v was made", g)
		}
	}
	_, files, err := Create(small)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := Map(files, Geometry{Send: 8, Receive: 8, Room: 1518}); err == nil {
		t.Error("memory of another size was mapped")
	}
}

func BenchmarkQueues(b *testing.B) {
	g := Geometry{Send: 64, Receive: 64, Room: 9018}
	device, program := pair(b, g)
	into, frame := make([]byte, g.Room), pattern(1, 9000)
	b.SetBytes(9000)
	for b.Loop() {
		copy(program.Frame(), frame)
		program.Put(9000, 0)
		program.Post()
		device.Take(into)
		device.Deliver(into[:9000], 0, true)
		program.Next()
		program.Return()
	}
}
