package vm

import (
	"io"
	"math"
	"time"

	"github.com/hashicorp/yamux"

	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
)

// hello is the first frame of a stream, a Message. The channel to a guest is a yamux session in
// which the host opens all streams. The field that is set selects the stream's purpose.
type hello struct {
	// Configure makes the guest the node. The answer is Started, or Failure.
	Configure *identityOf `json:",omitempty"`
	// Start starts a command. The answer is Started and then Exit, or Failure. Signal and
	// WindowSize frames may follow the hello.
	Start *startRequest `json:",omitempty"`
	// Carry is one descriptor of a command, in one direction: bytes without frames. The sender ends
	// it.
	Carry *carried `json:",omitempty"`
	// Count requests the number of processes. The answer is a Message.
	Count bool `json:",omitempty"`
	// Squeeze limits the memory of the programs. The answer is a Message with cgroup.MemoryEvents, or
	// Failure.
	Squeeze *squeezeRequest `json:",omitempty"`
}

// squeezeRequest has the argument of nodes.MemoryLimiter.
type squeezeRequest struct{ Limit *units.Bytes }

// identityOf is the configuration that a guest gets of its node.
type identityOf struct {
	Node     plan.Node
	Hosts    string
	Dilation uint64
}

// startRequest is a command. Streams with its id carry its descriptors. Descriptors without a
// stream are /dev/null, and descriptor 3 is closed.
type startRequest struct {
	ID        uint64
	Args      []string
	Self      bool
	Env       []string // the whole environment
	Dir       string
	DirHas    string // as in nodes.Command
	Unlimited bool
	Terminal  *sizeRequest // nil without one
	Carried   []descriptor
}

// carried identifies a stream.
type carried struct {
	ID   uint64
	What descriptor
}

// descriptor is one direction of a command's descriptor.
type descriptor string

const (
	stdin      descriptor = "stdin"
	stdout     descriptor = "stdout"
	stderr     descriptor = "stderr"
	channelIn  descriptor = "channel-in" // to the command
	channelOut descriptor = "channel-out"
)

// output reports whether the guest is the sender.
func (d descriptor) output() bool { return d == stdout || d == stderr || d == channelOut }

// started is the payload of a Started frame.
type started struct{ PID int }

// exited is the payload of an Exit frame.
type exited struct {
	nodes.Exit
	// Sent is how many bytes of each output the command had written. The host reports the command's
	// end once these have arrived.
	Sent map[descriptor]int64
}

// refusal is the payload of a Failure frame.
type refusal struct {
	Error    string
	NotFound bool
	NoFolder bool // wraps nodes.ErrNoFolder
	// Sysctl is a setting of the file that the guest's kernel rejects.
	Sysctl *kernel.RefusedSysctlError `json:",omitempty"`
	// Unsupported is a feature that the guest's kernel lacks.
	Unsupported *verdict.UnsupportedError `json:",omitempty"`
}

// sizeRequest is a terminal's size, and the payload of a WindowSize frame.
type sizeRequest struct{ Rows, Cols uint16 }

// signalRequest is the payload of a Signal frame.
type signalRequest struct{ Signal int }

// sessionConfig disables all timeouts: both ends are on this host, a guest may pause for long on a
// busy host, and the end of QEMU is noticed at once.
func sessionConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = math.MaxInt64
	config.StreamOpenTimeout, config.StreamCloseTimeout = 0, 24*time.Hour
	config.LogOutput = io.Discard
	return config
}
