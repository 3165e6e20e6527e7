package vmimage

import (
	"fmt"
	"os"
)

// KVMPath is KVM's device.
const KVMPath = "/dev/kvm"

// EmulatedProcessor is QEMU's processor without KVM: all features of TCG except fast string
// instructions, which TCG executes one byte at a time. Without these features kernels copy by
// words. RoCEv2 in a guest, rdma_rxe's as well as ours, then has 1.4 to 1.6 times the goodput (QEMU
// 7.2).
const EmulatedProcessor = "max,-erms,-fsrm"

// OpenKVM returns the reason why QEMU cannot open KVM's device, or nil. It checks as this user or,
// with becomesAnother, as another user who is a member of the device's group.
func OpenKVM(becomesAnother bool) error {
	if becomesAnother {
		info, err := os.Stat(KVMPath)
		if err == nil && info.Mode().Perm()&0o060 != 0o060 {
			err = fmt.Errorf("only the owner may open %s (mode %v), and QEMU runs as another user", KVMPath,
				info.Mode().Perm())
		}
		return err
	}
	file, err := os.OpenFile(KVMPath, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}
