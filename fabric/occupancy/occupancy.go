// Package occupancy shares the queue lengths of a testbed's emulated NICs. The software switch
// writes them to memory, and our endpoints read it. So a sender can look at its send queue, as with
// a NIC's doorbell page.
package occupancy

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Priorities is the number of queues of a NIC.
const Priorities = 8

// Page holds the number of queued bytes by NIC and priority. Any number of threads and processes
// may read; one thread writes.
type Page struct {
	memory []byte
	nics   int
}

// size returns the bytes of a page for a number of NICs.
func size(nics int) int { return nics * Priorities * 4 }

func newPage(memory []byte) *Page { return &Page{memory: memory, nics: len(memory) / size(1)} }

// NICs is the number of NICs that the page has room for, at least the number it was made for. They
// are numbered in the order of the plan's nodes and their NICs.
func (p *Page) NICs() int { return p.nics }

func (p *Page) at(nic int, priority uint8) *atomic.Uint32 {
	if nic < 0 || nic >= p.nics || priority >= Priorities {
		panic(fmt.Sprintf("occupancy of NIC %d of %d at priority %d", nic, p.nics, priority))
	}
	return (*atomic.Uint32)(unsafe.Pointer(&p.memory[size(nic)+int(priority)*4]))
}

// Bytes returns the queued bytes of a NIC at one priority: Ethernet frames that the node has sent
// and that are not on the link yet.
func (p *Page) Bytes(nic int, priority uint8) uint32 { return p.at(nic, priority).Load() }

// Set writes the number of queued bytes.
func (p *Page) Set(nic int, priority uint8, bytes uint32) { p.at(nic, priority).Store(bytes) }
