package nicqueue

import "fmt"

// Device is the NIC's side of a pair of queues. One thread may take frames while another delivers.
type Device struct {
	memory
	bell      line // the program's
	own       bell
	taken     uint64
	delivered uint64
	solicited bool // since Ring, a solicited frame was delivered
	// Overrun counts frames for which the program's queue had no room.
	Overrun uint64
}

// Head reports whether a frame waits, and the time in nanoseconds of CLOCK_MONOTONIC at which it is to
// leave. The time is the program's word: bound it.
func (d *Device) Head() (departs int64, waits bool) {
	if d.counter(sendPosted).Load() == d.taken {
		return 0, false
	}
	departs, _ = described(d.descriptor(d.sending(d.taken)))
	return departs, true
}

// Take copies the next frame that the program posted into memory of at least Room bytes, and returns its
// length. That is 0 without a frame, or for a descriptor with a length that no frame has.
func (d *Device) Take(into []byte) (length int, err error) {
	waiting := d.counter(sendPosted).Load() - d.taken
	if waiting == 0 {
		return 0, nil
	}
	if waiting > uint64(d.geometry.Send) {
		return 0, fmt.Errorf("take from program: %w", ErrBroken)
	}
	i := d.sending(d.taken)
	if _, length = described(d.descriptor(i)); length < leastFrame || length > d.geometry.Room {
		length = 0
	}
	copy(into, d.frame(i)[:length])
	d.taken++
	d.counter(sendTaken).Store(d.taken)
	if waiting-1 <= uint64(d.geometry.Send/2) && wants(d.counter(programFull)) {
		return length, d.bell.ring()
	}
	return length, nil
}

// Deliver copies a frame that arrived at a time in nanoseconds of CLOCK_MONOTONIC to the program, which may
// be asleep until Ring. A solicited frame wakes it, others may wait. Deliver returns false if the program
// has left no room, and counts the frame.
func (d *Device) Deliver(frame []byte, arrived int64, solicited bool) bool {
	free := d.geometry.Receive - int(min(d.delivered-d.counter(receiveTaken).Load(),
		uint64(d.geometry.Receive)))
	if free == 0 || len(frame) > d.geometry.Room {
		d.Overrun++
		return false
	}
	i := d.receiving(d.delivered)
	describe(d.descriptor(i), arrived, copy(d.frame(i), frame))
	d.delivered++
	d.solicited = d.solicited || solicited
	d.counter(receivePost).Store(d.delivered)
	return true
}

// Ring wakes the program if it waits, and was delivered a solicited frame or as many frames as it waits for.
func (d *Device) Ring() error {
	flag, solicited := d.counter(programRests), d.solicited
	d.solicited = false
	if until := flag.Load(); !solicited && d.delivered < until || !wants(flag) {
		return nil
	}
	return d.bell.ring()
}

// Rest asks for the doorbell, before the device waits on Bell until a time in nanoseconds of
// CLOCK_MONOTONIC. A program does not ring for frames that leave at that time or later. Rest returns false
// if there are frames.
func (d *Device) Rest(until int64) bool {
	return rest(d.counter(deviceRests), uint64(max(until, 1)), d.counter(sendPosted), d.taken)
}

// Wake ends Rest without a doorbell.
func (d *Device) Wake() { d.counter(deviceRests).Store(0) }

// Bell is the eventfd that becomes readable when the program posts frames after Rest. Watch it
// edge-triggered, or read it.
func (d *Device) Bell() int { return d.own.fd }

// Size is the length of the shared memory in bytes.
func (d *Device) Size() int64 { return int64(len(d.bytes)) }

// Close unmaps the memory and closes the doorbells. A second Close does nothing.
func (d *Device) Close() error { return closeSide(&d.memory, &d.bell.fd, &d.own.fd) }
