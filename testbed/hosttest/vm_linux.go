package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// guestRoot is where scripts/vm-kernel unpacks the kernel that tests boot.
const guestRoot = "/var/cache/railbed/vm"

// GuestKernel is the kernel that tests boot in a VM, an image as QEMU takes
// it and the folder of its modules, or why there is none.
func GuestKernel() (image, modules string, err error) {
	if runtime.GOARCH != "amd64" {
		return "", "", fmt.Errorf("the guest is amd64 and cannot run a test built for %s", runtime.GOARCH)
	}
	images, _ := filepath.Glob(filepath.Join(guestRoot, "boot/vmlinuz-*"))
	for _, image := range images {
		release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
		modules := filepath.Join(guestRoot, "lib/modules", release)
		if _, err := os.Stat(modules); err == nil {
			return image, modules, nil
		}
	}
	return "", "", fmt.Errorf("no kernel in %s: scripts/vm-kernel fetches it", guestRoot)
}

func probeVM() error {
	if _, _, err := GuestKernel(); err != nil {
		return err
	}
	return program("qemu-system-x86_64", "--version")()
}
