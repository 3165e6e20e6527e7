package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RDMA is an RDMA device on an interface. The kernel deletes it with the interface.
type RDMA struct {
	Kind string // of its driver, such as rxe
	// Name is unique among the devices of all network namespaces.
	Name string
	Dev  string // the interface
}

// addingRDMA serialises the creation of devices: Linux 7.1 has races if devices of several
// namespaces appear and disappear together.
var addingRDMA sync.Mutex

// AddRDMA creates a device in the calling thread's network namespace.
func AddRDMA(r RDMA) error {
	addingRDMA.Lock()
	defer addingRDMA.Unlock()
	if err := netlink.RdmaLinkAdd(r.Name, r.Kind, r.Dev); err != nil {
		return fmt.Errorf("add RDMA device %s of kind %s to %s: %w", r.Name, r.Kind, r.Dev, err)
	}
	return nil
}

// AddRDMALine is the line of ip(8) and rdma(8) that is equivalent to AddRDMA in a node.
func AddRDMALine(node string, r RDMA) string {
	return fmt.Sprintf("ip netns exec %s rdma link add %s type %s netdev %s", node, r.Name, r.Kind, r.Dev)
}

// RDMAState is the state of the first port of an RDMA device.
type RDMAState struct {
	Active bool // it carries packets
	// GIDs are the possible source addresses of RoCEv2 packets, each with its interface. The kernel
	// derives them from the interfaces' addresses.
	GIDs map[netip.Addr]string
}

// ReadRDMA reads the state of a device in the calling thread's network namespace. If there is no
// such device, the error wraps fs.ErrNotExist.
//
// The kernel shows the state only in sysfs. A sysfs mount shows the devices of the namespace in
// which it was mounted (Documentation/ABI/stable/sysfs-class-infiniband).
func ReadRDMA(name string) (RDMAState, error) {
	sysfs, err := mountSysfs()
	if err != nil {
		return RDMAState{}, fmt.Errorf("read RDMA device %s: mount sysfs: %w", name, err)
	}
	defer sysfs.Close()
	state, err := readPort(filepath.Join("/proc/thread-self/fd", strconv.Itoa(int(sysfs.Fd())),
		"class/infiniband", name, "ports/1"))
	if err != nil {
		return state, fmt.Errorf("read RDMA device %s: %w", name, err)
	}
	return state, nil
}

// mountSysfs makes a sysfs mount without a mount point; it ends when the file is closed.
func mountSysfs() (*os.File, error) {
	fd, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, err
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	return os.NewFile(uintptr(mount), "sysfs"), err
}

// readPort reads the directory of a port.
func readPort(folder string) (RDMAState, error) {
	state := RDMAState{GIDs: map[netip.Addr]string{}}
	word, err := readWord(filepath.Join(folder, "state"))
	if err != nil {
		return state, err
	}
	state.Active = strings.HasSuffix(word, "ACTIVE") // "4: ACTIVE"
	for i := 0; ; i++ {
		index := strconv.Itoa(i)
		gid, err := readWord(filepath.Join(folder, "gids", index))
		if errors.Is(err, fs.ErrNotExist) {
			return state, nil // the end of the table
		}
		addr, wrong := netip.ParseAddr(gid)
		if err := errors.Join(err, wrong); err != nil {
			return state, fmt.Errorf("read GID %d: %w", i, err)
		}
		if addr.IsUnspecified() { // the table is filled from the front, and has 1,024 entries
			return state, nil
		}
		kind, err := readWord(filepath.Join(folder, "gid_attrs/types", index))
		if err != nil || kind != "RoCE v2" {
			continue // of another version, or just removed
		}
		if dev, err := readWord(filepath.Join(folder, "gid_attrs/ndevs", index)); err == nil {
			state.GIDs[addr.Unmap()] = dev
		}
	}
}

func readWord(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
