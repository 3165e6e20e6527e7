package docker

import (
	"railbed/nodes"
)

// Part is the name under which the executable is started as a container's first
// process.
const Part = "init-docker"

// Places in a container, of what it gets of ours.
const (
	ownDir       = "/.railbed"
	socketTarget = ownDir + "/socket"
)

// maxMessage bounds a message: a packet of the socket is one, with the descriptors
// of a command. Arguments and environment have at most 2 MiB (execve(2)).
const maxMessage = 4 << 20

// maxAnswer bounds what a container may say at once; programs in it may have taken
// its first process over.
const maxAnswer = 16 << 10

// request is what the supervisor asks a container's first process for.
type request struct {
	ID        uint64         `json:"id"`
	Configure *configuration `json:"configure,omitempty"`
	Start     *startRequest  `json:"start,omitempty"`
	Signal    int            `json:"signal,omitempty"` // to the group of the command ID
	Count     bool           `json:"count,omitempty"`
}

// configuration is what the container has to know of itself.
type configuration struct {
	Files map[string]string `json:"files"` // content by path
}

// startRequest is a command. Its descriptors come with the message, in this order.
type startRequest struct {
	Args     []string `json:"args"`
	Self     bool     `json:"self,omitempty"`
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	Home     string   `json:"home,omitempty"` // the directory where there is no Dir
	User     string   `json:"user,omitempty"` // as in a Dockerfile; "" is root
	Stdin    bool     `json:"stdin,omitempty"`
	Stdout   bool     `json:"stdout,omitempty"`
	Stderr   bool     `json:"stderr,omitempty"`
	Channel  bool     `json:"channel,omitempty"`
	Terminal bool     `json:"terminal,omitempty"`
	// Logged gives the command the container's own output.
	Logged bool `json:"logged,omitempty"`
}

// answer is what comes back: for a command first that it was started, then how it
// ended.
type answer struct {
	ID       uint64      `json:"id"`
	PID      int         `json:"pid,omitempty"`
	Exit     *nodes.Exit `json:"exit,omitempty"`
	Count    int         `json:"count,omitempty"`
	Error    string      `json:"error,omitempty"`
	NotFound bool        `json:"not_found,omitempty"`
	// Stopping says, of no request, that the container was asked to stop from outside.
	Stopping bool `json:"stopping,omitempty"`
}

// refusal is an error of the other side.
type refusal struct {
	text     string
	notFound bool
}

func (r *refusal) Error() string { return r.text }

// Is makes a missing program nodes.ErrNotFound, whose text it has.
func (r *refusal) Is(target error) bool { return r.notFound && target == nodes.ErrNotFound }
