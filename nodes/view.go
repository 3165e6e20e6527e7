package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"railbed/plan"
)

// noResolver is the /etc/resolv.conf of a node without name servers.
const noResolver = "# no name server is reachable from an emulated node\n"

// Resolver returns the /etc/resolv.conf of a node.
func Resolver(n plan.Node) string {
	if n.Management == nil || len(n.Management.DNS) == 0 {
		return noResolver
	}
	var servers strings.Builder
	for _, address := range n.Management.DNS {
		servers.WriteString("nameserver " + address + "\n")
	}
	return servers.String()
}

// BootID returns a node's own boot id, made from its machine id.
func BootID(machine string) string {
	return fmt.Sprintf("%s-%s-%s-%s-%s\n", machine[:8], machine[8:12], machine[12:16], machine[16:20],
		machine[20:32])
}

// HostsFile returns the hosts file of every node of a testbed.
func HostsFile(entries []plan.HostEntry) string {
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, entry := range entries {
		fmt.Fprintf(&hosts, "%s %s\n", entry.Addr, entry.Name)
	}
	return hosts.String()
}

// ProgramDir is the directory, in nodes that have a /run of their own, that holds this executable as railbed.
const ProgramDir = "/run/.railbed"

// LinkProgram makes ProgramDir in the node whose first process is the calling process. The link
// resolves to the executable of that process, wherever its file is and even if the file has been
// replaced. To follow the link, a program needs the rights of the first process (ptrace(2),
// PTRACE_MODE_READ).
func LinkProgram() error {
	if err := os.Mkdir(ProgramDir, 0o755); err != nil {
		return err
	}
	return os.Symlink("/proc/1/exe", filepath.Join(ProgramDir, "railbed"))
}

// Environment returns the environment of a command in the node, sorted. The file's entries override
// the node's own, and the command's entries override both. PATH starts with the directory of this
// executable in the node, unless programs is empty or the command has a PATH of its own.
func Environment(config Config, programs string, extra []string) []string {
	nics := make([]string, len(config.Node.NICs))
	for i, nic := range config.Node.NICs {
		nics[i] = nic.Name
	}
	names := strings.Join(nics, ",")
	environment := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
		"RAILBED_TESTBED=" + config.Testbed, "RAILBED_NODE=" + config.Node.Name,
	}
	if names != "" {
		// The NICs that the stacks may use. Without these variables UCX and OpenMPI would also try
		// the node's loopback address.
		environment = append(environment, "UCX_NET_DEVICES="+names,
			"OMPI_MCA_btl_tcp_if_include="+names, "OMPI_MCA_oob_tcp_if_include="+names,
			"GLOO_SOCKET_IFNAME="+nics[0], "NCCL_SOCKET_IFNAME="+names)
	}
	for name, value := range config.Node.Env {
		environment = set(environment, name, value)
	}
	if programs != "" {
		environment = set(environment, "PATH", programs+":"+get(environment, "PATH"))
	}
	for _, entry := range extra {
		if name, value, ok := strings.Cut(entry, "="); ok {
			environment = set(environment, name, value)
		}
	}
	slices.Sort(environment)
	return environment
}

func get(environment []string, name string) string {
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

func set(environment []string, name, value string) []string {
	for i, entry := range environment {
		if strings.HasPrefix(entry, name+"=") {
			environment[i] = name + "=" + value
			return environment
		}
	}
	return append(environment, name+"="+value)
}

// Directory returns the working directory of a command in the mount namespace of the calling thread. If that
// namespace lacks dir or its entry, the error wraps ErrNoFolder. Without an entry, a missing directory is the
// first of the fallbacks that exists, or "/".
func Directory(dir, entry string, fallbacks ...string) (string, error) {
	if entry != "" {
		for _, path := range []string{dir, filepath.Join(dir, entry)} {
			if _, err := os.Stat(path); err != nil {
				return "", fmt.Errorf("%s: %w", path, ErrNoFolder)
			}
		}
		if !isDirectory(dir) {
			return "", fmt.Errorf("%s: %w: it is a file", dir, ErrNoFolder)
		}
		return dir, nil
	}
	for _, candidate := range append([]string{dir}, fallbacks...) {
		if candidate != "" && isDirectory(candidate) {
			return candidate, nil
		}
	}
	return "/", nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// LookPath finds a program in the mount namespace of the calling thread, along the PATH that the
// program will have. If the program is missing, the error wraps ErrNotFound.
func LookPath(name, dir string, environment []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join("/", dir, name)
		}
		return name, executable(name)
	}
	path := get(environment, "PATH")
	for _, directory := range filepath.SplitList(path) {
		candidate := filepath.Join("/", directory, name)
		if executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%w: no %q in PATH %s", ErrNotFound, name, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no file %s (a node has its own /tmp and /run)", ErrNotFound, path)
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%w: %s is not an executable file", ErrNotFound, path)
	}
	return nil
}
