package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testbed"
)

// forcedTime is how long a command that was interrupted twice may take to write its results, after
// the testbed for which it waited was killed.
const forcedTime = 3 * time.Second

// endSignals are the signals that end a command's context. A command that nohup started ignores SIGHUP.
var endSignals = func() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}()

// onInterrupt handles signals after the first Ctrl-C (or another of endSignals), which also ends the
// command's context. It prints first after the first signal and calls force at the second. It is active
// until stop is called, which waits for force. From now on, a closed pipe does not end the process.
//
// A SIGHUP is never the second signal. When a terminal is closed, the shell and the kernel may both send
// one, and systemd sends one beside SIGTERM.
func (a *app) onInterrupt(first string, force func()) (stop func()) {
	signals, done, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, endSignals...)
	surviveReaders()
	go func() {
		defer close(ended)
		said := false
		for count := 0; ; {
			select {
			case <-done:
				return
			case received := <-signals:
				if received != syscall.SIGHUP {
					count++
				}
			}
			if !said {
				said = true
				a.say("railbed: interrupted: %s; interrupt again to kill it", first)
			}
			if count == 2 {
				force()
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// killStarted kills the testbeds that the command has brought up, and ends the command if it then
// does not end by itself.
func (a *app) killStarted() {
	names, err := testbed.KillStarted()
	if err != nil {
		a.complain("railbed: ", err)
	}
	a.killed(names...)
	go func() {
		time.Sleep(forcedTime)
		a.say("railbed: ended %v after the second interrupt", forcedTime)
		os.Exit(verdict.ExitFail)
	}()
}

// killed reports testbeds whose supervisors were killed, and removes what the kernel does not
// remove.
func (a *app) killed(names ...string) {
	for _, name := range names {
		a.say("railbed: interrupted twice: killed the supervisor of testbed %s", name)
		if dir, err := rundir.Of(name); err == nil {
			_ = dir.WaitGone(forcedTime) // the sweep does not touch a testbed that still runs
		}
	}
	if len(names) > 0 {
		a.sweep(rundir.SweepOptions{Try: true})
	}
}

// surviveReaders makes writes to a standard output or error whose reader has gone return an error. Without it
// SIGPIPE ends the process at the first such write.
func surviveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
