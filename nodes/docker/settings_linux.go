package docker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	containerapi "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/docker/go-units"

	"railbed/nodes/cgroup"
	"railbed/plan/spec"
)

// usual are the capabilities of programs in a container. Daemons need them to become other users,
// to own their files and to use low ports. NET_RAW is for ping and RoCE. Of Docker's own defaults,
// MKNOD, SYS_CHROOT, SETFCAP, SETPCAP and AUDIT_WRITE are left out.
var usual = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW",
	"SETGID", "SETUID"}

// settings returns the container's settings, in the engine's form.
func (c *container) settings() (*containerapi.Config, *containerapi.HostConfig) {
	node, labels := c.config.Node, c.runtime.labels(c.config)
	// Otherwise the container would inherit the image's own labels, and an image committed from it
	// would count as the testbed's.
	labels[LabelImageTestbed], labels[LabelImageRunDir] = "", ""
	config := &containerapi.Config{
		Image: c.image.id, Hostname: node.Name, Labels: labels, User: "0",
		Entrypoint: strslice.StrSlice(c.runtime.program.entrypoint), Cmd: strslice.StrSlice{},
		WorkingDir: cmp.Or(c.image.dir, "/"),
	}
	// For docker exec, and for the health check.
	for name, value := range c.environment() {
		config.Env = append(config.Env, name+"="+value)
	}
	if health := node.Container.Health; health != nil {
		config.Healthcheck = healthcheck(health)
	} else if c.image.health != nil {
		// Engines check for the first time after an interval, which is 30 s by default.
		own := *c.image.health
		own.Interval = healthInterval
		config.Healthcheck = &own
	}
	// The first process passes this on; images may name a signal that it does not handle.
	config.StopSignal = "SIGTERM"
	host := &containerapi.HostConfig{
		NetworkMode: "none", IpcMode: "private", Mounts: c.mounts(),
		CapDrop:   strslice.StrSlice{"ALL"},
		CapAdd:    append(append(strslice.StrSlice{}, usual...), node.Container.Capabilities...),
		LogConfig: containerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "16m"}},
	}
	if node.CPU > 0 { // not NanoCPUs, whose limit an engine does not lift again
		host.CPUPeriod, host.CPUQuota = cgroup.CPUPeriod, quota(node.CPU)
	}
	if host.Memory = int64(node.Memory); host.Memory != 0 {
		host.MemorySwap = host.Memory // the sum of both: no swap
	}
	for name, value := range node.Container.Ulimits {
		soft, hard, both := strings.Cut(value, ":")
		if !both {
			hard = soft
		}
		host.Ulimits = append(host.Ulimits,
			&units.Ulimit{Name: name, Soft: number64(soft), Hard: number64(hard)})
	}
	for _, device := range node.Container.Devices {
		parts := append(strings.Split(device, ":"), "", "")
		target, rights := parts[1], parts[2]
		if target == "" {
			target = parts[0]
		}
		if rights == "" {
			rights = "rwm"
		}
		host.Devices = append(host.Devices,
			containerapi.DeviceMapping{PathOnHost: parts[0], PathInContainer: target,
				CgroupPermissions: rights})
	}
	return config, host
}

// number64 parses a number that the file's check has accepted.
func number64(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("ulimit " + text)
	}
	return value
}

func healthcheck(h *spec.Health) *containerapi.HealthConfig {
	made := &containerapi.HealthConfig{Test: append([]string{"CMD"}, h.Command...), Interval: healthInterval,
		Retries: 3}
	if h.Interval != 0 {
		made.Interval = time.Duration(h.Interval)
	}
	return made
}

// Log writes the entry point's output, as far as the engine keeps it.
func (c *container) Log(ctx context.Context, to io.Writer) error {
	log, err := c.runtime.client.ContainerLogs(ctx, c.id,
		containerapi.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return fmt.Errorf("read log of %s: %w", c.name(), err)
	}
	defer log.Close()
	_, err = stdcopy.StdCopy(to, to, log)
	return err
}

// plainLog reads an engine's log as text.
func plainLog(log io.ReadCloser) (string, error) {
	defer log.Close()
	var text strings.Builder
	_, err := stdcopy.StdCopy(&text, &text, log)
	return text.String(), err
}
