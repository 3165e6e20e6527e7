package occupancy

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create creates the memory for a number of NICs and returns its descriptor.
func Create(nics int) (*os.File, error) {
	fd, err := unix.MemfdCreate("railbed-occupancy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make occupancy page: %w", err)
	}
	file := os.NewFile(uintptr(fd), "occupancy")
	const page = 4096
	err = unix.Ftruncate(fd, int64((max(size(nics), 1)+page-1)&^(page-1)))
	if err == nil {
		// The seals keep any process from shrinking the memory that others have mapped.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("make occupancy page: %w", err)
	}
	return file, nil
}

// Map maps the memory for reading.
func Map(file *os.File) (*Page, error) { return mapPage(file, unix.PROT_READ) }

// MapWritable maps the memory for its writer.
func MapWritable(file *os.File) (*Page, error) {
	return mapPage(file, unix.PROT_READ|unix.PROT_WRITE)
}

func mapPage(file *os.File, protection int) (*Page, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("map occupancy page: %w", err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map occupancy page: %w", err)
	}
	return newPage(memory), nil
}

// Close unmaps the memory. A second Close does nothing.
func (p *Page) Close() error {
	memory := p.memory
	p.memory, p.nics = nil, 0
	if memory == nil {
		return nil
	}
	return unix.Munmap(memory)
}
