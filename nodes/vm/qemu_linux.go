package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/internal/vmimage"
	"railbed/nodes"
	"railbed/plan"
)

// program is QEMU for the only architecture of guests.
const program = "qemu-system-x86_64"

// Descriptors with which QEMU is started. The taps follow them.
const (
	serialFd = 4 + iota // the channel to the guest's first process
	monitorFd
	kernelFd
	initrdFd
	firstTapFd
)

// sendBuffer is how many bytes of a guest may wait in a NIC's shaper and queue before the guest has
// to wait: several of the largest frames.
const sendBuffer = 256 << 10

// qemu is a running QEMU.
type qemu struct {
	process *os.Process
	serial  *os.File
	monitor *os.File
	// console is the last output of the guest's kernel, complaints the last output of QEMU.
	console, complaints *tail
	ended               chan struct{} // closed when QEMU has ended
}

// arguments returns QEMU's command line. The machine has only the devices that it names, and none
// that reaches outside. Without KVM all processors of a guest take turns on one thread. A thread
// for each processor was worse (QEMU 7.2). On a busy host one of some thirty guests with two
// processors hung at boot: one processor waited for the other for good.
func arguments(n plan.Node, processor string) []string {
	accelerator, model := "tcg,thread=single,tb-size=64", vmimage.EmulatedProcessor
	if processor == KVM {
		accelerator, model = "kvm", "host"
	}
	guest := n.Guest()
	args := []string{
		program, "-name", n.Name, "-nodefaults", "-no-user-config", "-display", "none", "-vga", "none",
		"-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", "pc", "-accel", accelerator, "-cpu", model,
		"-m", strconv.FormatUint(uint64(guest.Memory)>>20, 10), "-smp", strconv.Itoa(guest.Processors),
		"-kernel", descriptorPath(kernelFd), "-initrd", descriptorPath(initrdFd),
		// The guest ends, and QEMU with it, when its kernel panics. Mitigations protect programs of
		// a guest from each other. They cost TCG time, as do the self-tests of the kernel's
		// ciphers.
		"-append", "console=ttyS0 quiet cryptomgr.notests panic=-1 mitigations=off rdinit=" + initName,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=channel,fd=%d", serialFd),
		"-device", "virtio-serial-pci,max_ports=2", "-device", "virtserialport,chardev=channel",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFd), "-mon", "chardev=monitor,mode=control",
		"-device", "virtio-rng-pci",
		"-fsdev", "local,id=root,path=" + shareDir + ",security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=" + rootTag,
	}
	for i, nic := range n.GuestNICs() {
		args = append(args,
			"-netdev", fmt.Sprintf("tap,id=%s,fd=%d,sndbuf=%d", netdev(i), firstTapFd+i, sendBuffer),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=", netdev(i), net48(nic.MAC)))
	}
	return args
}

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// netdev is QEMU's name of a NIC.
func netdev(nic int) string { return "net" + strconv.Itoa(nic) }

// startQEMU starts QEMU for a node. The caller keeps the files.
func startQEMU(config nodes.Config, processor string, kernel, initrd *os.File, taps []*os.File) (q *qemu,
	err error) {
	var ours, theirs [3]*os.File // launch, serial, monitor
	defer func() {
		for i := range theirs {
			closeFile(theirs[i])
			if i == 0 || err != nil {
				closeFile(ours[i])
			}
		}
	}()
	for i := range ours {
		if ours[i], theirs[i], err = reexec.SocketPair(); err != nil {
			return nil, err
		}
	}
	q = &qemu{serial: ours[1], monitor: ours[2], console: &tail{}, complaints: &tail{},
		ended: make(chan struct{})}
	files := append([]*os.File{theirs[0], theirs[1], theirs[2], kernel, initrd}, taps...)
	if err := q.clone(config, files); err != nil {
		return nil, err
	}
	l := launch{Args: arguments(config.Node, processor), Nice: config.Nice,
		Private: filepath.SplitList(os.Getenv(PrivateEnv))}
	l.User, l.Groups = identity(processor)
	closeFile(theirs[0])
	theirs[0] = nil
	refusal := []byte{}
	if err = json.NewEncoder(ours[0]).Encode(l); err == nil {
		refusal, err = io.ReadAll(ours[0])
	}
	if err == nil && len(refusal) > 0 {
		err = errors.New(string(refusal))
	}
	if err != nil {
		q.kill()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return q, nil
}

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}

// clone starts the process that becomes QEMU, with files from descriptor 3 on.
func (q *qemu) clone(config nodes.Config, files []*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	consoleIn, consoleOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer consoleOut.Close()
	complaintsIn, complaintsOut, err := os.Pipe()
	if err != nil {
		consoleIn.Close()
		return err
	}
	defer complaintsOut.Close()
	err = reexec.OnLastThread(func() error {
		if err := config.Cgroup.Enter(); err != nil {
			return err
		}
		if err := unix.Setns(config.Namespace.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		cgroup, useCgroup := config.Cgroup.Descriptor()
		q.process, err = os.StartProcess(reexec.Self, reexec.Argv(Part, config.Node.Name), &os.ProcAttr{
			Dir: "/", Env: []string{"GOMAXPROCS=1", "PATH=/usr/local/bin:/usr/bin:/bin"},
			Files: append([]*os.File{null, consoleOut, complaintsOut}, files...),
			Sys: &syscall.SysProcAttr{
				Setsid:      true,
				Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
				UseCgroupFD: useCgroup, CgroupFD: cgroup,
			},
		})
		return err
	})
	if err != nil {
		return errors.Join(err, consoleIn.Close(), complaintsIn.Close())
	}
	go q.watch(consoleIn, complaintsIn)
	return nil
}

// watch records QEMU's output, until QEMU has ended.
func (q *qemu) watch(console, complaints *os.File) {
	var reading sync.WaitGroup
	reading.Go(func() { q.console.keep(console) })
	reading.Go(func() { q.complaints.keep(complaints) })
	reading.Wait() // only QEMU has the other ends
	_, _ = q.process.Wait()
	close(q.ended)
}

// kill kills QEMU, and returns when it has ended.
func (q *qemu) kill() {
	_ = q.process.Kill() // it may have ended
	<-q.ended
}

// words returns the last output of QEMU and of the guest's kernel, for errors.
func (q *qemu) words() string {
	var said []string
	for _, of := range []struct {
		who  string
		text string
	}{{program, q.complaints.String()}, {"the guest's kernel", q.console.String()}} {
		if of.text != "" {
			said = append(said, of.who+" said: "+of.text)
		}
	}
	if said == nil {
		return program + " said nothing"
	}
	return strings.Join(said, "; ")
}

// identity returns the user that QEMU becomes, and the groups that give it access to KVM.
func identity(processor string) (user int, groups []int) {
	user = otherUser()
	if info, err := os.Stat(vmimage.KVMPath); user != 0 && err == nil && processor == KVM {
		groups = append(groups, int(info.Sys().(*syscall.Stat_t).Gid))
	}
	return user, groups
}

// otherUser returns the user that QEMU becomes. It returns 0 if QEMU keeps its user: where Railbed
// is an ordinary user, or root of a user namespace without other users.
func otherUser() int {
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 {
		return 0
	}
	gids, err := os.ReadFile("/proc/self/gid_map")
	if err != nil {
		return 0
	}
	return unassigned(string(uids), string(gids))
}

// unassigned returns a user of the namespace with these maps (user_namespaces(7)) who owns no file
// and no process, or 0 if there is none. In a container with 65,536 users it is one of the last
// unassigned ids. The ids after it have a use: 65534 is the user without rights, and 65535 is the
// error value of 16-bit programs.
func unassigned(uids, gids string) int {
	const last = 65533
	for _, id := range []uint64{qemuUser, last} {
		if mapped(id, uids) && mapped(id, gids) {
			return int(id)
		}
	}
	return 0
}

func mapped(id uint64, ids string) bool {
	for line := range strings.Lines(ids) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside <= id &&
			id-inside < count {
			return true
		}
	}
	return false
}

// tail is the end of a text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const keptTail = 8 << 10

// keep reads until the end.
func (t *tail) keep(from *os.File) {
	defer from.Close()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		t.mu.Lock()
		t.text = append(t.text, buffer[:n]...)
		t.text = t.text[max(0, len(t.text)-keptTail):]
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// String returns the text on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(string(t.text), func(r rune) bool {
		return r == '\n' || r == '\r'
	}), " | ")
}

// sealed returns a file in memory whose content cannot be changed.
func sealed(name string, content []byte) (*os.File, error) {
	file, err := kernel.Memory(name, unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if _, err = file.Write(content); err == nil {
		err = seal(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep %s in memory: %w", name, err), file.Close())
	}
	return file, nil
}

// sealPatience is how long seal tries.
const sealPatience = 5 * time.Second

// seal keeps the content of a file in memory. The kernel refuses to while something else holds a page of the
// file. That may be the kernel itself, which moves pages, and then it does not last (mm/memfd.c,
// memfd_wait_for_pins).
func seal(file *os.File) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
		if !errors.Is(err, unix.EBUSY) || time.Since(began) > sealPatience {
			return err
		}
	}
}

// awaited returns the context's cause if the context has ended, else err.
func awaited(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
