// Package supervisor is the process that owns a running testbed, and the
// protocol in which it is asked.
//
// There is one supervisor per testbed. It is PID 1 of a PID namespace of its
// own, holds every other namespace by descriptor, and everything that runs in
// the testbed is its descendant: when it dies, however it dies, the kernel
// takes the testbed away. It serves HTTP/1.1 with JSON under /v1 on a unix
// socket that only its owner can open.
package supervisor

import (
	"time"

	"railbed/fabric"
	"railbed/fabric/softswitch/live"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/cni"
	"railbed/plan"
)

// Part is the name under which the executable is started as a supervisor.
const Part = "supervisor"

// CommandPart is the name under which the executable is started as the railbed command
// in a node: there, Command is this program itself, whatever its PATH holds. Programs
// that have no such part have no such command.
const (
	CommandPart = "command"
	Command     = "railbed"
)

// ExitRemoved is the exit code of a supervisor that ended because somebody had removed
// its run directory or the socket in it, by which alone it can be reached.
const ExitRemoved = 11

// ExitLeftovers is the exit code of a supervisor that could not take everything
// down; its run directory and log stay.
const ExitLeftovers = 10

// Protocol is the version of the control protocol; a client and a supervisor
// of different versions refuse each other.
const Protocol = "2"

// ProtocolHeader carries Protocol in every request and response.
const ProtocolHeader = "Railbed-Protocol"

// Upgrade is the protocol name with which exec, capture and event connections
// leave HTTP for frames (package frame).
const Upgrade = "railbed-frames"

// Start is the first message on the startup channel: all that a supervisor
// is told, but for the plan, which is the second. A supervisor makes the
// plan's namespaces while it reads the plan.
type Start struct {
	// Name is the testbed's.
	Name string `json:"name"`
	// Namespaces is how many network namespaces the plan needs: one per node and
	// switch.
	Namespaces int `json:"namespaces"`
	// Dir is the testbed's run directory, claimed and locked by the client.
	Dir string `json:"dir"`
	// Executable's owner: results and sockets belong to the user who asked.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Rootless says that the supervisor is root in a user namespace only.
	Rootless bool `json:"rootless"`
	// Trace asks for each host change as the ip or tc line that it equals.
	Trace bool `json:"trace"`
	// Calibration is the file that keeps measured shaper settings.
	Calibration string `json:"calibration"`
	// Base is the folder that paths of the file are relative to.
	Base string `json:"base,omitempty"`
	// File is the path of the user's file, for people.
	File string `json:"file,omitempty"`
}

// StartupKind tells the messages of the startup channel apart.
type StartupKind string

// Messages of the startup channel, supervisor to client.
const (
	StartupProgress StartupKind = "progress"
	StartupTrace    StartupKind = "trace"
	StartupWarning  StartupKind = "warning" // what works, but not as one would hope
	StartupFailed   StartupKind = "failed"  // last
	StartupReady    StartupKind = "ready"
)

// Startup is a message of the startup channel after Start. While the channel
// is open and the client has not sent Detach, the end of the client is the
// end of the testbed.
type Startup struct {
	Kind StartupKind `json:"kind"`
	Text string      `json:"text,omitempty"`
	// Where is the place in the file of what failed, as file:line:column, or "".
	Where string `json:"where,omitempty"`
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	// Unsupported is set when the host lacks something.
	Unsupported *verdict.UnsupportedError `json:"unsupported,omitempty"`
}

// Detach is the client's answer to ready: the testbed outlives it.
const Detach = "detach"

// State is what exists, for inspect.
type State struct {
	Name     string             `json:"name"`
	File     string             `json:"file,omitempty"`
	PlanHash string             `json:"plan_hash"`
	PID      int                `json:"pid"` // of the supervisor, on the host
	Rootless bool               `json:"rootless"`
	Created  time.Time          `json:"created"`
	Nodes    []NodeState        `json:"nodes"`
	Switches []SwitchState      `json:"switches"`
	Links    []fabric.LinkState `json:"links"`
	// Soft is what the soft switches are doing; their ports are with the links.
	Soft *live.State `json:"soft,omitempty"`
	// CNI are the nodes whose stacks are in containers of other runtimes.
	CNI []cni.Port `json:"cni,omitempty"`
	// Guests are the nodes that are virtual machines, RDMA the nodes' RDMA devices.
	Guests []plan.Guest    `json:"guests,omitempty"`
	RDMA   []plan.NodeRDMA `json:"rdma,omitempty"`
	// Routing is what the daemons of routers have done; absent without any.
	Routing *RoutingState `json:"routing,omitempty"`
}

// NodeState is a node as it is now.
type NodeState struct {
	Name      string   `json:"name"`
	Runtime   string   `json:"runtime"`
	Addresses []string `json:"addresses"`
	NICs      []string `json:"nics"`
	Ranks     []int    `json:"ranks,omitempty"`
	Processes int      `json:"processes"`
	// Namespace is the name for ip-netns(8); empty when it is not published.
	Namespace string `json:"namespace,omitempty"`
	// NamespacePath opens the node's network namespace from the host.
	NamespacePath string `json:"namespace_path"`
}

// SwitchState is a switch as it is now.
type SwitchState struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"`
	Role          string `json:"role"`
	Ports         int    `json:"ports"`
	Namespace     string `json:"namespace,omitempty"`
	NamespacePath string `json:"namespace_path"`
}

// ExecRequest is the first frame of an exec connection.
type ExecRequest struct {
	Node string   `json:"node"`
	Args []string `json:"args"`
	// Self runs the supervisor's own executable with Args as its vector.
	Self    bool     `json:"self,omitempty"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Stdin   bool     `json:"stdin,omitempty"`   // else /dev/null
	Channel bool     `json:"channel,omitempty"` // descriptor 3, as Channel frames
	// Terminal gives the command a terminal of this size.
	Terminal *WindowSize `json:"terminal,omitempty"`
}

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ExecStarted is the payload of a Started frame.
type ExecStarted struct {
	PID int `json:"pid"` // in the supervisor's PID namespace
}

// SignalRequest is the payload of a Signal frame.
type SignalRequest struct {
	Signal int `json:"signal"`
}

// ExecExit is the payload of an Exit frame.
type ExecExit struct {
	nodes.Exit
	Error string `json:"error,omitempty"`
	// Stopped is the name of a process of the command that a signal had stopped when
	// the client sent the command its first signal; "" is none.
	Stopped string `json:"stopped,omitempty"`
}

// Failure is the payload of a Failure frame and of an HTTP error.
type Failure struct {
	Error       string                    `json:"error"`
	Unsupported *verdict.UnsupportedError `json:"unsupported,omitempty"`
	// NotFound says that the program does not exist in the node.
	NotFound bool `json:"not_found,omitempty"`
	// NoSuchObject says that the testbed has no node, link or tap of the name.
	NoSuchObject bool `json:"no_such_object,omitempty"`
	// NoPort says that there is no such port for a container, Taken that none is free,
	// Twice that it has one.
	NoPort bool `json:"no_port,omitempty"`
	Taken  bool `json:"taken,omitempty"`
	Twice  bool `json:"twice,omitempty"`
}

// LinkRequest changes a link. Exactly one of State and Set is given.
type LinkRequest struct {
	// Where is a link's name, optionally with " a-to-b" or " b-to-a".
	Where string `json:"where"`
	// State is up or down. Down in one direction keeps the carrier at both ends;
	// up of the whole link undoes that, too.
	State string          `json:"state,omitempty"`
	Set   *plan.Direction `json:"set,omitempty"`
	// Back is what Set is where Where names no direction, for b-to-a; Set by
	// default. Both are set at once: half of a change may need more of a
	// switch's buffer than the whole.
	Back *plan.Direction `json:"back,omitempty"`
}

// ConvergeRequest asks for what the testbed should be.
type ConvergeRequest struct {
	// Plan differs from the testbed's in what links do, and in nothing else.
	// Without one the testbed keeps the plan that it has.
	Plan *plan.Plan `json:"plan,omitempty"`
	// File is the path of the user's file, for people.
	File string `json:"file,omitempty"`
	// Trace asks for each host change as the ip or tc line that it equals.
	Trace bool `json:"trace,omitempty"`
}

// Converged is what was done to make the testbed what its plan says.
type Converged struct {
	// Changed are the links that were asked for otherwise, by an earlier plan
	// or by a LinkRequest.
	Changed []fabric.Repair `json:"changed"`
	// Repaired is what somebody else had altered.
	Repaired []fabric.Repair `json:"repaired"`
	Commands []string        `json:"commands,omitempty"`
	// Failure is what still differs. Then the plan is not taken over.
	Failure *Failure `json:"failure,omitempty"`
}

// CaptureRequest is the first frame of a capture connection. The supervisor
// answers with Started, then Stdout frames that carry the pcapng, and after
// the client's empty Stdin frame the rest of it and an Exit frame with
// CaptureStats.
type CaptureRequest struct {
	At      []string `json:"at"`
	Filter  string   `json:"filter,omitempty"`
	SnapLen int      `json:"snaplen,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
	// Events records what enters the queues of soft switches as well.
	Events bool `json:"events,omitempty"`
}

// Event is something that happened to the testbed.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is "testbed.up", "testbed.down", "process.start", "process.exit",
	// "link.up", "link.down", "link.set", "capture.start", "capture.stop",
	// "capture.clock" when the host's clock was set during a capture,
	// "testbed.repair" for each thing that was not as planned and is again,
	// "testbed.plan" when the testbed takes another plan over, "routing.converged",
	// "routing.end" when a routing daemon ends by itself, "container.attach"
	// and "container.detach", EventsDropped, first where not all are kept, or, last for
	// a reader that fell behind, EventsLost.
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Detail  string `json:"detail,omitempty"`
	// Count is how many events EventsDropped and EventsLost stand for.
	Count int `json:"count,omitempty"`
}
