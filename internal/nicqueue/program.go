package nicqueue

import (
	"errors"
	"fmt"
	"io"
)

// Program is the program's side of a pair of queues. One goroutine may send while another receives.
type Program struct {
	memory
	bell  bell // the device's
	own   line
	sent  uint64 // frames posted
	put   uint64 // frames put since
	first int64  // when the first of these leaves
	taken uint64 // frames received and returned
	given uint64 // frames received
	// rests and full are set while the program's flags may be.
	rests, full bool
	ended       bool      // the device has closed its side
	conn        io.Closer // while it is open, the NIC keeps the queues; nil after Map alone
}

// Room returns the number of frames that the queue for sending has room for. It is 0 if the queue is full or
// broken.
func (p *Program) Room() int {
	used := p.sent + p.put - p.counter(sendTaken).Load()
	return max(0, p.geometry.Send-int(min(used, uint64(p.geometry.Send))))
}

// Frame returns the memory of the next frame to put. There must be room.
func (p *Program) Frame() []byte { return p.frame(p.sending(p.sent + p.put)) }

// Put adds the frame that was written to Frame, with its length and the time in nanoseconds of
// CLOCK_MONOTONIC at which it is to leave. A time that has passed means at once. The frame stays with the
// program until Post.
func (p *Program) Put(length int, departs int64) {
	describe(p.descriptor(p.sending(p.sent+p.put)), departs, length)
	if p.put == 0 || departs < p.first {
		p.first = departs
	}
	p.put++
}

// Post passes the frames that were put to the NIC. It rings unless the NIC wakes by itself before they leave.
func (p *Program) Post() error {
	if p.put == 0 {
		return nil
	}
	p.sent, p.put = p.sent+p.put, 0
	p.counter(sendPosted).Store(p.sent)
	if flag := p.counter(deviceRests); uint64(max(p.first, 0)) < flag.Load() && wants(flag) {
		return p.bell.ring()
	}
	return nil
}

// Next returns the next frame that arrived, or nil, and when it arrived, in nanoseconds of CLOCK_MONOTONIC.
// After the last frame of a device that has ended, the error is ErrEnded.
// The memory is the program's until Return.
func (p *Program) Next() (frame []byte, arrived int64, err error) {
	posted := p.counter(receivePost).Load()
	if posted == p.given {
		if p.ended {
			return nil, 0, fmt.Errorf("receive from NIC: %w", ErrEnded)
		}
		return nil, 0, nil
	}
	if posted-p.taken > uint64(p.geometry.Receive) {
		return nil, 0, fmt.Errorf("receive from NIC: %w", ErrBroken)
	}
	i := p.receiving(p.given)
	arrived, length := described(p.descriptor(i))
	if length < leastFrame || length > p.geometry.Room {
		return nil, 0, fmt.Errorf("receive from NIC: frame of %d bytes: %w", length, ErrBroken)
	}
	p.given++
	return p.frame(i)[:length:length], arrived, nil
}

// Return gives the memory of all frames from Next back to the NIC.
func (p *Program) Return() {
	if p.taken != p.given {
		p.taken = p.given
		p.counter(receiveTaken).Store(p.taken)
	}
}

// Rest asks for the doorbell, before the program waits on Bell: at the next frame that does not wait, or when
// a number of frames have arrived. It returns false if frames have arrived, or the device's counter makes no
// sense: then the program must not wait. With more than one frame, the program bounds its wait itself.
func (p *Program) Rest(frames int) bool {
	p.rests = rest(p.counter(programRests), p.given+uint64(frames), p.counter(receivePost), p.given)
	return p.rests
}

// RestFull asks for the doorbell when the queue for sending, which is full, is half empty. It returns false
// if it is already.
func (p *Program) RestFull() bool {
	p.counter(programFull).Store(1)
	if p.Room() < p.geometry.Send/2 {
		p.full = true
		return true
	}
	p.counter(programFull).Store(0)
	return false
}

// Wake ends Rest and RestFull. It resets the doorbell if that has rung. The caller passes whether it found
// Bell readable: the device may ring after the flags were reset.
func (p *Program) Wake(readable bool) {
	rung := p.rests && p.counter(programRests).Swap(0) == 0
	rung = p.full && p.counter(programFull).Swap(0) == 0 || rung
	p.rests, p.full = false, false
	if rung || readable {
		p.ended = !p.own.quiet()
	}
}

// Bell is the descriptor that becomes readable when a frame arrives after Rest, until Wake. It stays readable
// when the device has ended.
func (p *Program) Bell() int { return p.own.fd }

// Close unmaps the memory and closes the doorbells. A second Close does nothing.
func (p *Program) Close() error {
	var err error
	if p.conn != nil {
		err, p.conn = p.conn.Close(), nil
	}
	return errors.Join(err, closeSide(&p.memory, &p.bell.fd, &p.own.fd))
}
