package spec

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// Docker is the runtime of nodes that are containers.
const Docker = "docker"

// Values of Container.Pull, Container.BuildNetwork and Container.Restart.
const (
	PullMissing = "missing"
	PullNever   = "never"
	PullAlways  = "always"

	BuildWithout = "none"
	BuildDefault = "default"
	BuildHost    = "host"

	RestartNo        = "no"
	RestartOnFailure = "on-failure"
	RestartAlways    = "always"
)

// Container is the settings of a node with runtime: docker. Exactly one of image, build and rootfs
// gives the container's file system.
type Container struct {
	// Image is the name of a container's image. Its entry point and command start as soon as the node
	// has its network. If its registry does not have the image, the run is FAIL. If the registry does not
	// answer, the run is UNSUPPORTED. Default none.
	Image string `yaml:"image,omitempty" json:"image,omitempty"`
	// Build is a folder with a Dockerfile, relative to this file. The image is built from it and kept
	// for as long as the testbed is up. Files that its .dockerignore names are left out. Default none.
	Build string `yaml:"build,omitempty" json:"build,omitempty"`
	// BuildNetwork is the network of RUN lines in a Dockerfile: none (default), the engine's
	// default network, or the host's.
	BuildNetwork string `yaml:"build-network,omitempty" json:"build_network,omitempty" jsonschema:"enum=none,enum=default,enum=host"`
	// RootFS is a tar archive of a container's root file system, relative to this file. Default none.
	RootFS string `yaml:"rootfs,omitempty" json:"rootfs,omitempty"`
	// Pull specifies when a container's image is fetched from its registry: missing (default), if the
	// engine does not have it; always; or never. With never, an image that the engine lacks is FAIL.
	Pull string `yaml:"pull,omitempty" json:"pull,omitempty" jsonschema:"enum=missing,enum=never,enum=always"`
	// Entrypoint replaces the entry point and the command of a container's image. Default: the image's.
	Entrypoint []string `yaml:"entrypoint,omitempty" json:"entrypoint,omitempty" scalar:"any"`
	// Command replaces the arguments that the image gives its entry point. Without an entry point it is
	// the program and its arguments. Default: the image's.
	Command []string `yaml:"command,omitempty" json:"command,omitempty" scalar:"any"`
	// Idle starts a container without its entry point. It runs only the programs that steps and
	// commands start. Default false.
	Idle bool `yaml:"idle,omitempty" json:"idle,omitempty"`
	// Binds mounts paths of the host into a container, as "HOST:CONTAINER" or "HOST:CONTAINER:ro". HOST
	// is relative to this file. Default none.
	Binds []string `yaml:"binds,omitempty" json:"binds,omitempty"`
	// Capabilities adds capabilities. Every container has CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL,
	// NET_BIND_SERVICE, NET_RAW, SETGID and SETUID. Default: no others.
	Capabilities []string `yaml:"capabilities,omitempty" json:"capabilities,omitempty"`
	// Devices gives a container devices of the host, as "/dev/fuse" or "/dev/fuse:/dev/other:rw".
	// Default none.
	Devices []string `yaml:"devices,omitempty" json:"devices,omitempty"`
	// Ulimits limits the resources of a container's processes, as "nofile: 1024" or, with a soft and a
	// hard limit, "nofile: 1024:4096". Default: the engine's.
	Ulimits map[string]string `yaml:"ulimits,omitempty" json:"ulimits,omitempty" scalar:"any"`
	// Health is the health check of a container. The testbed is up when the check has passed.
	// Default: the check of the image.
	Health *Health `yaml:"health,omitempty" json:"health,omitempty"`
	// Restart specifies when a container is started again, with its links, after it died or its entry
	// point ended: no (default), on-failure or always.
	Restart string `yaml:"restart,omitempty" json:"restart,omitempty" jsonschema:"enum=no,enum=on-failure,enum=always"`
}

// Health is the health check of a container.
type Health struct {
	// Command is a command that exits with 0 when the container is ready.
	Command []string `yaml:"command" json:"command" scalar:"any"`
	// Interval is the time between two checks. Default 500ms.
	Interval units.Duration `yaml:"interval,omitempty" json:"interval,omitempty"`
	// Timeout is the longest time that a container may take to become ready. Default 30s.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// IsZero reports whether no setting is set.
func (c Container) IsZero() bool { return len(c.Keys()) == 0 }

// Keys returns the keys that are set, as they are written in files.
func (c Container) Keys() []string {
	var keys []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"image", c.Image != ""}, {"build", c.Build != ""}, {"build-network", c.BuildNetwork != ""},
		{"rootfs", c.RootFS != ""}, {"pull", c.Pull != ""},
		{"entrypoint", c.Entrypoint != nil}, {"command", c.Command != nil}, {"idle", c.Idle},
		{"binds", c.Binds != nil},
		{"capabilities", c.Capabilities != nil}, {"devices", c.Devices != nil}, {"ulimits", c.Ulimits != nil},
		{"health", c.Health != nil}, {"restart", c.Restart != ""},
	} {
		if k.set {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// Sources returns the keys that are set among image, build and rootfs.
func (c Container) Sources() []string {
	return slices.DeleteFunc(c.Keys(), func(key string) bool {
		return key != "image" && key != "build" && key != "rootfs"
	})
}

// Over returns base with the settings of c in place of its own. The keys of the container's file
// system replace each other as a whole, and so do the keys of its processes.
func (c Container) Over(base Container) Container {
	merged := base
	if len(c.Sources()) > 0 {
		merged.Image, merged.Build, merged.RootFS = c.Image, c.Build, c.RootFS
	}
	if c.Entrypoint != nil || c.Command != nil || c.Idle {
		merged.Entrypoint, merged.Command, merged.Idle = c.Entrypoint, c.Command, c.Idle
	}
	merged.Pull = cmp.Or(c.Pull, base.Pull)
	merged.BuildNetwork = cmp.Or(c.BuildNetwork, base.BuildNetwork)
	merged.Restart = cmp.Or(c.Restart, base.Restart)
	merged.Health = cmp.Or(c.Health, base.Health)
	merged.Ulimits = mergedMap(base.Ulimits, c.Ulimits)
	merged.Binds = overList(c.Binds, base.Binds, c.Binds != nil)
	merged.Capabilities = overList(c.Capabilities, base.Capabilities, c.Capabilities != nil)
	merged.Devices = overList(c.Devices, base.Devices, c.Devices != nil)
	return merged
}

// Capabilities are the names of capabilities(7).
var Capabilities = strings.Fields(`AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN
	DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE
	MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_BOOT
	SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG SYSLOG WAKE_ALARM`)

// Ulimits are the names of limits that getrlimit(2) lists.
var Ulimits = strings.Fields(
	"core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack")

var (
	imageForm  = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._:/@-]{0,254}$`)
	ulimitForm = regexp.MustCompile(`^[0-9]{1,18}(:[0-9]{1,18})?$`)
	deviceForm = regexp.MustCompile(`^/dev/[^:]+(:/[^:]+(:[rwm]{1,3})?)?$`)
)

// container checks the container settings of a node.
func (c *checker) container(at string, n Container) {
	if sources := n.Sources(); len(sources) > 1 {
		c.Report(at+"."+sources[1], fmt.Sprintf("%s and %s are both set", sources[1], sources[0]),
			"want only one of image, build and rootfs")
	}
	if n.Image != "" && !imageForm.MatchString(n.Image) {
		c.Report(at+".image", fmt.Sprintf("invalid image %q", printable.Clip(n.Image)),
			"want a name such as debian:12")
	}
	if n.Idle && (n.Entrypoint != nil || n.Command != nil) {
		c.Report(at+".idle", "idle with entrypoint or command", "remove idle, or both others")
	}
	for _, list := range []struct {
		key  string
		args []string
	}{{"entrypoint", n.Entrypoint}, {"command", n.Command}} {
		if path := at + "." + list.key; c.given(path, len(list.args)) &&
			(len(list.args) == 0 || list.args[0] == "") {
			c.Report(path, list.key+" names no program", `want a list such as [sleep, "10"], or idle: true`)
		}
	}
	for i, bind := range n.Binds {
		parts := strings.Split(bind, ":")
		bad := len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !path.IsAbs(parts[1]) ||
			path.Clean(parts[1]) == "/"
		if bad || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
			c.Report(fmt.Sprintf("%s.binds[%d]", at, i), fmt.Sprintf("invalid bind %q", printable.Clip(bind)),
				`want "HOST:/CONTAINER" or "HOST:/CONTAINER:ro"`)
		}
	}
	for i, capability := range n.Capabilities {
		if !slices.Contains(Capabilities, capability) {
			c.Report(fmt.Sprintf("%s.capabilities[%d]", at, i),
				fmt.Sprintf("unknown capability %q", printable.Clip(capability)),
				"want a name of capabilities(7) without CAP_, such as NET_ADMIN")
		}
	}
	for i, device := range n.Devices {
		if !deviceForm.MatchString(device) {
			c.Report(fmt.Sprintf("%s.devices[%d]", at, i),
				fmt.Sprintf("invalid device %q", printable.Clip(device)),
				`want "/dev/NAME" or "/dev/NAME:/dev/OTHER:rw"`)
		}
	}
	c.limits(at, n)
}

func (c *checker) limits(at string, n Container) {
	for _, name := range sortedKeys(n.Ulimits) {
		value := n.Ulimits[name]
		where := strictyaml.EntryPath(at+".ulimits", name)
		if !slices.Contains(Ulimits, name) {
			_, hint := nearest.Suggest(name, Ulimits)
			c.ReportKey(where, fmt.Sprintf("unknown ulimit %q", printable.Clip(name)), hint)
		} else if !ulimitForm.MatchString(value) {
			c.Report(where, fmt.Sprintf("ulimit %s is %q", name, printable.Clip(value)),
				"want a number such as 1024, or soft:hard")
		} else if soft, hard, both := strings.Cut(value, ":"); both && above(soft, hard) {
			c.Report(where, fmt.Sprintf("ulimit %s is %s, with the soft limit above the hard limit", name,
				value), "want "+hard+":"+soft+", or a soft limit of at most "+hard)
		}
	}
}

// above reports whether limit a exceeds limit b. Both have a valid form.
func above(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x > y
}
