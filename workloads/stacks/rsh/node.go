package rsh

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/yamux"

	"railbed/internal/frame"
	"railbed/internal/peer"
	"railbed/internal/reexec"
	"railbed/nodes"
)

// socket is an abstract address. It belongs to the node's network namespace and leaves no file.
const socket = "@railbed-rsh"

// script returns the agent: a script that starts this executable in the agent's part and passes the
// relay's identity to it. A node may not see the executable's path. The script needs bash, the
// shell that can set argv[0].
func script() string {
	path, args := reexec.Again(reexec.Argv(agentPart, strconv.Itoa(os.Getpid()), strconv.Itoa(os.Geteuid())))
	if path == reexec.Self {
		path = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	}
	return fmt.Sprintf("#!/bin/bash\nexec -a %s %s %s \"$@\"\n", args[0], path, strings.Join(args[1:], " "))
}

// relay is the process in a node that accepts the agents' requests. Its argument is the user of the
// node's commands.
func relay(args []string) int {
	err := relayAll(args)
	fmt.Fprintln(os.Stderr, "railbed rsh:", err)
	return 1
}

func relayAll(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("relay: %d arguments, want one: the user of the node's commands", len(args))
	}
	user, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("relay: user %q: %w", args[0], err)
	}
	listener, err := net.Listen("unix", socket)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another MPI job runs in this node, or a program uses this address", err)
	}
	if err != nil {
		return err
	}
	if err := writeAgent(); err != nil {
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
		if err := peer.OfUsers(conn.(*net.UnixConn), os.Geteuid(), user); err != nil {
			_ = frame.NewWriter(conn).Write(frame.Failure, []byte(err.Error())) // the program may have ended
			conn.Close()
			continue
		}
		stream, err := session.OpenStream()
		if err != nil {
			return err
		}
		go join(conn.(*net.UnixConn), stream)
	}
}

// writeAgent writes the agent to its path. Every program in the node can write to that directory.
// So writeAgent writes a new file and renames it over any file of that name.
func writeAgent() error {
	file, err := os.CreateTemp(filepath.Dir(Agent), filepath.Base(Agent)+"-*")
	if err != nil {
		return err
	}
	_, err = file.WriteString(script())
	if err = errors.Join(err, file.Chmod(0o755), file.Close()); err == nil {
		err = os.Rename(file.Name(), Agent)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// join copies bytes in both directions until both ends are done.
func join(agent *net.UnixConn, stream *yamux.Stream) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(stream, agent)
		stream.Close() // half-close: the command's remaining output still arrives
	})
	both.Go(func() {
		_, _ = io.Copy(agent, stream)
		agent.Close()
	})
	both.Wait()
}

// agent runs in place of a remote shell. Its arguments are the relay's process and user, which the
// script passes, and the launcher's arguments.
func agent(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "railbed rsh: want the relay's process and user from the script", Agent)
		return exitFailed
	}
	pid, pidErr := strconv.Atoi(args[0])
	uid, uidErr := strconv.Atoi(args[1])
	if err := errors.Join(pidErr, uidErr); err != nil {
		fmt.Fprintln(os.Stderr, "railbed rsh: read the relay's process and user from the script:", err)
		return exitFailed
	}
	for args = args[2:]; len(args) > 0 && strings.HasPrefix(args[0], "-"); {
		args = args[1:]
	}
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "railbed rsh: want HOST COMMAND...")
		return exitFailed
	}
	code, err := ask(request{Host: args[0], Command: strings.Join(args[1:], " ")},
		peer.Credentials{PID: pid, UID: uid})
	if err != nil {
		fmt.Fprintf(os.Stderr, "railbed rsh %s: %v\n", args[0], err)
	}
	return code
}

// ask requests a command from the relay and passes on the command's output, until the command ends.
// It sends no command to a server that is not the relay.
func ask(r request, relay peer.Credentials) (code int, err error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return exitFailed, err
	}
	defer conn.Close()
	server, err := peer.Of(conn.(*net.UnixConn))
	if err != nil {
		return exitFailed, err
	}
	if server != relay {
		return exitFailed, fmt.Errorf("%s belongs to process %d of user %d, want the testbed's relay, "+
			"process %d of user %d; end process %[2]d",
			socket, server.PID, server.UID, relay.PID, relay.UID)
	}
	unsent := frame.NewWriter(conn).WriteJSON(frame.Message, r) // the relay may have refused before it reads
	frames := frame.NewReader(conn)
	for {
		kind, payload, err := frames.Read()
		if err != nil {
			return exitFailed, fmt.Errorf("the connection to the testbed ended: %w", cmp.Or(unsent, err))
		}
		switch kind {
		case frame.Stdout:
			_, _ = os.Stdout.Write(payload) // the reader may have ended
		case frame.Stderr:
			_, _ = os.Stderr.Write(payload)
		case frame.Exit:
			var exit nodes.Exit
			if err := json.Unmarshal(payload, &exit); err != nil {
				return exitFailed, err
			}
			return exit.Code, nil
		case frame.Failure:
			return exitFailed, errors.New(string(payload))
		}
	}
}
