package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"railbed/fabric/kernel"
)

// tryRXE makes a device in this namespace. It does not load the module: that would
// change the host.
func tryRXE() (string, error) {
	if err := loadedRXE(); err != nil {
		return "", err
	}
	exclusive, err := kernel.RDMAExclusive()
	if err != nil {
		return "", fmt.Errorf("ask whose RDMA devices are: %w", err)
	}
	if !exclusive {
		return "", errors.New("every namespace sees all RDMA devices: rdma system show has netns shared")
	}
	dev, err := addLink("veth")
	if err != nil {
		return "", err
	}
	device := kernel.RDMA{Kind: "rxe", Name: "rxe_" + dev, Dev: dev}
	if err := kernel.AddRDMA(device); err != nil {
		return "", err
	}
	if _, err := kernel.ReadRDMA(device.Name); err != nil {
		return "", fmt.Errorf("the device is not this namespace's: %w", err)
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
	folder := filepath.Join("/lib/modules", unix.ByteSliceToString(name.Release[:]), "kernel/drivers/infiniband/sw/rxe")
	if files, _ := filepath.Glob(filepath.Join(folder, "rdma_rxe.ko*")); len(files) > 0 {
		return fmt.Errorf("%s is there, but not loaded: %w", files[0], errUnknown)
	}
	return errors.New("module is neither loaded nor on disk")
}

// ownSocket is why this namespace's devices do not hear from it. Kernels before 7.1
// have one socket for the devices of all namespaces, in the first.
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
	return errors.New("it makes no socket on UDP port 4791 here, as Linux does since 7.1")
}
