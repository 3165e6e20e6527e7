package vmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/frame"
	guest "railbed/internal/vmimage"
)

// stageEnv is set if a test binary runs in a guest, and contains the stage. The kernel passes it to
// the first process from its command line.
const stageEnv = "RAILBED_VMTEST_STAGE"

const (
	stageInit   = "init"   // the guest's first process
	stageInside = "inside" // the program of Run
)

// channelPath matches only the serial port that leads to the test on the host. Its first number is
// the device's on the virtio bus.
const channelPath = "/dev/vport*p*"

// bootPatience is how long a device may take to appear once its driver is loaded; on a busy host it
// has taken a second.
const bootPatience = 20 * time.Second

// init takes over the first process of a guest. It must be an init function, because no other code
// of a test binary runs before its tests.
func init() {
	if os.Getenv(stageEnv) == stageInit && os.Getpid() == 1 {
		guestMain()
	}
}

// guestMain is the guest's first process. It never returns: it ends the guest with a restart, upon
// which QEMU exits.
func guestMain() {
	channel, err := boot()
	if err != nil {
		fmt.Println("vmtest:", err) // on the console
		if channel != nil {
			_ = channel.Write(frame.Failure, []byte(err.Error())) // the host sees that the guest ends
		}
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		panic(err) // if the first process ends, the kernel panics, which also ends the guest
	}
}

// boot sets the guest up and runs the program. The channel is nil if it cannot be opened.
func boot() (*frame.Writer, error) {
	text, err := os.ReadFile(configPath)
	if err != nil {
		return nil, err
	}
	var config guestConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	for _, module := range config.Modules {
		if err := load(module); err != nil {
			return nil, err
		}
	}
	if err := enterRoot(); err != nil {
		return nil, err
	}
	if err := mountKernel(); err != nil {
		return nil, err
	}
	port, err := await("open the channel", openChannel)
	if err != nil {
		return nil, err
	}
	channel := frame.NewWriter(port)
	for i, share := range config.Shares {
		if err := mountShare(shareTag(i), share); err != nil {
			return channel, err
		}
	}
	if err := loopbackUp(); err != nil {
		return channel, err
	}
	code, err := runProgram(config, channel)
	if err != nil {
		return channel, err
	}
	return channel, channel.WriteJSON(frame.Exit, code)
}

func openChannel() (*os.File, error) {
	ports, err := filepath.Glob(channelPath)
	if err != nil || len(ports) != 1 {
		return nil, errors.Join(err, unix.ENOENT)
	}
	return os.OpenFile(ports[0], os.O_WRONLY, 0)
}

func load(module string) error {
	file, err := os.Open(module)
	if err != nil {
		return err
	}
	defer file.Close()
	return guest.Load(file)
}

// enterRoot mounts the guest's root directory on itself and makes it the root of all processes, as
// switch_root(8) does.
func enterRoot() error {
	if err := unix.Mount(rootDir, rootDir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", rootDir, err)
	}
	return guest.Enter(rootDir)
}

// mountKernel mounts the kernel's file systems, and those that everybody may write to.
func mountKernel() error {
	for _, m := range []struct{ kind, target, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// mountShare mounts a directory of the host. The guest assumes that it does not change while the
// guest runs.
func mountShare(tag, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	_, err := await("mount "+target, func() (*os.File, error) {
		return nil, unix.Mount(tag, target, "9p", unix.MS_RDONLY,
			"trans=virtio,version=9p2000.L,cache=loose,msize=262144")
	})
	return err
}

// await retries until a device exists.
func await(what string, try func() (*os.File, error)) (*os.File, error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		file, err := try()
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENXIO) || time.Since(start) > bootPatience {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// runProgram runs the program, sends its output, and reaps orphaned descendants, until the program
// ends.
func runProgram(config guestConfig, channel *frame.Writer) (code int, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	program, err := findProgram(config.Argv[0])
	if err != nil {
		return 0, err
	}
	process, err := os.StartProcess(program, config.Argv, &os.ProcAttr{
		Dir: config.Dir,
		Env: append([]string{"PATH=" + searchPath, "HOME=/root", "TMPDIR=/tmp",
			stageEnv + "=" + stageInside}, config.Env...),
		Files: []*os.File{null, write, write},
	})
	if err != nil {
		return 0, err
	}
	write.Close()
	sent := make(chan error, 1)
	go func() { sent <- send(read, channel) }()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid != process.Pid:
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		}
		code = status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		break
	}
	select {
	case err = <-sent:
	case <-time.After(time.Second): // a process that it left running still has its output open
	}
	return code, err
}

// searchPath is root's search path after a login.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func findProgram(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not in %s", name, searchPath)
}

func send(from io.Reader, channel *frame.Writer) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := channel.Write(frame.Stdout, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
