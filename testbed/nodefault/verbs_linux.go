package nodefault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The numbers are from Linux's include/uapi/rdma: rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h and
// ib_user_verbs.h.
const (
	verbsIoctl = 0xc0181b01 // RDMA_VERBS_IOCTL
	driverRXE  = 14         // RDMA_DRIVER_RXE

	objectDevice = 0 // UVERBS_OBJECT_DEVICE
	objectQP     = 4 // UVERBS_OBJECT_QP

	invokeWrite = 0 // UVERBS_METHOD_INVOKE_WRITE
	infoHandles = 1 // UVERBS_METHOD_INFO_HANDLES

	queryQP  = 25 // IB_USER_VERBS_CMD_QUERY_QP
	modifyQP = 26 // IB_USER_VERBS_CMD_MODIFY_QP

	maskState  = 1 // IB_QP_STATE of enum ib_qp_attr_mask (include/rdma/ib_verbs.h)
	stateError = 6 // IB_QPS_ERR of enum ib_qp_state (include/rdma/ib_verbs.h)
)

// verbsAttribute is struct ib_uverbs_attr.
type verbsAttribute struct {
	id, length, flags, _ uint16
	data                 uint64 // the value, or the address of the value
}

// verbsCall is struct ib_uverbs_ioctl_hdr. Each method that is called here has three attributes.
type verbsCall struct {
	length, object, method, count uint16
	_                             uint64
	driver, _                     uint32
	attributes                    [3]verbsAttribute
}

// verbsFile is a descriptor of a file of /dev/infiniband that a program has opened.
type verbsFile int

// call calls a method of the device by attributes with the IDs 0, 1 and 2. The kernel's write to such a file
// fails with other credentials than those that opened the file (ib_safe_file_access in
// drivers/infiniband/core/uverbs_main.c). The ioctl has no such check (ib_uverbs_ioctl in uverbs_ioctl.c).
func (f verbsFile) call(method uint16, attributes [3]verbsAttribute) error {
	for i := range attributes {
		attributes[i].id = uint16(i)
	}
	call := verbsCall{object: objectDevice, method: method, count: uint16(len(attributes)),
		driver: driverRXE, attributes: attributes}
	call.length = uint16(unsafe.Sizeof(call))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), verbsIoctl,
		uintptr(unsafe.Pointer(&call))); errno != 0 {
		return errno
	}
	return nil
}

// command runs a command of the ABI that uses write, with the command's request and response.
func (f verbsFile) command(command uint64, request, response []byte) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	return f.call(invokeWrite, [3]verbsAttribute{
		verbsBuffer(&pins, request), verbsBuffer(&pins, response), {length: 8, data: command}})
}

// verbsBuffer makes an attribute of a buffer, which the kernel reads or fills until pins are released.
func verbsBuffer(pins *runtime.Pinner, b []byte) verbsAttribute {
	pins.Pin(&b[0])
	return verbsAttribute{length: uint16(len(b)), data: uint64(uintptr(unsafe.Pointer(&b[0])))}
}

// queuePairs returns the handles of the file's queue pairs. It fails with EINVAL if the device is not of
// rdma_rxe.
func (f verbsFile) queuePairs() (handles []uint32, err error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	total, list := make([]byte, 4), make([]byte, math.MaxUint16/4*4)
	if err := f.call(infoHandles, [3]verbsAttribute{
		{length: 8, data: objectQP}, verbsBuffer(&pins, total), verbsBuffer(&pins, list)}); err != nil {
		return nil, err
	}
	count := int(binary.NativeEndian.Uint32(total)) // the kernel stops where the list is full
	if 4*count == len(list) {
		return nil, fmt.Errorf("the file has %d queue pairs or more, want fewer", count)
	}
	for i := range count {
		handles = append(handles, binary.NativeEndian.Uint32(list[4*i:]))
	}
	return handles, nil
}

// lose moves a queue pair to the state ERR, and reports whether it was in another state.
func (f verbsFile) lose(handle uint32) (lost bool, err error) {
	query, state := make([]byte, 16), make([]byte, 128) // struct ib_uverbs_query_qp, ..._resp
	binary.NativeEndian.PutUint32(query[8:], handle)
	binary.NativeEndian.PutUint32(query[12:], maskState)
	if err := f.command(queryQP, query, state); err != nil || state[108] == stateError {
		return false, err
	}
	modify := make([]byte, 112) // struct ib_uverbs_modify_qp
	binary.NativeEndian.PutUint32(modify[64:], handle)
	binary.NativeEndian.PutUint32(modify[68:], maskState)
	modify[96] = stateError
	err = f.command(modifyQP, modify, state)
	return err == nil, err
}

// loseVerbs breaks the queue pairs that programs of the node have on devices of rdma_rxe, and returns their
// number. It needs Linux 5.6, for pidfd_getfd. It opens no file of /dev/infiniband: a handle is valid only in
// the file in which the program has made the queue pair. Queue pairs of the kernel have no file.
func loseVerbs() (lost int, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, "/dev/infiniband/uverbs") {
			continue // the program may have closed it
		}
		n, err := loseVerbsOf(link)
		lost += n
		if err != nil {
			return lost, fmt.Errorf("break the queue pairs of %s at %s: %w", link, target, err)
		}
	}
	return lost, nil
}

// loseVerbsOf breaks the queue pairs of an open file, by its link in /proc. Processes may share the file.
func loseVerbsOf(link string) (lost int, err error) {
	var pid, fd int
	if _, err := fmt.Sscanf(link, "/proc/%d/fd/%d", &pid, &fd); err != nil {
		return 0, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(process)
	copied, err := unix.PidfdGetfd(process, fd, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EBADF) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("pidfd_getfd: %w", err)
	}
	defer unix.Close(copied)
	file := verbsFile(copied)
	handles, err := file.queuePairs()
	if errors.Is(err, unix.EINVAL) {
		return 0, nil // of another driver
	}
	for _, handle := range handles {
		// EINVAL and EBUSY: the program has destroyed the queue pair since, or is about to.
		was, one := file.lose(handle)
		if one != nil && !errors.Is(one, unix.EINVAL) && !errors.Is(one, unix.EBUSY) {
			err = errors.Join(err, one)
		}
		if was {
			lost++
		}
	}
	return lost, err
}
