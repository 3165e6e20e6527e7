// Package supervisor implements the process that owns a running testbed, and its control protocol.
//
// There is one supervisor per testbed. It is PID 1 of its own PID namespace and holds every other
// namespace by descriptor. Every process in the testbed is its descendant. When the supervisor
// dies, for any reason, the kernel therefore removes the testbed. It serves HTTP/1.1 with JSON
// under /v1 on a unix socket that only its owner can open.
package supervisor

import (
	"time"

	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/usage"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/cni"
	"railbed/plan"
	"railbed/plan/spec"
)

// Part is the name of the part of the executable that runs as a supervisor.
const Part = "supervisor"

// CommandPart is the name of the part of the executable that runs as the railbed command in a node.
// There, Command is this program itself, whatever the PATH has. Programs without such a part have
// no such command.
const (
	CommandPart = "command"
	Command     = "railbed"
)

// ExitRemoved is the exit code of a supervisor that ended because its run directory or the socket
// in it was removed. Without them clients cannot reach it.
const ExitRemoved = 11

// ExitNotStarted is the exit code of a supervisor whose client ended before it said what to bring up. The run
// directory stays for the client.
const ExitNotStarted = 12

// ExitLeftovers is the exit code of a supervisor that could not take everything down. Its run
// directory and log stay.
const ExitLeftovers = 10

// Protocol is the version of the control protocol. A client and a supervisor of different versions
// refuse each other.
const Protocol = "4"

// ProtocolHeader carries Protocol in every request and response.
const ProtocolHeader = "Railbed-Protocol"

// Upgrade is the protocol name with which exec, capture and event connections are upgraded from
// HTTP to frames (package frame).
const Upgrade = "railbed-frames"

// Start is the first message on the startup channel. It has all parameters of a supervisor except
// the plan, which is the second message. A supervisor makes the plan's namespaces while it reads
// the plan.
type Start struct {
	// Name is the testbed's name.
	Name string `json:"name"`
	// Namespaces is the number of network namespaces that the plan needs: one per node and switch.
	Namespaces int `json:"namespaces"`
	// Dir is the testbed's run directory, claimed and locked by the client.
	Dir string `json:"dir"`
	// UID and GID identify the user who started the testbed and owns its results and sockets.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Rootless reports whether the supervisor is root in a user namespace only.
	Rootless bool `json:"rootless"`
	// Trace requests each host change as the equivalent ip or tc line.
	Trace bool `json:"trace"`
	// Calibration is the file with measured shaper settings.
	Calibration string `json:"calibration"`
	// Base is the folder to which paths of the file are relative.
	Base string `json:"base,omitempty"`
	// File is the path of the user's file, for people.
	File string `json:"file,omitempty"`
}

// StartupKind is the kind of a message of the startup channel.
type StartupKind string

// Messages of the startup channel, supervisor to client.
const (
	StartupProgress StartupKind = "progress"
	StartupTrace    StartupKind = "trace"
	StartupWarning  StartupKind = "warning" // something works, but not as well as expected
	StartupFailed   StartupKind = "failed"  // last
	StartupReady    StartupKind = "ready"
	StartupEnding   StartupKind = "ending" // why the testbed ends although its client did not ask for it
)

// DownRequest asks the supervisor to take the testbed down.
type DownRequest struct {
	// By is the command that asks, and its process, for people.
	By string `json:"by"`
}

// Startup is a message of the startup channel after Start. While the channel is open and the client
// has not sent Detach, the testbed ends with the client.
type Startup struct {
	Kind StartupKind `json:"kind"`
	Text string      `json:"text,omitempty"`
	// Where is the position in the file of the setting that failed, as file:line:column, or "".
	Where string `json:"where,omitempty"`
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	// Unsupported is set if the host lacks a feature.
	Unsupported *verdict.UnsupportedError `json:"unsupported,omitempty"`
	// Mistake is set if the file names something that exists on no host.
	Mistake *verdict.MistakeError `json:"mistake,omitempty"`
}

// Detach is the client's reply to ready. Afterwards the testbed outlives the client.
const Detach = "detach"

// State is the current state of the testbed, for inspect.
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
	// Followers is the number of clients that follow the events.
	Followers int `json:"followers,omitempty"`
	// Backlog counts the packets that the host's CPUs dropped since it started, because too many waited for
	// them (net.core.netdev_max_backlog).
	Backlog uint64 `json:"backlog_drops"`
	// Soft is the state of the soft switches. The states of their ports are with the links.
	Soft *live.State `json:"soft,omitempty"`
	// Faults are the faults at kernel links and switches, and NodeFaults those of nodes. The state of soft
	// switches has the others.
	Faults     []softswitch.FaultState `json:"faults,omitempty"`
	NodeFaults []softswitch.FaultState `json:"node_faults,omitempty"`
	// CNI lists the nodes whose stacks are in containers of other runtimes.
	CNI []cni.Port `json:"cni,omitempty"`
	// Guests lists the nodes that are virtual machines, and RDMA the nodes' RDMA devices.
	Guests []plan.Guest    `json:"guests,omitempty"`
	RDMA   []plan.NodeRDMA `json:"rdma,omitempty"`
	// Routing is the state of the routers' daemons. It is absent if there are none.
	Routing *RoutingState `json:"routing,omitempty"`
}

// StacksQuery is the parameter of a request for the state with the counters of the nodes' stacks.
const StacksQuery = "stacks"

// NodeState is the current state of a node.
type NodeState struct {
	Name      string   `json:"name"`
	Runtime   string   `json:"runtime"`
	Addresses []string `json:"addresses"`
	NICs      []string `json:"nics"`
	NICPath   string   `json:"nic_path"` // kernel or bypass
	Ranks     []int    `json:"ranks,omitempty"`
	Processes int      `json:"processes"`
	// Namespace is the name for ip-netns(8). It is empty if the namespace is not published.
	Namespace string `json:"namespace,omitempty"`
	// NamespacePath opens the node's network namespace from the host.
	NamespacePath string `json:"namespace_path"`
	// Stack, Output and Programs hold the kernel's counts of the node since it was made. They are absent for
	// a virtual machine, whose kernel is its own, and for a container of another runtime. A client asks for
	// Stack and Output with StacksQuery.
	Stack    *usage.Stack    `json:"stack,omitempty"`
	Output   *usage.Output   `json:"output,omitempty"`
	Programs *usage.Programs `json:"programs,omitempty"`
}

// SwitchState is the current state of a switch.
type SwitchState struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"`
	Role          string `json:"role"`
	Ports         int    `json:"ports"`
	Namespace     string `json:"namespace,omitempty"`
	NamespacePath string `json:"namespace_path"`
	// Stack and Output hold the counts of a router's network stack. A client asks for them with StacksQuery.
	Stack  *usage.Stack  `json:"stack,omitempty"`
	Output *usage.Output `json:"output,omitempty"`
}

// Kinds of events that a client adds: a run's step begins, and ends with the state in the detail. A check
// has a verdict, which is the first word of the detail. A later verdict of a check replaces an earlier one.
const (
	StepBegin    = "step.begin"
	StepEnd      = "step.end"
	CheckVerdict = "check.verdict"
)

// NoteRequest is an event that a client adds, of one of these kinds.
type NoteRequest struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Detail  string `json:"detail,omitempty"`
}

// ExecRequest is the first frame of an exec connection.
type ExecRequest struct {
	Node string   `json:"node"`
	Args []string `json:"args"`
	// Self runs the supervisor's own executable with Args as its argument vector.
	Self    bool     `json:"self,omitempty"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	DirHas  string   `json:"dir_has,omitempty"` // as in nodes.Command
	Stdin   bool     `json:"stdin,omitempty"`   // if false, it is /dev/null
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
	// Stopped is the name of a process of the command that a signal had stopped when the client
	// sent its first signal to the command, or "".
	Stopped string `json:"stopped,omitempty"`
}

// Failure is the payload of a Failure frame and of an HTTP error.
type Failure struct {
	Error       string                    `json:"error"`
	Unsupported *verdict.UnsupportedError `json:"unsupported,omitempty"`
	// Mistake is set if the file names something that exists on no host.
	Mistake *verdict.MistakeError `json:"mistake,omitempty"`
	// NotFound reports whether the program does not exist in the node.
	NotFound bool `json:"not_found,omitempty"`
	// NoFolder reports whether the node lacks the directory of the command.
	NoFolder bool `json:"no_folder,omitempty"`
	// NoSuchObject reports whether the testbed has no node, link or tap of the name.
	NoSuchObject bool `json:"no_such_object,omitempty"`
	// NoPort reports that there is no such port for a container. Taken reports that no port is
	// free. Twice reports that the container has a port already.
	NoPort bool `json:"no_port,omitempty"`
	Taken  bool `json:"taken,omitempty"`
	Twice  bool `json:"twice,omitempty"`
}

// LinkRequest changes a link. Exactly one of State and Set is given.
type LinkRequest struct {
	// Where is a link's name, optionally with " a-to-b" or " b-to-a".
	Where string `json:"where"`
	// State is up or down. A direction that is down keeps the carrier at both ends. State up of the
	// whole link also restores its directions.
	State string          `json:"state,omitempty"`
	Set   *plan.Direction `json:"set,omitempty"`
	// Back replaces Set in the direction b-to-a if Where names no direction. Default: Set. Both
	// directions are set at once, because half of a change may need more of a switch's buffer than
	// the whole.
	Back *plan.Direction `json:"back,omitempty"`
}

// FaultRequest adds a fault, or clears faults. Exactly one of its fields is set.
type FaultRequest struct {
	Add *spec.Fault `json:"add,omitempty"`
	// Clear lists the names of faults. An empty list clears all.
	Clear *[]string `json:"clear,omitempty"`
}

// FaultAnswer has the faults that were cleared.
type FaultAnswer struct {
	Cleared []softswitch.FaultState `json:"cleared"`
}

// ConvergeRequest asks the supervisor to make the testbed match a plan.
type ConvergeRequest struct {
	// Plan may differ from the testbed's plan only in settings of links. Without a plan the testbed
	// keeps its own.
	Plan *plan.Plan `json:"plan,omitempty"`
	// File is the path of the user's file, for people.
	File string `json:"file,omitempty"`
	// Trace requests each host change as the equivalent ip or tc line.
	Trace bool `json:"trace,omitempty"`
}

// Converged lists the changes that made the testbed match its plan.
type Converged struct {
	// Changed lists the links whose settings had been requested otherwise, by an earlier plan or by
	// a LinkRequest.
	Changed []fabric.Repair `json:"changed"`
	// Repaired lists changes from outside the testbed that were undone.
	Repaired []fabric.Repair `json:"repaired"`
	Commands []string        `json:"commands,omitempty"`
	// Failure describes the remaining differences. If it is set, the plan is not taken over.
	Failure *Failure `json:"failure,omitempty"`
}

// CaptureRequest is the first frame of a capture connection. The supervisor answers with Started
// and then with Stdout frames that carry the pcapng. After the client's empty Stdin frame it sends
// the rest and an Exit frame with CaptureStats.
type CaptureRequest struct {
	At      []string `json:"at"`
	Filter  string   `json:"filter,omitempty"`
	SnapLen int      `json:"snaplen,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
	// Events also records the packets that enter the queues of soft switches.
	Events bool `json:"events,omitempty"`
}

// Event is something that happened to the testbed.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is one of these:
	//
	//   - "testbed.up", "testbed.down", "process.start", "process.exit", "link.up", "link.down",
	//     "link.set", "capture.start", "capture.stop";
	//   - "capture.clock" if the host's clock was set during a capture;
	//   - "fault.add" and "fault.clear";
	//   - "testbed.repair" for each setting that differed from the plan and was repaired;
	//   - "testbed.plan" when the testbed takes over another plan;
	//   - "routing.converged", and "routing.end" when a routing daemon ends by itself;
	//   - "container.attach" and "container.detach";
	//   - StepBegin, StepEnd and CheckVerdict of a run in the testbed;
	//   - EventsDropped, which comes first if not all events are kept;
	//   - EventsLost, which comes last for a reader that fell behind.
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Detail  string `json:"detail,omitempty"`
	// Count is the number of missing events for EventsDropped and EventsLost.
	Count int `json:"count,omitempty"`
}
