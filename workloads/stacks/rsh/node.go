package rsh

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/hashicorp/yamux"

	"railbed/nodes"
	"railbed/testbed/frame"
	"railbed/testbed/reexec"
)

// socket is abstract, and so of the node's network namespace: no file is left behind.
const socket = "@railbed-rsh"

// script is the agent: it starts this executable, whose path a node may not see, in
// the agent's part. Of the shells it takes bash to choose argv[0].
func script() string {
	path, args := reexec.Again(reexec.Argv(agentPart))
	if path == reexec.Self {
		path = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	}
	return fmt.Sprintf("#!/bin/bash\nexec -a %s %s %s \"$@\"\n", args[0], path, strings.Join(args[1:], " "))
}

// relay is the process in a node that takes what agents ask for.
func relay([]string) int {
	err := relayAll()
	fmt.Fprintln(os.Stderr, "railbed rsh:", err)
	return 1
}

func relayAll() error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	// A link that somebody may have put there is not followed.
	if err := errors.Join(removed(Agent), os.WriteFile(Agent, []byte(script()), 0o755)); err != nil {
		return err
	}
	session, err := yamux.Client(os.NewFile(3, "channel"), sessionConfig())
	if err != nil {
		return err
	}
	ready, err := session.OpenStream()
	if err != nil {
		return err
	}
	defer ready.Close()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		stream, err := session.OpenStream()
		if err != nil {
			return err
		}
		go join(conn.(*net.UnixConn), stream)
	}
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// join carries bytes both ways until both ends are done.
func join(agent *net.UnixConn, stream *yamux.Stream) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(stream, agent)
		stream.Close() // half: what the command still says arrives
	})
	both.Go(func() {
		_, _ = io.Copy(agent, stream)
		agent.Close()
	})
	both.Wait()
}

// agent is what a launcher starts in place of a remote shell.
func agent(args []string) int {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = args[1:]
	}
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "railbed rsh: want HOST COMMAND...")
		return exitFailed
	}
	code, err := ask(request{Host: args[0], Command: strings.Join(args[1:], " ")})
	if err != nil {
		fmt.Fprintf(os.Stderr, "railbed rsh %s: %v\n", args[0], err)
	}
	return code
}

// ask has a command started and passes on what it writes, until it ends.
func ask(r request) (code int, err error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return exitFailed, err
	}
	defer conn.Close()
	if err := frame.NewWriter(conn).WriteJSON(frame.Message, r); err != nil {
		return exitFailed, err
	}
	frames := frame.NewReader(conn)
	for {
		kind, payload, err := frames.Read()
		if err != nil {
			return exitFailed, fmt.Errorf("the testbed hung up: %w", err)
		}
		switch kind {
		case frame.Stdout:
			_, _ = os.Stdout.Write(payload) // who reads it may be gone
		case frame.Stderr:
			_, _ = os.Stderr.Write(payload)
		case frame.Exit:
			var exit nodes.Exit
			if err := json.Unmarshal(payload, &exit); err != nil {
				return exitFailed, err
			}
			if exit.Signal != 0 {
				return 128 + int(exit.Signal), nil
			}
			return exit.Code, nil
		case frame.Failure:
			return exitFailed, errors.New(string(payload))
		}
	}
}
