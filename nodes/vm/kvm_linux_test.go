package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/vmimage"
	"railbed/nodes"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// ownDev replaces /dev by a folder with the devices that QEMU needs, without KVM, until the test
// ends.
func ownDev(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"null", "zero", "random", "urandom"} {
		place := filepath.Join(dir, name)
		writeEmpty(t, place, 0o600)
		bind(t, "/dev/"+name, place)
	}
	bind(t, dir, "/dev")
}

func writeEmpty(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, nil, mode); err != nil {
		t.Fatal(err)
	}
}

// bind shows a file or folder at another place until the test ends.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatalf("mount %s on %s: %v", from, to, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", to, err)
		}
	})
}

// TestWithoutKVM: where KVM's device is not there, is not for QEMU's user, or is nothing
// that QEMU can work with, guests run without it, and why is known. QEMU is the real one.
func TestWithoutKVM(t *testing.T) {
	hosttest.Need(t, hosttest.VM)
	if !hosttest.InMounts(t) {
		return
	}
	ownDev(t)
	refused := func(what string, wanted ...string) {
		t.Helper()
		r := newRuntime(t)
		r.Processor = ""
		namespace, err := kernel.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer namespace.Close()
		processor, err := r.processor(t.Context(),
			nodes.Config{Testbed: "test", Namespace: namespace, Node: plan.Node{Name: "a"}})
		slow := r.Slow()
		if err != nil || processor != TCG || slow == nil {
			t.Fatalf("%s: %s, %v, because of: %v; want %s", what, processor, err, slow, TCG)
		}
		for _, want := range wanted {
			if !strings.Contains(slow.Error(), want) {
				t.Errorf("%s: %v; want %q", what, slow, want)
			}
		}
	}
	refused("no device", "no such file or directory")

	writeEmpty(t, vmimage.KVMPath, 0o600)
	if otherUser() != 0 {
		refused("a device of another user", "only the owner may open")
	} else {
		// The user that starts QEMU owns it here, so it can be opened, and QEMU refuses it.
		refused("a file", "boot a guest with KVM")
	}
	bind(t, os.DevNull, vmimage.KVMPath)
	refused("a device that is not KVM's", "boot a guest with KVM", program+" said: ",
		"failed to initialize kvm")
}
