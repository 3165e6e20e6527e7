// Package packet defines a frame on its way through the emulated fabric, and the memory for such
// frames.
//
// A packet has one owner at a time: a queue, a link, or the code that works on it. Nothing here is
// safe for concurrent use; the switch has one thread.
package packet

import (
	"fmt"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Packet is one frame.
type Packet struct {
	// Data is the frame from its Ethernet header on, without frame check
	// sequence. It may be resliced up to its capacity.
	Data []byte
	// Headers are the parsed headers of Data (Parse). Code that changes Data must keep them up to
	// date.
	Headers wire.Headers
	// Length is the frame's length on the wire before it was trimmed.
	Length int
	// Serial is the frame's number in the testbed. Copies, the duplicate that a fault makes, and a
	// trimmed frame keep it. 0 means that it has no number yet.
	Serial uint64
	// Flow is the hash of the packet's flow key (package medium).
	Flow uint64
	// Ordinal counts the packets of the flow, from 1, in the order in which they left the node.
	Ordinal uint64
	// Born is the time at which the frame left its node. Due is the time at which it arrives at its
	// next station.
	Born, Due clock.Time
	// Queued is the time at which the packet entered its current or last queue.
	Queued clock.Time
	// Ingress is the port by which the packet came into its current switch, for the accounting of
	// lossless classes. It is -1 for a packet made in the switch.
	Ingress int32
	// Priority is its queue in the current switch, 0 to 7.
	Priority uint8
	// Trimmed is set if the payload was cut away.
	Trimmed bool
	// Bypass is set if a program passed the frame to the NIC past its node's kernel.
	Bypass bool
	// Note is the action of the port that sends the packet.
	Note Note
	// Next links the packets of a queue.
	Next *Packet

	cell []byte
	free bool
}

// Note is a port's action on a packet before it sent the packet, for the record of the sending. The
// zero Note is no action.
type Note struct {
	Verdict, Reason uint8 // as package softswitch numbers them
	Depth           int64 // queued bytes at that time
}

// Parse sets Headers from Data.
func (p *Packet) Parse() { p.Headers = wire.Parse(p.Data) }

// Pool is the packet memory of a testbed: cells of one size from a fixed budget, allocated when
// first needed.
type Pool struct {
	cell  int
	total int
	made  int
	spare *Packet
	used  int
	peak  int
}

// slabCells is how many cells are allocated at once.
const slabCells = 256

// NewPool returns a pool that holds frames of up to cell bytes in at most
// budget bytes.
func NewPool(budget int64, cell int) (*Pool, error) {
	total := int(budget / int64(cell))
	if cell <= 0 || total < 1 {
		return nil, fmt.Errorf("make packet pool: %d bytes hold no frame of %d bytes", budget, cell)
	}
	return &Pool{cell: cell, total: total}, nil
}

// Get returns a packet whose Data is as long as a cell, or nil if the budget is exhausted. Its
// Headers are undefined until Parse; all other fields are zero.
func (p *Pool) Get() *Packet {
	one := p.spare
	if one == nil {
		if one = p.grow(); one == nil {
			return nil
		}
	}
	p.spare = one.Next
	p.used++
	p.peak = max(p.peak, p.used)
	cell := one.cell
	one.Data, one.Ingress, one.Priority, one.Trimmed, one.Next, one.free = cell, -1, 0, false, nil, false
	one.Serial, one.Bypass = 0, false
	one.Length, one.Flow, one.Ordinal, one.Born, one.Due, one.Queued, one.Note = 0, 0, 0, 0, 0, 0, Note{}
	return one
}

// grow allocates some cells and returns the first, linked to the others.
func (p *Pool) grow() *Packet {
	count := min(slabCells, p.total-p.made)
	if count == 0 {
		return nil
	}
	memory := make([]byte, count*p.cell)
	packets := make([]Packet, count)
	for i := range packets {
		packets[i].cell = memory[i*p.cell : (i+1)*p.cell : (i+1)*p.cell]
		packets[i].free = true
		packets[i].Next = p.spare
		p.spare = &packets[i]
	}
	p.made += count
	return p.spare
}

// Put returns a packet to the pool.
func (p *Pool) Put(one *Packet) {
	if one.free {
		panic("packet given back twice")
	}
	one.free = true
	one.Next, p.spare = p.spare, one
	p.used--
}

// Copy returns a second packet with the same content, or nil if the budget is exhausted.
func (p *Pool) Copy(of *Packet) *Packet {
	one := p.Get()
	if one == nil {
		return nil
	}
	cell := one.cell
	*one = *of
	one.cell, one.Next = cell, nil
	one.Data = cell[:copy(cell, of.Data)]
	return one
}

// Cell returns the length of the longest frame that a packet holds, in bytes.
func (p *Pool) Cell() int { return p.cell }

// Budget returns the bytes that all packets together may take.
func (p *Pool) Budget() int64 { return int64(p.total) * int64(p.cell) }

// Used returns the number of packets in use now.
func (p *Pool) Used() int { return p.used }

// Peak returns the largest number of packets that were in use at once.
func (p *Pool) Peak() int { return p.peak }
