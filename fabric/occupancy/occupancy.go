// Package occupancy is how much waits in the emulated NICs of a testbed, in
// memory that the software switch writes and endpoints of ours read: a send
// queue that a sender can look at, as a NIC's doorbell page shows it.
package occupancy

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Priorities is the number of queues of a NIC.
const Priorities = 8

// Page is the bytes that wait, by NIC and priority. Any number of threads and
// processes may read; one thread writes.
type Page struct {
	memory []byte
	nics   int
}

// size is the bytes of a page for some NICs.
func size(nics int) int { return nics * Priorities * 4 }

func newPage(memory []byte) *Page { return &Page{memory: memory, nics: len(memory) / size(1)} }

// NICs is how many NICs the page has room for, at least as many as it was made
// for. They are numbered in the order of the plan's nodes and their NICs.
func (p *Page) NICs() int { return p.nics }

func (p *Page) at(nic int, priority uint8) *atomic.Uint32 {
	if nic < 0 || nic >= p.nics || priority >= Priorities {
		panic(fmt.Sprintf("occupancy of NIC %d of %d at priority %d", nic, p.nics, priority))
	}
	return (*atomic.Uint32)(unsafe.Pointer(&p.memory[size(nic)+int(priority)*4]))
}

// Bytes is what waits at a NIC at one priority: Ethernet frames that the node has
// sent and that are not on the link yet.
func (p *Page) Bytes(nic int, priority uint8) uint32 { return p.at(nic, priority).Load() }

// Set writes it.
func (p *Page) Set(nic int, priority uint8, bytes uint32) { p.at(nic, priority).Store(bytes) }
