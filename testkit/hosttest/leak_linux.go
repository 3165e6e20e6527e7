package hosttest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leakGrace is how long a resource that a test closed may take to disappear, such as a process that
// is being reaped or a goroutine that is returning.
const leakGrace = 3 * time.Second

// Main runs the tests and returns the exit code, for
//
//	func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
//
// Main fails the binary if the tests left goroutines, descriptors, child processes, links in the
// network namespace or mounts behind. It prints each with the stack where it runs or was made, if
// the system can show it. Links and mounts of a test that runs under InUserNS may stay: they end
// with its namespaces.
func Main(m *testing.M) int {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		// The code under test has called its own executable. Run would run every test meanwhile.
		fmt.Fprintf(os.Stderr, "a test binary was called as a program: %q\n", os.Args)
		return 2
	}
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup, the programs of tests would ignore the signal, too. They get the default of a signal
		// that this process catches.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	takeCensus := takeCensus
	if os.Getenv(stageEnv) == stageInside {
		takeCensus = takeProcessCensus
	}
	before := takeCensus()
	code := m.Run()
	if code != 0 {
		return code // a failed test may leave resources behind; only its own message counts
	}
	if left := leftBehind(before, takeCensus, leakGrace); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the tests left behind:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	return 0
}

// census lists the resources of the process: a text for people by kind and identity.
type census map[string]string

// leftBehind returns the resources that still exist after the grace period and did not exist
// before.
func leftBehind(before census, take func() census, grace time.Duration) []string {
	for deadline := time.Now().Add(grace); ; time.Sleep(20 * time.Millisecond) {
		left := take()
		maps.DeleteFunc(left, func(identity, _ string) bool { _, was := before[identity]; return was })
		if len(left) == 0 || time.Now().After(deadline) {
			return slices.Sorted(maps.Values(left))
		}
	}
}

func takeCensus() census {
	found := takeProcessCensus()
	found.links()
	found.mounts()
	return found
}

// takeProcessCensus omits resources of namespaces: links and mounts.
func takeProcessCensus() census {
	found := census{}
	found.goroutines()
	found.descriptors()
	found.children()
	found.threads()
	return found
}

// systemGoroutine matches goroutines that belong to the process and not to a test: the goroutine
// that takes the census and the runtime's signal reader.
var systemGoroutine = regexp.MustCompile(
	`hosttest\.takeProcessCensus|os/signal\.signal_recv|os/signal\.loop|runtime\.ensureSigM`)

var goroutineHeader = regexp.MustCompile(`^goroutine (\d+) `)

func (c census) goroutines() {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		header := goroutineHeader.FindStringSubmatch(stack)
		if header == nil || systemGoroutine.MatchString(stack) {
			continue
		}
		c["goroutine "+header[1]] = strings.TrimSpace(stack)
	}
}

// descriptors omits the runtime's own descriptors: those of the poller appear with the first use of
// a pipe or socket and stay.
func (c census) descriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		switch {
		case err != nil: // the descriptor of the ReadDir itself
		case target == "anon_inode:[eventpoll]", target == "anon_inode:[eventfd]":
		default:
			c["fd "+entry.Name()+" "+target] = "descriptor " + entry.Name() + ": " + target
		}
	}
}

func (c census) children() {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// proc(5): pid (comm) state ppid; comm may hold spaces and brackets.
		pid, rest, _ := strings.Cut(string(stat), " (")
		end := strings.LastIndex(rest, ") ")
		if end < 0 {
			continue
		}
		fields := strings.Fields(rest[end+2:])
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		// The first process of a PID namespace is the parent of every orphan, and none of its tests waits
		// for them.
		if fields[0] == "Z" && os.Getpid() == 1 {
			continue
		}
		command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		c["process "+pid] = fmt.Sprintf("process %s (%s) in state %s: %s", pid, rest[:end], fields[0],
			strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " "))
	}
}

// threads finds OS threads that stayed in another network namespace.
func (c census) threads() {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, task := range tasks {
		if space, err := os.Readlink(task); err == nil && space != home {
			c["thread "+task] = fmt.Sprintf("thread %s is in %s, the process in %s", task, space, home)
		}
	}
}

func (c census) links() {
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	for _, link := range links {
		c["link "+strconv.Itoa(link.Index)+" "+link.Name] = fmt.Sprintf("link %d: %s", link.Index, link.Name)
	}
}

func (c census) mounts() {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(table)) {
		// proc(5): mount ID, parent ID, device, root, mount point, ...
		if fields := strings.Fields(line); len(fields) > 4 {
			c["mount "+fields[0]+" "+fields[4]] = "mount: " + strings.TrimSpace(line)
		}
	}
}
