package live

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"railbed/internal/reexec"
)

const ownTablePart = "own-table"

// ownTableMain is a process that collects its garbage from a thread with its own
// table of descriptors, once Go's runtime polls files elsewhere.
func ownTableMain([]string) int {
	ready, polling, done := make(chan error), make(chan bool), make(chan bool)
	go func() {
		ready <- ownTable(200, 201)
		<-polling
		for range 100 {
			runtime.GC()
		}
		close(done)
	}()
	if <-ready != nil {
		return 2
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return 2
	}
	go func() { _, _ = reader.Read(make([]byte, 1)) }() // polls until the process ends
	close(polling)
	<-done
	writer.Close()
	return 0
}

// A thread with its own table of descriptors does all that Go's runtime requires of it.
func TestOwnTableHasTheRuntimesPoller(t *testing.T) {
	command := exec.Command(reexec.Self)
	command.Args = reexec.Argv(ownTablePart)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("a process that collects garbage from such a thread: %v\n%.600s", err, out)
	}
}
