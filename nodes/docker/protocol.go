package docker

import (
	"railbed/nodes"
	"railbed/nodes/cgroup"
)

// Part is the name under which the executable is started as a container's first process.
const Part = "init-docker"

// Paths in a container of files that Railbed mounts.
const (
	ownDir       = "/.railbed"
	socketTarget = ownDir + "/socket"
)

// maxMessage bounds a message in bytes: a packet of the socket is one message, with the descriptors
// of a command. Arguments and environment have at most 2 MiB (execve(2)).
const maxMessage = 4 << 20

// maxAnswer bounds a container's message in bytes: programs in the container may have taken over
// its first process.
const maxAnswer = 16 << 10

// request is a request of the supervisor to a container's first process.
type request struct {
	ID        uint64         `json:"id"`
	Configure *configuration `json:"configure,omitempty"`
	Start     *startRequest  `json:"start,omitempty"`
	Signal    int            `json:"signal,omitempty"` // to the group of the command ID
	Count     bool           `json:"count,omitempty"`
	Group     groupRequest   `json:"group,omitempty"`
}

// groupRequest is a request about the container's control group. Its answer has a reading of the group.
type groupRequest string

const (
	groupRead groupRequest = "read"
	// groupExpose makes the kernel kill programs before the first process, which is in the same group.
	// groupRestore ends that.
	groupExpose  groupRequest = "expose"
	groupRestore groupRequest = "restore"
	groupKill    groupRequest = "kill" // the program with the most memory
)

// configuration has the container's own settings.
type configuration struct {
	Files map[string]string `json:"files"` // content by path
	// Exposed is set if programs are exposed, as after groupExpose.
	Exposed bool `json:"exposed,omitempty"`
}

// startRequest is a command. Its descriptors are sent with the message, in this order.
type startRequest struct {
	Args     []string `json:"args"`
	Self     bool     `json:"self,omitempty"`
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	DirHas   string   `json:"dir_has,omitempty"` // as in nodes.Command
	Home     string   `json:"home,omitempty"`    // the directory if Dir does not exist
	User     string   `json:"user,omitempty"`    // as in a Dockerfile; "" is root
	Stdin    bool     `json:"stdin,omitempty"`
	Stdout   bool     `json:"stdout,omitempty"`
	Stderr   bool     `json:"stderr,omitempty"`
	Channel  bool     `json:"channel,omitempty"`
	Terminal bool     `json:"terminal,omitempty"`
	// Logged gives the command the container's own output.
	Logged bool `json:"logged,omitempty"`
}

// answer is the reply to a request. A command has two: first that it was started, then how it
// ended.
type answer struct {
	ID       uint64          `json:"id"`
	PID      int             `json:"pid,omitempty"`
	Exit     *nodes.Exit     `json:"exit,omitempty"`
	Count    int             `json:"count,omitempty"`
	Group    *cgroup.Reading `json:"group,omitempty"`
	Error    string          `json:"error,omitempty"`
	NotFound bool            `json:"not_found,omitempty"`
	NoFolder bool            `json:"no_folder,omitempty"`
	// Stopping reports, without a request, a stop of the container that was requested from outside.
	Stopping bool `json:"stopping,omitempty"`
}

// refusal is an error of the other side.
type refusal struct {
	text               string
	notFound, noFolder bool
}

func (r *refusal) Error() string { return r.text }

// Is reports a missing program as nodes.ErrNotFound and a missing directory as nodes.ErrNoFolder, whose texts
// the refusal has.
func (r *refusal) Is(target error) bool {
	return r.notFound && target == nodes.ErrNotFound || r.noFolder && target == nodes.ErrNoFolder
}
