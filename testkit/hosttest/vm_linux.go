package hosttest

import (
	"os"

	"railbed/internal/vmimage"
)

func probeVM() error {
	if _, err := vmimage.FindKernel(); err != nil {
		return err
	}
	return program("qemu-system-x86_64", "--version")()
}

// probeTap opens the device; to make a tap with it, a namespace is enough.
func probeTap() error {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}
