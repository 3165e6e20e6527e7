package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloadOff reports whether a feature must be off on emulated NICs and ports. With such a feature
// a "frame" would be something that no wire carries. It could be a packet of up to 64 KiB that is
// segmented later or never (segmentation on sending, and its reverse on receiving), or one without
// its checksum. A packet socket sees a UDP burst as one frame unless tx-udp-segmentation is off.
func offloadOff(feature string) bool {
	return strings.HasPrefix(feature, "tx-checksum-") ||
		strings.HasPrefix(feature, "tx-gso-") ||
		strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation") ||
		feature == "rx-gro" || strings.HasPrefix(feature, "rx-gro-") ||
		feature == "rx-udp-gro-forwarding" || feature == "rx-lro" || feature == "rx-gro-hw"
}

// features is the kernel's table of feature bits, which is the same for all interfaces.
type features struct {
	names []string
	off   []uint32 // a mask per block of 32 features
}

var (
	featureLock  sync.Mutex
	featureTable *features
)

const (
	ethStringSetFeatures = 4
	ethGStringLen        = 32
	maxFeatures          = 512 // the kernel has about 70
)

// ethtool runs one ETHTOOL ioctl. It works with any socket; the rtnetlink socket is already in the
// right namespace.
func (c *Conn) ethtool(dev string, data []byte) error {
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq's union is 24 bytes
	}
	copy(request.name[:unix.IFNAMSIZ-1], dev)
	request.data = unsafe.Pointer(&data[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}

// table requests the kernel's feature names once per process. Dev is any interface of the
// connection's namespace.
func (c *Conn) table(dev string) (*features, error) {
	featureLock.Lock()
	defer featureLock.Unlock()
	if featureTable != nil {
		return featureTable, nil
	}
	reply := make([]byte, 12+maxFeatures*ethGStringLen) // struct ethtool_gstrings
	binary.NativeEndian.PutUint32(reply, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(reply[4:], ethStringSetFeatures)
	count, err := c.featureCount(dev)
	if err == nil {
		err = c.ethtool(dev, reply)
	}
	if err != nil {
		return nil, fmt.Errorf("read offload names of %s: %w", dev, err)
	}
	table := &features{off: make([]uint32, (count+31)/32)}
	for i := range count {
		name, _, _ := bytes.Cut(reply[12+i*ethGStringLen:12+(i+1)*ethGStringLen], []byte{0})
		table.names = append(table.names, string(name))
		if offloadOff(string(name)) {
			table.off[i/32] |= 1 << (i % 32)
		}
	}
	featureTable = table
	return table, nil
}

// featureCount returns how many strings ETHTOOL_GSTRINGS will write.
func (c *Conn) featureCount(dev string) (int, error) {
	reply := make([]byte, 16+4) // struct ethtool_sset_info with one count
	binary.NativeEndian.PutUint32(reply, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(reply[8:], 1<<ethStringSetFeatures)
	if err := c.ethtool(dev, reply); err != nil {
		return 0, err
	}
	if count := int(binary.NativeEndian.Uint32(reply[16:])); count <= maxFeatures {
		return count, nil
	}
	return 0, fmt.Errorf("more than %d features", maxFeatures)
}

// TurnOffloadsOff turns off segmentation, GRO and TX checksum offload of an interface in the
// connection's namespace, in one ioctl. OffloadsOn reports the features that stayed on.
func (c *Conn) TurnOffloadsOff(dev string) error {
	table, err := c.table(dev)
	if err != nil {
		return err
	}
	request := make([]byte, 8+8*len(table.off)) // struct ethtool_sfeatures
	binary.NativeEndian.PutUint32(request, unix.ETHTOOL_SFEATURES)
	binary.NativeEndian.PutUint32(request[4:], uint32(len(table.off)))
	for i, mask := range table.off { // {valid, requested}: change these bits, to 0
		binary.NativeEndian.PutUint32(request[8+8*i:], mask)
	}
	if err := c.ethtool(dev, request); err != nil {
		return fmt.Errorf("turn off offloads of %s: %w", dev, err)
	}
	return nil
}

// OffloadsOn lists the features of an interface that are on and must be off.
func (c *Conn) OffloadsOn(dev string) ([]string, error) {
	table, err := c.table(dev)
	if err != nil {
		return nil, err
	}
	reply := make([]byte, 8+16*len(table.off)) // struct ethtool_gfeatures
	binary.NativeEndian.PutUint32(reply, unix.ETHTOOL_GFEATURES)
	binary.NativeEndian.PutUint32(reply[4:], uint32(len(table.off)))
	if err := c.ethtool(dev, reply); err != nil {
		return nil, fmt.Errorf("read offloads of %s: %w", dev, err)
	}
	var on []string
	for i, mask := range table.off {
		// {available, requested, active, never changed}
		active := binary.NativeEndian.Uint32(reply[8+16*i+8:]) & mask
		for bit := 0; active != 0; bit, active = bit+1, active>>1 {
			if active&1 != 0 {
				on = append(on, table.names[32*i+bit])
			}
		}
	}
	return on, nil
}

// OffloadsOffLine is the ethtool line that is equivalent to TurnOffloadsOff.
func OffloadsOffLine(node, dev string) string {
	return fmt.Sprintf("ip netns exec %s ethtool -K %s tx off tso off gso off gro off tx-udp-segmentation "+
		"off tx-gso-list off rx-gro-list off rx-udp-gro-forwarding off", node, dev)
}
