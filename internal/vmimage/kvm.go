package vmimage

import (
	"fmt"
	"os"
)

// KVMPath is KVM's device.
const KVMPath = "/dev/kvm"

// EmulatedProcessor is QEMU's processor where there is no KVM: all that TCG has but string
// instructions that go by bytes, which it carries out one byte at a time. Kernels then copy
// by words, and a guest's RoCEv2, rdma_rxe's as ours, has 1.4 to 1.6 times the goodput (QEMU 7.2).
const EmulatedProcessor = "max,-erms,-fsrm"

// OpenKVM is why QEMU cannot open KVM's device, as this user or, where it becomes
// another one, as a member of the device's group.
func OpenKVM(becomesAnother bool) error {
	if becomesAnother {
		info, err := os.Stat(KVMPath)
		if err == nil && info.Mode().Perm()&0o060 != 0o060 {
			err = fmt.Errorf("%s is for its owner alone (%v), and QEMU runs as another user", KVMPath,
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
