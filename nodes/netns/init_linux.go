package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"railbed/nodes"
)

// Part is the name under which the executable is started as a node's init.
const Part = "init"

const (
	initReady = "ready\n"
	// runDir, in the node's own /run, holds the files of the node's identity.
	runDir = "/run/railbed"
)

// initConfig is what the init is told over its channel.
type initConfig struct {
	Hostname  string
	MachineID string
	Hosts     string
	Resolver  string
}

func initConfigOf(config nodes.Config) initConfig {
	return initConfig{Hostname: config.Node.Name, MachineID: config.Node.MachineID, Hosts: nodes.HostsFile(config.Hosts), Resolver: nodes.Resolver(config.Node)}
}

// Main is the node's init: PID 1 of the node's PID namespace. It builds the
// node's view of the system, answers on descriptor 3, and reaps orphans until
// it is killed with everything else in the node.
func Main([]string) int {
	channel := os.NewFile(3, "init")
	var config initConfig
	if err := json.NewDecoder(channel).Decode(&config); err != nil {
		fmt.Fprintf(channel, "read configuration: %v\n", err)
		return 1
	}
	if err := buildView(config); err != nil {
		fmt.Fprintf(channel, "%v\n", err)
		return 1
	}
	if _, err := io.WriteString(channel, initReady); err != nil {
		return 1
	}
	channel.Close()
	reap()
	return 0
}

// buildView mounts what makes the node a machine of its own.
func buildView(config initConfig) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("leave the host's mount tree: %w", err)
	}
	for _, m := range []struct {
		kind, target, data string
		flags              uintptr
	}{
		{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY},
		{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/run", "mode=755", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	if err := unix.Sethostname([]byte(config.Hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	if err := os.Mkdir(runDir, 0o755); err != nil {
		return err
	}
	return overlayFiles(config)
}

// overlayFiles puts the node's identity over the host's files. UCX and NCCL
// take two processes with one boot id for neighbours on one machine, so the
// boot id is the node's own as well.
func overlayFiles(config initConfig) error {
	if err := haveHostsFile(); err != nil {
		return err
	}
	for target, content := range map[string]string{
		"/etc/hosts":                      config.Hosts,
		"/etc/hostname":                   config.Hostname + "\n",
		"/etc/machine-id":                 config.MachineID + "\n",
		"/var/lib/dbus/machine-id":        config.MachineID + "\n",
		"/etc/resolv.conf":                config.Resolver,
		"/proc/sys/kernel/random/boot_id": nodes.BootID(config.MachineID),
	} {
		// A symlink (resolv.conf often is one, into /run) is followed, and
		// what the host does not have is not given to the node either.
		resolved, err := filepath.EvalSymlinks(target)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("resolve %s: %w", target, err)
		}
		source := filepath.Join(runDir, filepath.Base(target))
		if err := os.WriteFile(source, []byte(content), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(source, resolved, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", source, resolved, err)
		}
	}
	return nil
}

// haveHostsFile sees to it that there is an /etc/hosts to put the node's over.
// Minimal systems have none, and a file cannot be made in the host's /etc; so
// there the node gets an /etc of its own over the host's.
func haveHostsFile() error {
	const hosts = "/etc/hosts"
	if _, err := os.Stat(hosts); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	upper, work := filepath.Join(runDir, "etc"), filepath.Join(runDir, "etc.work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// userxattr is what makes it allowed in a user namespace (Linux 5.11).
	options := "lowerdir=/etc,upperdir=" + upper + ",workdir=" + work + ",userxattr"
	if err := unix.Mount("overlay", "/etc", "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay on /etc, as this host has no %s: %w", hosts, err)
	}
	return os.WriteFile(hosts, nil, 0o644)
}

// reap collects the orphans of the PID namespace. With no child left wait4
// says ECHILD at once, so the init sleeps until the next SIGCHLD.
func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for {
		for {
			if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		<-children
	}
}
