package reexec

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nameBytes is the length of a thread's name that the kernel keeps (TASK_COMM_LEN less one).
const nameBytes = 15

// Name sets the name of all threads of the process, which top, ps and perf show: rb:WHAT, or
// rb:NODE:WHAT for a process of a node. Otherwise it is "exe", after the path by which the process
// was started. If the name is longer than 15 bytes, the node's name is shortened. Threads inherit
// the name of the thread that starts them. An error is ignored: nothing depends on the name.
func Name(node, what string) {
	name := threadName(node, what)
	_ = EachThread(func(id int) error {
		return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", id), []byte(name), 0)
	})
}

// NameThread sets the name rb:WHAT of the calling thread only, to which the goroutine is locked.
func NameThread(what string) {
	name, err := unix.BytePtrFromString(threadName("", what))
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
}

func threadName(node, what string) string {
	const mark = "rb:"
	if room := nameBytes - len(mark) - len(":") - len(what); node != "" && room > 0 {
		node = node[:min(len(node), room)] + ":"
	} else {
		node = ""
	}
	name := mark + node + what
	return name[:min(len(name), nameBytes)]
}
