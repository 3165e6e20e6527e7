//go:build race

package tcp

import "sync/atomic"

// The race detector learns from the system calls of package syscall that what
// was done before a write was done before the read of it, but not from writev
// and readv. This counter tells it, for two endpoints in one process.
var written atomic.Uint64

func beforeWrite() { written.Add(1) }

func afterRead() { written.Load() }
