package cli_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

// goneWithin is how soon after a kill nothing may be left (DESIGN.md §2).
const goneWithin = 2 * time.Second

// moments is the number of random moments that TestKill tries at each size. With RAILBED_MOMENTS
// set to few, as in CI, it tries a fifth of them, and CI draws others each time. Kernel switches
// have fewer, because they have no process of their own that could be killed late.
const moments, routerMoments = 50, 15

// TestKill kills the supervisor, the command, or both, at random moments of up, run and down, and
// checks from outside that nothing is left. Its oracle can fail: a veth from the testbed into a
// watching namespace.
func TestKill(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Netns, hosttest.Ping)
	for _, size := range []struct {
		kind  string
		nodes int
		file  string
	}{
		{"soft", 8, killFile(8, "soft")}, {"soft", 256, killFile(256, "soft")},
		{"router", 8, killFile(8, "router")}, {"router", 256, killFile(256, "router")},
	} {
		t.Run(fmt.Sprintf("%s/nodes=%d", size.kind, size.nodes), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kill.yaml")
			if err := os.WriteFile(file, []byte(size.file), 0o644); err != nil {
				t.Fatal(err)
			}
			count := moments
			if size.kind == "router" {
				count = routerMoments
			}
			if testing.Short() {
				count = 6
			} else if hosttest.FewMoments() {
				count /= 5
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			draw := rand.New(rand.NewPCG(seed, 0))
			span := operationTimes(t, file)
			attached := 0
			for i := range count {
				trial := newTrial(t, draw, span, i, file)
				if err := trial.run(t); err != nil {
					t.Errorf("%v: %v", trial, err)
				}
				if trial.watch.attached {
					attached++
				}
			}
			// Early kills leave no time to attach; most must have been watched.
			t.Logf("the watcher had links into %d of %d testbeds", attached, count)
			if attached < count/2 {
				t.Errorf("the watcher had links into %d of %d testbeds only: the oracle saw too little",
					attached, count)
			}
		})
	}
}

// mark is an argument by which this test knows its own processes wherever they
// end up, while other tests run beside it.
var mark = fmt.Sprintf("4242.%d", os.Getpid())

func killFile(nodes int, kind string) string {
	leaves, spines := 2, 2
	if nodes > 8 {
		leaves, spines = 16, 4
	}
	return fmt.Sprintf(`name: kill-%s-%d
fabric:
  topology: leaf-spine
  params: {leaves: %d, spines: %d, hosts-per-leaf: %d}
  switch: {kind: %s}
nodes: {h0: {cpu: 0.5, memory: 256MiB}}
steps:
  - exec: {nodes: [h0, h1], command: [sh, -c, "setsid sleep %s & ping -q -i 0.002 -c 2000 h2"]}
`, kind, nodes, leaves, spines, nodes/leaves, kind, mark)
}

// trial is one kill.
type trial struct {
	file, name string
	operation  string // up, run, down
	victim     string // supervisor, command, both
	after      time.Duration

	watch      *watch
	before     census
	supervisor int // process id, 0 when none was seen
}

func (k *trial) String() string {
	return fmt.Sprintf("%s of %s killed %v into %s", k.victim, k.name, k.after, k.operation)
}

func newTrial(t *testing.T, draw *rand.Rand, span map[string]time.Duration, i int, file string) *trial {
	operations, victims := []string{"up", "run", "down"}, []string{"supervisor", "command", "both"}
	k := &trial{file: file, operation: operations[i%3], victim: victims[i/3%3], watch: newWatch(t)}
	k.name = strings.TrimSuffix(strings.TrimPrefix(strings.SplitN(readFile(t, file), "\n", 2)[0], "name: "),
		"\n")
	k.after = time.Duration(draw.Int64N(int64(span[k.operation]) * 11 / 10))
	return k
}

// operationTimes runs each operation once undisturbed and returns how long it
// took, so that the random moments cover it.
func operationTimes(t *testing.T, file string) map[string]time.Duration {
	span := make(map[string]time.Duration)
	for _, operation := range []string{"up", "down"} {
		start := time.Now()
		if output, err := command(operation, file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", operation, err, output)
		}
		span[operation] = time.Since(start)
	}
	span["run"] = span["up"] + time.Second // into the traffic
	return span
}

func (k *trial) run(t *testing.T) error {
	k.before = takeCensus(t)
	var out string
	if k.operation == "down" {
		if output, err := command("up", k.file).CombinedOutput(); err != nil {
			return fmt.Errorf("up: %w\n%s", err, output)
		}
		supervisor := supervisorOf(k.name)
		if err := k.watch.attach(supervisor); err != nil {
			return fmt.Errorf("attach the watcher: %w", err)
		}
		for _, node := range []string{"h0", "h1"} {
			script := "setsid sleep " + mark + " & setsid ping -q -i 0.002 -c 20000 h2 & sleep 0.05"
			if output, err := command("exec", node, "--testbed", k.name, "--", "sh", "-c",
				script).CombinedOutput(); err != nil {
				return fmt.Errorf("start traffic: %w\n%s", err, output)
			}
		}
	}
	args := []string{k.operation, k.file}
	if k.operation == "run" {
		out = filepath.Join(t.TempDir(), "out")
		args = append(args, "--out", out)
	}
	cmd := command(args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(k.after)
	k.supervisor = k.watchUntil(deadline)
	killed := time.Now()
	if k.supervisor > 0 && k.victim != "command" {
		syscall.Kill(k.supervisor, syscall.SIGKILL)
	}
	if k.victim != "supervisor" {
		cmd.Process.Kill()
	}
	cmd.Wait() // however it ended, the test judges the testbed
	return k.judge(t, killed)
}

// watchUntil attaches the watcher as soon as there is a supervisor, and
// returns its process id, 0 when there is none at the deadline.
func (k *trial) watchUntil(deadline time.Time) (supervisor int) {
	for {
		if supervisor == 0 {
			supervisor = supervisorOf(k.name)
		}
		if supervisor > 0 && !k.watch.attached {
			// It may be gone again, or not far enough: tried until it works.
			_ = k.watch.attach(supervisor)
		}
		if supervisor > 0 {
			k.watch.note(supervisor)
		}
		if left := time.Until(deadline); left <= 0 {
			return supervisor
		} else {
			time.Sleep(min(left, time.Millisecond))
		}
	}
}

// judge looks until nothing is left, for goneWithin at most.
func (k *trial) judge(t *testing.T, killed time.Time) error {
	// A command that was killed after its up was answered, or before its down
	// was asked, leaves a testbed that is up, rightly.
	if k.operation != "run" && stillUp(k.name) {
		if output, err := command("down", k.name).CombinedOutput(); err != nil {
			return fmt.Errorf("down of what is up rightly: %w\n%s", err, output)
		}
		killed = time.Now()
	}
	var err error
	for {
		if err = k.left(t); err == nil {
			break
		}
		if time.Since(killed) > goneWithin {
			return fmt.Errorf("%v after the kill: %w", time.Since(killed).Round(time.Millisecond), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if output, err := command("gc").CombinedOutput(); err != nil {
		return fmt.Errorf("gc: %w\n%s", err, output)
	}
	return k.filesLeft()
}

// stillUp reports whether a testbed stays up, as opposed to being on its way down.
func stillUp(name string) bool {
	time.Sleep(20 * time.Millisecond)
	dir, err := rundir.Of(name)
	if err != nil || !dir.Running() {
		return false
	}
	return command("ls").Run() == nil && command("events", "--testbed", name).Run() == nil && dir.Running()
}

// left returns an error if parts of the testbed still exist in the kernel.
func (k *trial) left(t *testing.T) error {
	if links := k.watch.links(); len(links) > 0 {
		return fmt.Errorf("the watcher still has links into the testbed: %v", links)
	}
	// A process that is being killed gives up its namespaces a moment before
	// its descriptors, and with them the lock that gc asks for.
	if k.supervisor > 0 && alive(k.supervisor) {
		return fmt.Errorf("supervisor %d is still there", k.supervisor)
	}
	if holders := k.watch.holders(k.name); len(holders) > 0 {
		return fmt.Errorf("processes still hold its namespaces: %v", holders)
	}
	return k.before.compare(takeCensus(t))
}

// filesLeft returns an error if parts of the testbed still exist in file systems.
func (k *trial) filesLeft() error {
	dir, err := rundir.Of(k.name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is left after gc", dir.Path)
	}
	names, _ := filepath.Glob("/run/netns/" + k.name + "-*")
	cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/railbed*/" + k.name)
	unified, _ := filepath.Glob("/sys/fs/cgroup/railbed*/" + k.name)
	kept, _ := filepath.Glob(filepath.Join(filepath.Dir(dir.Path), ".aborted", k.name+"-*"))
	if left := slices.Concat(names, cgroups, unified, kept); len(left) > 0 {
		return fmt.Errorf("left after gc: %v", left)
	}
	return nil
}

// supervisorOf finds the supervisor of a testbed by its argument vector.
func supervisorOf(name string) int {
	want := "railbed:supervisor\x00" + name + "\x00"
	for _, pid := range processes() {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
			string(line) == want {
			return pid
		}
	}
	return 0
}

// alive tells a process from a zombie and from nothing. The leader of threads
// that are still ending looks like a zombie, too.
func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return !strings.Contains(string(status), "State:\tZ") || len(threads) > 1
}

func processes() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// watch is the observer: a namespace with links into the testbed, and the
// identities of the namespaces that it has seen the testbed hold.
type watch struct {
	namespace *kernel.Namespace
	attached  bool
	seen      map[string]bool // "net:[4026532456]"
	own       map[string]bool
}

func newWatch(t *testing.T) *watch {
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	w := &watch{namespace: namespace, seen: make(map[string]bool), own: make(map[string]bool)}
	for _, link := range readLinks("/proc/self/ns") {
		w.own[link] = true
	}
	return w
}

func readLinks(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var links []string
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// note remembers the namespaces that the supervisor holds now.
func (w *watch) note(supervisor int) {
	base := fmt.Sprintf("/proc/%d", supervisor)
	for _, link := range append(readLinks(base+"/ns"), readLinks(base+"/fd")...) {
		if strings.Contains(link, ":[") && !strings.HasPrefix(link, "pipe") &&
			!strings.HasPrefix(link, "socket") &&
			!strings.HasPrefix(link, "anon_inode") && !w.own[link] {
			w.seen[link] = true
		}
	}
}

// attach makes veths from the watching namespace into the supervisor's own
// network namespace and into two that it holds.
func (w *watch) attach(supervisor int) error {
	w.note(supervisor)
	targets := []string{fmt.Sprintf("/proc/%d/ns/net", supervisor)}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", supervisor))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := fmt.Sprintf("/proc/%d/fd/%s", supervisor, entry.Name())
		if link, _ := os.Readlink(path); strings.HasPrefix(link, "net:") && !w.own[link] && len(targets) < 3 {
			targets = append(targets, path)
		}
	}
	return w.namespace.Do(func() error {
		for i, target := range targets {
			line := []string{"link", "add", fmt.Sprintf("watch%d", i), "type", "veth", "peer", "name",
				"watched", "netns", target}
			if output, err := exec.Command("ip", line...).CombinedOutput(); err != nil {
				if i > 0 {
					break // one is enough; this one came too early
				}
				return fmt.Errorf("ip %v: %w: %s", line, err, output)
			}
			w.attached = true
		}
		return nil
	})
}

func (w *watch) links() []string {
	var names []string
	err := w.namespace.Do(func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			if strings.HasPrefix(link.Name, "watch") {
				names = append(names, link.Name)
			}
		}
		return err
	})
	if err != nil {
		return []string{err.Error()}
	}
	return names
}

// holders returns the processes that have a namespace link or a descriptor into the testbed. A zombie
// has neither: it is a number that waits for its parent, which after the command's death is the host's
// init. The kernel gives the numbers of freed namespaces to new ones. So processes of other testbeds,
// which may start beside this test, do not count.
func (w *watch) holders(testbed string) []string {
	var holders []string
	for _, pid := range processes() {
		base := fmt.Sprintf("/proc/%d", pid)
		if !alive(pid) {
			continue
		}
		for _, link := range append(readLinks(base+"/ns"), readLinks(base+"/fd")...) {
			if w.seen[link] {
				if other := testbedOf(pid); other == "" || other == testbed {
					line, _ := os.ReadFile(base + "/cmdline")
					holders = append(holders, fmt.Sprintf("%d %q %s", pid,
						strings.ReplaceAll(string(line), "\x00", " "), link))
				}
				break
			}
		}
	}
	return holders
}

// testbedOf returns the name of the testbed whose supervisor is a process or one of its ancestors, or "".
// The processes of a supervisor that has ended have no such ancestor.
func testbedOf(pid int) string {
	for pid > 1 {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if name, is := strings.CutPrefix(string(line), "railbed:supervisor\x00"); is {
			return strings.TrimRight(name, "\x00")
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(after) < 2 {
			return ""
		}
		pid, _ = strconv.Atoi(after[1])
	}
	return ""
}

// census is the state of the host: links, mounts, and the processes that this test made. Other
// processes come and go on a machine that is in use.
type census struct {
	links, mounts, processes []string
}

func takeCensus(t *testing.T) census {
	t.Helper()
	var c census
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		c.links = append(c.links, link.Name)
	}
	c.mounts = strings.Split(readFile(t, "/proc/self/mountinfo"), "\n")
	for _, pid := range processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "sleep\x00"+mark) ||
			strings.Contains(string(line), "railbed:supervisor\x00kill") {
			c.processes = append(c.processes, fmt.Sprintf("%d %q", pid, line))
		}
	}
	slices.Sort(c.links)
	slices.Sort(c.mounts)
	return c
}

func (c census) compare(now census) error {
	var failures error
	for _, kind := range []struct {
		name        string
		before, now []string
	}{{"links", c.links, now.links}, {"mounts", c.mounts, now.mounts},
		{"processes", c.processes, now.processes}} {
		for _, entry := range kind.now {
			if !slices.Contains(kind.before, entry) {
				failures = errors.Join(failures,
					fmt.Errorf("the host has one of its %s more: %s", kind.name, entry))
			}
		}
		for _, entry := range kind.before {
			if kind.name != "processes" && !slices.Contains(kind.now, entry) {
				failures = errors.Join(failures,
					fmt.Errorf("the host has lost one of its %s: %s", kind.name, entry))
			}
		}
	}
	return failures
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
