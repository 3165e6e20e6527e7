package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
	"railbed/nodes"
)

// Part is the name under which the executable is started as a node's init.
const Part = "init"

const initReady = "ready\n"

// initConfig is the configuration that the init receives over its channel.
type initConfig struct {
	Hostname  string
	MachineID string
	Hosts     string
	Resolver  string
}

func initConfigOf(config nodes.Config) initConfig {
	return initConfig{Hostname: config.Node.Name, MachineID: config.Node.MachineID,
		Hosts: nodes.HostsFile(config.Hosts), Resolver: nodes.Resolver(config.Node)}
}

// Main is the node's init: PID 1 of the node's PID namespace. It builds the node's view of the
// system, answers on descriptor 3, and reaps orphans until it is killed with the node's other
// processes.
func Main(args []string) int {
	reexec.Name(strings.Join(args, ""), "init") // the node's name
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
	// Programs of the node can open the descriptors of this process (/proc/1/fd), and so write to
	// the supervisor's log.
	if err := unix.Dup3(1, 2, 0); err != nil {
		return 1
	}
	reap()
	return 0
}

// reap collects the orphans of the PID namespace. With no child left wait4 fails with ECHILD at
// once, so the init sleeps until the next SIGCHLD.
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
