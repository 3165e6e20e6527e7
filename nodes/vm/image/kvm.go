package image

import (
	"fmt"
	"os"
)

// KVMPath is KVM's device.
const KVMPath = "/dev/kvm"

// OpenKVM is why QEMU cannot open KVM's device, as this user or, where it becomes
// another one, as a member of the device's group.
func OpenKVM(becomesAnother bool) error {
	if becomesAnother {
		info, err := os.Stat(KVMPath)
		if err == nil && info.Mode().Perm()&0o060 != 0o060 {
			err = fmt.Errorf("%s is for its owner alone (%v), and QEMU runs as another user", KVMPath, info.Mode().Perm())
		}
		return err
	}
	file, err := os.OpenFile(KVMPath, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}
