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

	"railbed/plan/spec"
)

// usual are the capabilities that programs of a container have: what daemons need
// to become other users and to own their files, low ports, and raw sockets for ping
// and RoCE. Of Docker's own defaults it leaves out MKNOD, SYS_CHROOT, SETFCAP,
// SETPCAP and AUDIT_WRITE.
var usual = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW",
	"SETGID", "SETUID"}

// settings are the container's, as the engine wants them.
func (c *container) settings() (*containerapi.Config, *containerapi.HostConfig) {
	node, labels := c.config.Node, c.runtime.labels(c.config)
	// An image's own would come along, and make an image that is committed one of the testbed.
	labels[LabelImageTestbed], labels[LabelImageRunDir] = "", ""
	config := &containerapi.Config{
		Image: c.image.id, Hostname: node.Name, Labels: labels, User: "0",
		Entrypoint: strslice.StrSlice(c.runtime.program.entrypoint), Cmd: strslice.StrSlice{},
		WorkingDir: cmp.Or(c.image.dir, "/"),
	}
	// For docker exec, and for the check of health.
	for name, value := range c.environment() {
		config.Env = append(config.Env, name+"="+value)
	}
	if health := node.Container.Health; health != nil {
		config.Healthcheck = healthcheck(health)
	} else if c.image.health != nil {
		// Engines try for the first time after an interval, which is 30 s by default.
		own := *c.image.health
		own.Interval = healthInterval
		config.Healthcheck = &own
	}
	// The first process passes this on; images may name one that it does not know.
	config.StopSignal = "SIGTERM"
	host := &containerapi.HostConfig{
		NetworkMode: "none", IpcMode: "private", Mounts: c.mounts(),
		CapDrop:   strslice.StrSlice{"ALL"},
		CapAdd:    append(append(strslice.StrSlice{}, usual...), node.Container.Capabilities...),
		LogConfig: containerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "16m"}},
	}
	host.NanoCPUs = int64(node.CPU * 1e9)
	if host.Memory = int64(node.Memory); host.Memory != 0 {
		host.MemorySwap = host.Memory // which is both together: no swap
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

// number64 reads what the file's check has let pass.
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

// Log writes what the entry point has said, as far as the engine keeps it.
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
