package doctor

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestKernelBypassNamesWhatIsMissing forbids a system call, as seccomp profiles of containers do. The row
// then names the system call.
func TestKernelBypassNamesWhatIsMissing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	if err := Has(t.Context(), "kernel-bypass"); err != nil {
		t.Fatal(err)
	}
	for call, words := range map[uint32]string{
		unix.SYS_MEMFD_CREATE: "make memory: function not implemented",
		unix.SYS_SOCKETPAIR:   "make doorbell: function not implemented",
	} {
		var probes []Probe
		var err error
		done := make(chan bool)
		go func() {
			defer close(done)
			runtime.LockOSThread() // and the thread ends, because it keeps the filter
			if err = forbid(call); err == nil {
				probes, err = Run(t.Context(), Options{Features: []string{"kernel-bypass"}})
			}
		}()
		if <-done; err != nil {
			t.Fatal(err)
		}
		err = probes[0].Unsupported()
		if !errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), "CONFIG_MEMFD_CREATE") {
			t.Errorf("%v, want %s and the remedy", err, words)
		}
	}
}

// forbid makes a system call fail with ENOSYS in this thread and its children (seccomp(2)).
func forbid(call uint32) error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}
