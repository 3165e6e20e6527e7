//go:build race

package transports

import "sync/atomic"

// The race detector gets this order from the system calls of package syscall, but not from writev,
// readv, sendmmsg and recvmmsg.
var written atomic.Uint64

// BeforeWrite is called before bytes are sent.
func BeforeWrite() { written.Add(1) }

// AfterRead is called after bytes were received.
func AfterRead() { written.Load() }
