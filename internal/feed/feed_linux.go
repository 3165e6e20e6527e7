package feed

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
)

// Create creates a feed of about size bytes and returns its descriptor, which both ends map.
func Create(size int) (*os.File, error) {
	file, err := kernel.SealedMemory("railbed-feed", ringAt+size)
	if err != nil {
		return nil, fmt.Errorf("make feed: %w", err)
	}
	return file, nil
}

// Allocate allocates the memory of a feed. Otherwise the kernel allocates it as the feed is written, in the
// writer's time. On a host without so much free memory it allocates less.
func Allocate(file *os.File) {
	if info, err := file.Stat(); err == nil {
		_ = unix.Fallocate(int(file.Fd()), 0, 0, info.Size())
	}
}

// NewWriter maps a feed for its only writer. The descriptor may be closed afterwards.
func NewWriter(file *os.File) (*Writer, error) {
	r, err := mapRing(file, true)
	if err != nil {
		return nil, err
	}
	return &Writer{ring: r, lost: make([]uint32, maxTaps)}, nil
}

// NewReader maps a feed for its only reader, after NewWriter. The descriptor may be closed
// afterwards.
func NewReader(file *os.File) (*Reader, error) {
	r, err := mapRing(file, false)
	if err != nil {
		return nil, err
	}
	return &Reader{ring: r}, nil
}

func mapRing(file *os.File, fresh bool) (*ring, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("map feed: %w", err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map feed: %w", err)
	}
	r, err := newRing(memory, fresh)
	if err != nil {
		unix.Munmap(memory)
		return nil, err
	}
	return r, nil
}

// Touch maps all pages of the feed into the process, so that none costs a page fault later (Linux 5.14).
func (r *ring) Touch() { _ = unix.Madvise(r.memory, unix.MADV_POPULATE_WRITE) }

// Close unmaps the feed.
func (r *ring) Close() error {
	memory := r.memory
	r.memory, r.data = nil, nil
	if memory == nil {
		return nil
	}
	return unix.Munmap(memory)
}
