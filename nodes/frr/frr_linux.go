package frr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"railbed/nodes"
	"railbed/plan"
)

// daemonDir is the directory of the daemons in Debian's and FRRouting's own packages.
const daemonDir = "/usr/lib/frr"

// runDir is the directory of the daemons' sockets, in which vtysh looks for them. It is in the
// node's own /run, which no other router sees.
const runDir = "/run/frr"

// Router holds the daemons of one router. They end with its node.
type Router struct {
	name    string
	node    nodes.Node
	routing *plan.Routing
	ended   chan End
}

// End describes the end of a daemon.
type End struct {
	Daemon string
	At     time.Time
	how    string // the exit code or the signal
	words  []func() string
}

// How is the exit code or the signal, with the daemon's last output and the end of its log, which
// How reads from the node.
func (e End) How() string {
	how := e.how
	for _, words := range e.words {
		if said := strings.Join(strings.Fields(words()), " "); said != "" {
			how += ": " + said
		}
	}
	return how
}

// Start starts the daemons of a router in its node. ctx bounds the start.
func Start(ctx context.Context, node nodes.Node, sw *plan.Switch) (*Router, error) {
	r := &Router{name: sw.Name, node: node, routing: sw.Routing,
		ended: make(chan End, len(sw.Routing.Daemons()))}
	// The daemons leave folders for their last words in /var/tmp, by process id. Process ids are
	// the node's own. Without the mount, daemons of different nodes would share folders, and some
	// folders would stay on the host.
	prepare := "mount -t tmpfs -o size=16m,mode=1777 tmpfs /var/tmp && umask 027 && mkdir -p " + runDir +
		" && chown frr:frr " + runDir
	if err := r.shell(ctx, prepare, ""); err != nil {
		return nil, err
	}
	configs := map[string]string{"zebra": zebraConfig(sw), "bgpd": bgpdConfig(sw),
		"bfdd": "frr defaults datacenter\n"}
	for _, name := range sw.Routing.Daemons() {
		file := runDir + "/" + name + ".conf"
		if err := r.shell(ctx, "umask 027; cat > "+file+" && chgrp frr "+file, configs[name]); err != nil {
			return nil, err
		}
		if err := r.daemon(ctx, name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Name is the router's name in the plan.
func (r *Router) Name() string { return r.name }

// SlowSessions counts the BFD sessions that would not notice a dead neighbour in the plan's time,
// or 0 without BFD. A session comes up at one packet a second and negotiates the requested interval
// afterwards (RFC 5880, 6.8.3).
func (r *Router) SlowSessions(ctx context.Context) (int, error) {
	if r.routing.BFD == 0 {
		return 0, nil
	}
	// bfdd prints one field a line. While bfdd starts, vtysh fails and all sessions count as slow.
	script := fmt.Sprintf(`vtysh -d bfdd -c "show bfd peers json" 2>/dev/null |
awk '/"status": *"up"/ {up = 1} /"status": *"[^u]/ {up = 0} /"remote-transmit-interval": *%d,/ {fast += up} END {print fast + 0}'`,
		r.routing.BFD.Milliseconds())
	said, process, err := r.start(ctx, []string{"sh", "-c", script}, nil)
	if err != nil {
		return 0, fmt.Errorf("ask bfdd of %s: %w", r.name, err)
	}
	if _, err := process.Wait(); err != nil {
		return 0, fmt.Errorf("ask bfdd of %s: %w", r.name, err)
	}
	fast, err := strconv.Atoi(said())
	if err != nil {
		return 0, fmt.Errorf("ask bfdd of %s: %w", r.name, err)
	}
	return max(0, len(r.routing.Peers)-fast), nil
}

// shell runs a script in the node until its end.
func (r *Router) shell(ctx context.Context, script, input string) error {
	stdin, feed, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("prepare routing daemons of %s: %w", r.name, err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.WriteString(feed, input)
		feed.Close()
	})
	said, process, err := r.start(ctx, []string{"sh", "-c", script}, stdin)
	stdin.Close()
	if err == nil {
		var exit nodes.Exit
		if exit, err = process.Wait(); err == nil && (exit.Code != 0 || exit.Signal != 0) {
			err = fmt.Errorf("exit code %d: %s", exit.Code, said())
		}
	}
	group.Wait()
	if err != nil {
		return fmt.Errorf("prepare routing daemons of %s: %w", r.name, err)
	}
	return nil
}

// daemon starts a daemon and watches it, and any replacement that a user starts. Daemons that need
// zebra wait until it listens: otherwise they would retry only seconds later.
func (r *Router) daemon(ctx context.Context, name string) error {
	wait := ""
	if name != "zebra" {
		wait = "until [ -S " + runDir + "/zserv.api ]; do sleep 0.02; done; "
	}
	script := fmt.Sprintf("%sexec %s/%s -f %s/%s.conf --log file:%s/%s.log", wait, daemonDir, name, runDir,
		name, runDir, name)
	said, process, err := r.start(ctx, []string{"sh", "-c", script}, nil)
	if err != nil {
		return fmt.Errorf("start %s of %s: %w", name, r.name, err)
	}
	go func() {
		exit, err := process.Wait()
		end := End{Daemon: name, At: time.Now(), how: fmt.Sprintf("exit code %d", exit.Code),
			words: []func() string{said, func() string {
				return r.logEnd(name)
			}}}
		switch {
		case err != nil:
			end.how = err.Error()
		case exit.Signal != 0:
			end.how = fmt.Sprintf("signal %d (%v)", exit.Signal, exit.Signal)
		}
		r.ended <- end
		for r.again(name) {
			r.ended <- End{Daemon: name, At: time.Now(), how: "exit code unknown (restarted by hand)",
				words: end.words[1:]}
		}
	}()
	return nil
}

// again waits until an ended daemon was started again and has ended again. It returns false if the
// node has ended. The daemons write their process ids to files.
func (r *Router) again(name string) bool {
	script := fmt.Sprintf(`until read -r pid < %s/%s.pid && [ "$(readlink /proc/$pid/exe)" = %s/%s ]; do sleep 0.1; done 2>/dev/null
exec tail --pid=$pid -s 0.05 -f /dev/null`, runDir, name, daemonDir, name)
	_, process, err := r.start(context.Background(), []string{"sh", "-c", script}, nil)
	if err != nil {
		return false
	}
	exit, err := process.Wait()
	return err == nil && exit == nodes.Exit{}
}

// logEnd returns the end of a daemon's log, if it can be read.
func (r *Router) logEnd(name string) string {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	said, process, err := r.start(ctx, []string{"tail", "-n", "2", runDir + "/" + name + ".log"}, nil)
	if err != nil {
		return ""
	}
	if exit, err := process.Wait(); err != nil || exit != (nodes.Exit{}) {
		return ""
	}
	return said()
}

// Ended reports the daemons that have ended, with the exit code or signal of each. The router then
// keeps its last routes. A daemon that a user starts again is reported again when it ends.
func (r *Router) Ended() <-chan End { return r.ended }

// maxSaid bounds how many bytes of a program's last output are kept.
const maxSaid = 4 << 10

// start starts a command and keeps its last output.
func (r *Router) start(ctx context.Context, args []string, stdin *os.File) (said func() string,
	process nodes.Process, err error) {
	out, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer write.Close()
	process, err = r.node.Start(ctx, nodes.Command{Args: args, Stdin: stdin, Stdout: write, Stderr: write})
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	var words bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer out.Close()
		buffer := make([]byte, maxSaid)
		for {
			n, err := out.Read(buffer)
			words.Write(buffer[:n])
			if over := words.Len() - maxSaid; over > 0 {
				words.Next(over)
			}
			if err != nil {
				return
			}
		}
	}()
	return func() string {
		select {
		case <-done:
			return strings.TrimSpace(words.String())
		case <-time.After(time.Second): // a process that it left behind has the pipe
			return ""
		}
	}, process, nil
}
