package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"railbed/testbed/verdict"
)

// SharedDir is where scripts/vm-kernel unpacks a kernel for all users of a host,
// as the package has it: boot/vmlinuz-RELEASE and lib/modules/RELEASE below.
const SharedDir = "/var/cache/railbed/vm"

// Kernel is a distribution's kernel that lies on this host.
type Kernel struct {
	// Release is what uname -r says of it.
	Release string
	// Image is the file that QEMU boots, Modules the folder of its modules.
	Image, Modules string
}

// UserDir is where scripts/vm-kernel unpacks a kernel for one user, "" where a
// user has no folder for caches.
func UserDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "railbed", "vm")
}

// FindKernel finds a kernel that a guest can boot: one that scripts/vm-kernel
// unpacked for this user or for all, else one that the host has for itself. The
// error is a *verdict.UnsupportedError.
func FindKernel() (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, unsupported(fmt.Errorf("guests are amd64, and this program is for %s", runtime.GOARCH))
	}
	var reasons []error
	for _, root := range []string{UserDir(), SharedDir, "/"} {
		if root == "" {
			continue
		}
		kernel, err := findIn(root)
		if err == nil {
			return kernel, nil
		}
		reasons = append(reasons, err)
	}
	return Kernel{}, unsupported(errors.Join(reasons...))
}

// findIn finds the kernel of a folder whose release sorts last.
func findIn(root string) (Kernel, error) {
	const prefix = "vmlinuz-"
	images, err := filepath.Glob(filepath.Join(root, "boot", prefix+"*"))
	if err != nil {
		return Kernel{}, err
	}
	slices.Sort(images)
	err = fmt.Errorf("no kernel in %s", filepath.Join(root, "boot"))
	for _, path := range slices.Backward(images) {
		k := Kernel{Release: strings.TrimPrefix(filepath.Base(path), prefix), Image: path}
		k.Modules = filepath.Join(root, "lib/modules", k.Release)
		if err = k.usable(); err == nil {
			return k, nil
		}
	}
	return Kernel{}, err
}

// usable is why a guest cannot boot from the kernel. Ubuntu's images are for root
// alone, and the kernels of clouds and containers have no modules.
func (k Kernel) usable() error {
	file, err := os.Open(k.Image)
	if err != nil {
		return err
	}
	file.Close()
	_, err = os.Stat(filepath.Join(k.Modules, "modules.builtin"))
	return err
}

func unsupported(err error) error {
	return &verdict.UnsupportedError{
		Feature: "vm-kernel", Reason: strings.ReplaceAll(err.Error(), "\n", "; "), Remedy: Remedy,
	}
}

// Remedy is what brings a kernel.
const Remedy = "run scripts/vm-kernel of Railbed's sources, as root or as yourself, on Debian or Ubuntu for amd64: it unpacks the distribution's kernel " +
	"below " + SharedDir + " or ~/.cache/railbed/vm, and installs nothing"
