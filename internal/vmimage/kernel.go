package vmimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"railbed/internal/verdict"
)

// sharedDir is where scripts/vm-kernel unpacks a kernel for all users of a host, in the layout of
// its package: see findIn.
const sharedDir = "/var/cache/railbed/vm"

// Kernel is a distribution's kernel on this host.
type Kernel struct {
	// Release is the kernel's uname -r.
	Release string
	// Image is the file that QEMU boots, Modules the directory of its modules.
	Image, Modules string
}

// userDir returns the directory where scripts/vm-kernel unpacks a kernel for one user, or "" if the
// user has no cache directory.
func userDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "railbed", "vm")
}

// FindKernel finds a kernel that a guest can boot. It prefers kernels that scripts/vm-kernel
// unpacked for this user or for all users, and then takes the host's own. The error is a
// *verdict.UnsupportedError.
func FindKernel() (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, unsupported(
			fmt.Errorf("guests are amd64, and this program is for %s", runtime.GOARCH))
	}
	var reasons []error
	for _, root := range []string{userDir(), sharedDir, "/"} {
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

// moduleDirs are the paths in a package below which each release has its directory of modules.
// Debian uses usr/lib from 13 on.
var moduleDirs = []string{"lib/modules", "usr/lib/modules"}

// findIn finds the kernel below a directory; of several it takes the release that sorts last.
// Packages have the kernel as boot/vmlinuz-RELEASE; Debian from 14 on has it as vmlinuz beside the
// modules.
func findIn(root string) (Kernel, error) {
	const name, prefix = "vmlinuz", "vmlinuz-"
	images, err := filepath.Glob(filepath.Join(root, "boot", prefix+"*"))
	for _, dir := range moduleDirs {
		beside, bad := filepath.Glob(filepath.Join(root, dir, "*", name))
		images, err = append(images, beside...), errors.Join(err, bad)
	}
	if err != nil {
		return Kernel{}, err
	}
	var all []Kernel
	for _, path := range images {
		release, inBoot := strings.CutPrefix(filepath.Base(path), prefix)
		if !inBoot {
			release = filepath.Base(filepath.Dir(path))
		}
		for _, dir := range moduleDirs {
			all = append(all, Kernel{Release: release, Image: path,
				Modules: filepath.Join(root, dir, release)})
		}
	}
	slices.SortStableFunc(all, func(a, b Kernel) int { return strings.Compare(b.Release, a.Release) })
	err = fmt.Errorf("no kernel in boot, %s of %s", strings.Join(moduleDirs, ", "), root)
	for _, k := range all {
		if err = k.usable(); err == nil {
			return k, nil
		}
	}
	return Kernel{}, err
}

// usable returns why a guest cannot boot from the kernel, or nil. Only root can read Ubuntu's
// images, and kernels for clouds and containers have no modules.
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

// Remedy is the user's instruction for getting a kernel.
const Remedy = "run scripts/vm-kernel of Railbed's sources, as root or as yourself, on Debian or Ubuntu " +
	"for amd64: it unpacks the distribution's kernel " +
	"below " + sharedDir + " or ~/.cache/railbed/vm, and installs nothing"
