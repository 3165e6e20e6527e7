package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/capture/wireshark"
	"railbed/internal/verdict"
	"railbed/internal/vmimage"
)

func tryNamespace(name string) func() (string, error) {
	return func() (string, error) {
		flag := map[string]uintptr{
			"net-namespace": syscall.CLONE_NEWNET, "mount-namespace": syscall.CLONE_NEWNS,
			"pid-namespace": syscall.CLONE_NEWPID,
			"ipc-namespace": syscall.CLONE_NEWIPC, "uts-namespace": syscall.CLONE_NEWUTS,
		}[name]
		command := again(partNothing)
		command.SysProcAttr.Cloneflags = flag
		if os.Geteuid() != 0 {
			enterUserNamespace(command)
		}
		if err := command.Run(); err != nil {
			return "", cloneError(err)
		}
		return "", nil
	}
}

// tryUserNamespace takes the path of an ordinary user. It differs from root's on systems that
// restrict user namespaces to privileged programs.
func tryUserNamespace() (string, error) {
	if _, err := tryInChild(context.Background(), asOrdinaryUser, nil); err != nil {
		return "", fmt.Errorf("%w%s", err, userNamespaceSysctls())
	}
	return "", nil
}

// userNamespaceSysctls returns the settings of this kernel that can forbid user namespaces.
func userNamespaceSysctls() string {
	var found []string
	for _, name := range []string{"kernel/unprivileged_userns_clone",
		"kernel/apparmor_restrict_unprivileged_userns", "user/max_user_namespaces"} {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			found = append(found, strings.ReplaceAll(name, "/", ".")+"="+strings.TrimSpace(string(value)))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return " (" + strings.Join(found, ", ") + ")"
}

// scratch returns an empty directory on a tmpfs of the process's own mount namespace.
func scratch() (string, error) {
	if err := unix.Mount("none", "/tmp", "tmpfs", 0, "size=1m"); err != nil {
		return "", fmt.Errorf("mount tmpfs: %w", err)
	}
	return os.MkdirTemp("/tmp", "")
}

func tryProcMount() (string, error) { return tryMount("proc") }

func trySysfsMount() (string, error) { return tryMount("sysfs") }

func tryMount(kind string) (string, error) {
	target, err := scratch()
	if err != nil {
		return "", err
	}
	if err := unix.Mount(kind, target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "", fmt.Errorf("mount %s: %w", kind, err)
	}
	return "", nil
}

func tryRunNetns() (string, error) {
	path := "/run/netns"
	err := unix.Access(path, unix.W_OK)
	if errors.Is(err, fs.ErrNotExist) {
		path = "/run"
		err = unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return "", fmt.Errorf("write to %s: %w", path, err)
	}
	return path, nil
}

func tryNice() (string, error) {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		return "", fmt.Errorf("setpriority -20: %w", err)
	}
	return "", unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
}

func tryRR() (string, error) {
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return "", fmt.Errorf("sched_setattr: %w", err)
	}
	back := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if err := unix.SchedSetAttr(0, &back, 0); err != nil {
		return "", fmt.Errorf("sched_setattr back: %w", err)
	}
	runtime, err := os.ReadFile("/proc/sys/kernel/sched_rt_runtime_us")
	if err != nil {
		return "", nil
	}
	return "sched_rt_runtime_us=" + strings.TrimSpace(string(runtime)), nil
}

func tryOtherUser() (string, error) {
	command := again(partNothing)
	command.SysProcAttr.Credential = &syscall.Credential{Uid: 1, Gid: 1}
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("start as uid 1: %w", errors.Unwrap(cloneError(err)))
	}
	return "", nil
}

// descriptorRule is how much of the limit a testbed needs, in words for the table.
const descriptorRule = "a node with its links, taps and a rank takes up to 16"

func tryDescriptors() (string, error) {
	const perNode, least = 16, 1024
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return "", fmt.Errorf("getrlimit: %w", err)
	}
	if limit.Max < least {
		return "", fmt.Errorf("limit is %d, want %d or more", limit.Max, least)
	}
	return fmt.Sprintf("%d, about %d nodes", limit.Max, limit.Max/perNode), nil
}

func tryMemory() (string, error) {
	const leastKiB = 512 << 10
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "MemAvailable:" {
			continue
		}
		available, err := strconv.Atoi(words[1])
		if err != nil {
			return "", fmt.Errorf("read MemAvailable: %w: %w", err, errUnknown)
		}
		if available < leastKiB {
			return "", fmt.Errorf("%d MiB available", available>>10)
		}
		return fmt.Sprintf("%d MiB available", available>>10), nil
	}
	return "", fmt.Errorf("no MemAvailable in /proc/meminfo: %w", errUnknown)
}

// cgroup is a mounted hierarchy.
type cgroup struct {
	path        string
	controllers string
}

// cgroups returns the mounted hierarchies of a version, from /proc/self/mountinfo (proc(5)). The
// mount point is word 5. File system and super options follow " - ".
func cgroups(filesystem string) ([]cgroup, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []cgroup
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		mount, super, _ := strings.Cut(lines.Text(), " - ")
		words, superWords := strings.Fields(mount), strings.Fields(super)
		if len(words) < 5 || len(superWords) < 3 || superWords[0] != filesystem {
			continue
		}
		options := strings.Split(superWords[2], ",")
		found = append(found, cgroup{path: words[4], controllers: options[len(options)-1]})
	}
	return found, lines.Err()
}

// ownGroup returns the directory of this process's group in a hierarchy mounted at root, from
// /proc/self/cgroup (cgroups(7)). v2 has the empty controller list.
func ownGroup(root, controllers string) string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return root
	}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(words) == 3 && words[1] == controllers {
			return filepath.Join(root, words[2])
		}
	}
	return root
}

// makeGroup makes and removes a group under a directory.
func makeGroup(parent string) error {
	path := filepath.Join(parent, fmt.Sprintf("railbed-doctor-%d", os.Getpid()))
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Remove(path)
}

func tryCgroup2() (string, error) {
	mounted, err := cgroups("cgroup2")
	if err != nil {
		return "", err
	}
	if len(mounted) == 0 {
		return "", errors.New("not mounted")
	}
	group := ownGroup(mounted[0].path, "")
	if err := makeGroup(group); err != nil {
		return "", err
	}
	controllers, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return "", err
	}
	if list := strings.TrimSpace(string(controllers)); list != "" {
		return list, nil
	}
	return "without controllers", nil
}

func tryCgroup1() (string, error) {
	mounted, err := cgroups("cgroup")
	if err != nil {
		return "", err
	}
	if len(mounted) == 0 {
		return "", errors.New("not mounted")
	}
	var writable []string
	for _, hierarchy := range mounted {
		if err = makeGroup(ownGroup(hierarchy.path, hierarchy.controllers)); err == nil {
			writable = append(writable, hierarchy.controllers)
		}
	}
	if len(writable) == 0 {
		return "", err
	}
	return strings.Join(writable, " "), nil
}

func tryDocker() (string, error) {
	host := os.Getenv("DOCKER_HOST")
	path := strings.TrimPrefix(host, "unix://")
	if path == host && host != "" {
		return "", &remedied{fmt.Errorf(
			"DOCKER_HOST is %s, and containers must be on this host: want unix:///PATH",
			host), "set DOCKER_HOST=unix:///PATH, or unset it"}
	}
	if path == "" {
		path = "/var/run/docker.sock"
	}
	connection, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, unix.EACCES):
		return "", &remedied{err, remedyRoot}
	case errors.Is(err, unix.ECONNREFUSED):
		return "", &remedied{fmt.Errorf("%w: no process listens at the socket", err),
			"start the engine (systemctl start docker, or dockerd)"}
	case err != nil:
		return "", err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := connection.Write([]byte("GET /_ping HTTP/1.0\r\n\r\n")); err != nil {
		return "", fmt.Errorf("ask docker: %w", err)
	}
	status, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read docker's answer: %w", err)
	}
	if !strings.Contains(status, " 200 ") {
		return "", fmt.Errorf("docker answered %q", strings.TrimSpace(status))
	}
	if os.Geteuid() != 0 {
		return "", &remedied{errors.New("it answers, but only root may put links into its containers"),
			remedyRoot}
	}
	return path, nil
}

func tryKVM() (string, error) {
	const createVM = 0xae01 // KVM_CREATE_VM of <linux/kvm.h>
	if err := vmimage.OpenKVM(os.Geteuid() == 0); err != nil {
		return "", err
	}
	file, err := os.OpenFile(vmimage.KVMPath, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	machine, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), createVM, 0)
	if errno != 0 {
		return "", fmt.Errorf("KVM_CREATE_VM: %w", errno)
	}
	return "", unix.Close(int(machine))
}

func tryQEMU() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return tryProgram("qemu-system-"+unix.ByteSliceToString(name.Machine[:]), "--version")()
}

// tryVMKernel returns the kernel of virtual machines.
func tryVMKernel() (string, error) {
	kernel, err := vmimage.FindKernel()
	if err != nil {
		var lacking *verdict.UnsupportedError
		if errors.As(err, &lacking) {
			return "", errors.New(lacking.Reason)
		}
		return "", err
	}
	return kernel.Image, nil
}

// tryInstalled looks for a program that has no option to print only its version.
func tryInstalled(name string) func() (string, error) {
	return func() (string, error) { return exec.LookPath(name) }
}

// tryProgram runs a program and returns the first line that it prints.
func tryProgram(name string, args ...string) func() (string, error) {
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout/2)
		defer cancel()
		output, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
		return string(line), nil
	}
}

// tryWireshark only looks for the program, because it cannot run without a display.
func tryWireshark() (string, error) { return exec.LookPath("wireshark") }

// tryWiresharkPlugin asks tshark, which finds plugins by the same rules as Wireshark. The plugin lists one
// more interface for this question, so no testbed has to run.
func tryWiresharkPlugin() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout/2)
	defer cancel()
	listed, err := wireshark.Home{}.Listed(ctx)
	switch {
	case errors.Is(err, wireshark.ErrNoTshark):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: %w", err, errUnknown)
	case !listed:
		return "", errors.New("tshark -D does not list it")
	}
	return "tshark -D lists it", nil
}
