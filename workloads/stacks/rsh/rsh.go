// Package rsh is a remote shell between nodes. It serves programs that start others by a remote
// shell, as MPI launchers do with ssh. Nodes have no such service and no connection to the
// supervisor. So a relay in a node passes requests to the process that started the relay, and that
// process starts the command in the other node:
//
//	launcher - agent - (abstract socket) - relay - (descriptor 3, yamux) - Serve - node
//
// The agent's command line is rsh's: HOST COMMAND... A shell in the other node reads the words of
// the command, joined by spaces. The agent accepts and ignores options before the host. The agent's
// outputs and exit code are the command's. When the agent ends, the command ends. There is no
// input.
//
// The caller of Serve decides which nodes may start commands. Commands run only in served nodes.
// Containers and virtual machines may not start commands in nodes of runtime netns, whose programs
// can access the host's files. Within a node the relay serves root and the user of the node's
// commands, and the agent sends commands only to the relay. Root of a node can take over the relay,
// and then do what the node may do, but no more.
package rsh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/yamux"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/plan/spec"
	"railbed/testbed"
)

// Agent is the path of the agent in a served node.
const Agent = "/tmp/railbed-rsh"

// The parts of this executable in a node.
const (
	relayPart = "rsh-relay"
	agentPart = "rsh"
)

// exitFailed is the exit code if no command was started, as in ssh.
const exitFailed = 255

// Parts returns the parts that reexec.Run needs so that nodes can have agents.
func Parts() reexec.Parts { return reexec.Parts{relayPart: relay, agentPart: agent} }

// request is the request of an agent.
type request struct {
	Host    string `json:"host"`
	Command string `json:"command"` // for a shell
}

// Server starts the commands that agents in nodes request.
type Server struct {
	end    context.CancelFunc
	relays []*relayed
	// commands waits for the goroutines that serve agents, and for those that accept their
	// requests.
	commands sync.WaitGroup
}

// relayed is a relay in a node.
type relayed struct {
	cmd     *testbed.Cmd
	session *yamux.Session
}

// Serve lets programs in nodes start commands in each other, until Close or the end of ctx. Each
// command has env in addition to its node's own environment. Only one Server may serve a node at a
// time.
func Serve(ctx context.Context, tb *testbed.Testbed, nodes, env []string) (*Server, error) {
	life, end := context.WithCancel(ctx)
	s := &Server{end: end}
	for _, node := range nodes {
		user, err := userOf(life, tb.Node(node))
		r := &relayed{cmd: tb.Node(node).Part(life, relayPart, strconv.Itoa(user))}
		if err == nil {
			err = r.start(life)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("start remote shell in %s: %w", node, err)
		}
		s.relays = append(s.relays, r)
		s.commands.Go(func() {
			for {
				stream, err := r.session.AcceptStream()
				if err != nil {
					return
				}
				s.commands.Go(func() {
					serve(life, stream, env, func(host string) (*testbed.Node, error) {
						return target(tb, nodes, node, host)
					})
				})
			}
		})
	}
	return s, nil
}

// target returns the node named host, if the node from of a job may start a command there.
func target(tb *testbed.Testbed, job []string, from, host string) (*testbed.Node, error) {
	if !slices.Contains(job, host) {
		return nil, fmt.Errorf("node %q is not in this job, want one of %s", host,
			strings.Join(job, ", "))
	}
	source, to := tb.Node(from).Plan(), tb.Node(host).Plan()
	if source == nil || to == nil || source.Runtime != spec.Netns && to.Runtime == spec.Netns {
		return nil, fmt.Errorf("%s may not start commands in %s: programs there can access the host's "+
			"files, and programs of containers and virtual machines must not; "+
			"name a node of runtime netns first, or give all nodes of the job one runtime", from, host)
	}
	return tb.Node(host), nil
}

// Reaches returns the reason why a node of a job may not start a command in another node, or nil if
// it may.
func Reaches(tb *testbed.Testbed, job []string, from, host string) error {
	_, err := target(tb, job, from, host)
	return err
}

// userOf returns the user of a node's commands: in a container the user of the image, otherwise
// root.
func userOf(ctx context.Context, node *testbed.Node) (int, error) {
	if p := node.Plan(); p == nil || p.Runtime != spec.Docker {
		return 0, nil
	}
	// With shell builtins only, because images may lack id(1). The agent needs a shell anyway.
	cmd := node.Command(ctx, "/bin/sh", "-c",
		`while read -r key user rest; do [ "$key" != Uid: ] || echo "$user"; done </proc/self/status`)
	said, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("read the user of its commands: %w", err)
	}
	user, err := strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil {
		return 0, fmt.Errorf("read the user of its commands: %w", err)
	}
	return user, nil
}

// start starts the relay and returns when it accepts agents.
func (r *relayed) start(ctx context.Context) error {
	said := &bytes.Buffer{} // of the relay that cannot start
	r.cmd.Stderr = said
	channel := r.cmd.Channel()
	if err := r.cmd.Start(); err != nil {
		return err
	}
	var err error
	if r.session, err = yamux.Server(channel, sessionConfig()); err == nil {
		_, err = r.session.AcceptStreamWithContext(ctx)
	}
	if err != nil {
		_ = r.cmd.Kill()
		return fmt.Errorf("%w: %w: %s", err, r.cmd.Wait(), said)
	}
	return nil
}

// Close ends the relays and every command that was started for their agents.
func (s *Server) Close() {
	s.end()
	for _, r := range s.relays {
		_ = r.cmd.Wait() // it was killed
		r.session.Close()
	}
	s.commands.Wait()
}

// serve runs one command.
func serve(ctx context.Context, stream *yamux.Stream, env []string,
	target func(host string) (*testbed.Node, error)) {
	defer stream.Close()
	out := frame.NewWriter(stream)
	var asked request
	if _, payload, err := frame.NewReader(stream).Read(); err != nil ||
		json.Unmarshal(payload, &asked) != nil {
		return // the agent has ended, or the peer is not an agent
	}
	node, err := target(asked.Host)
	if err != nil {
		_ = out.Write(frame.Failure, []byte(err.Error())) // the agent may have ended
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := node.Command(ctx, "/bin/sh", "-c", asked.Command)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = framed{out, frame.Stdout}, framed{out, frame.Stderr}
	if err := cmd.Start(); err != nil {
		_ = out.Write(frame.Failure, []byte(err.Error())) // the agent may have ended
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, stream) // returns when the agent ends
		cancel()
	}()
	var exit *testbed.ExitError
	switch err := cmd.Wait(); {
	case errors.As(err, &exit):
		_ = out.WriteJSON(frame.Exit, exit.Exit)
	case err != nil:
		_ = out.Write(frame.Failure, []byte(err.Error()))
	default:
		_ = out.WriteJSON(frame.Exit, nodes.Exit{})
	}
}

// framed writes frames of one type. The end of an agent is not an error of the command.
type framed struct {
	to   *frame.Writer
	kind frame.Type
}

// Write implements io.Writer.
func (f framed) Write(p []byte) (int, error) {
	_ = f.to.Write(f.kind, p)
	return len(p), nil
}

// sessionConfig disables timeouts: both ends are on this host, and a node may stand still for long
// on a busy host.
func sessionConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = math.MaxInt64
	config.StreamOpenTimeout, config.StreamCloseTimeout = 0, 0
	config.LogOutput = io.Discard
	return config
}
