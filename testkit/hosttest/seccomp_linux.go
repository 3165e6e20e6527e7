package hosttest

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WithoutCall runs a function on a thread where a system call fails with ENOSYS, as on an older kernel or
// with a seccomp profile. Processes that this thread starts lack the call, too.
func WithoutCall(t testing.TB, call uint32, fn func()) {
	t.Helper()
	var err error
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends, because it keeps the filter
		if err = forbid(call); err == nil {
			fn()
		}
	}()
	if <-done; err != nil {
		t.Fatal(err)
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
