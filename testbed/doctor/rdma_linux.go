package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
)

// tryRXE makes a device in this namespace. It does not load the module, because that would change
// the host.
func tryRXE() (string, error) {
	if err := loadedRXE(); err != nil {
		return "", err
	}
	link, err := addVeth()
	if err != nil {
		return "", err
	}
	device := kernel.RDMA{Kind: "rxe", Name: "rxe_" + link.Name, Dev: link.Name}
	if err := kernel.AddRDMA(device); err != nil {
		return "", err
	}
	_, err = kernel.ReadRDMA(device.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("the device belongs to the host's initial network namespace, not to this " +
			"one: rdma system show says netns exclusive")
	}
	if err != nil {
		return "", err
	}
	return "", ownSocket()
}

func loadedRXE() error {
	if _, err := os.Stat("/sys/module/rdma_rxe"); err == nil {
		return nil
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	folder := filepath.Join("/lib/modules", unix.ByteSliceToString(name.Release[:]),
		"kernel/drivers/infiniband/sw/rxe")
	if files, _ := filepath.Glob(filepath.Join(folder, "rdma_rxe.ko*")); len(files) > 0 {
		return fmt.Errorf("%s exists, but is not loaded: %w", files[0], errUnknown)
	}
	return fmt.Errorf("module rdma_rxe is not loaded, and %s has no rdma_rxe.ko", folder)
}

// ownSocket returns an error if the devices of this namespace receive nothing. Kernels before 7.1
// have one socket for the devices of all namespaces, in the first namespace.
func ownSocket() error {
	const port = ":12B7" // 4791
	text, err := os.ReadFile("/proc/thread-self/net/udp")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasSuffix(fields[1], port) {
			return nil
		}
	}
	return errors.New("the device receives packets of the host's initial network namespace instead of this " +
		"one: want Linux 7.1 or later")
}
