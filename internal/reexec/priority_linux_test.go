package reexec

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// batchEnv has the test binary become a batch process.
const batchEnv = "RAILBED_TEST_BATCH"

// TestBatch: after Batch all threads are batch threads, including those that start later, with
// unchanged nice values. A thread with another policy keeps it.
func TestBatch(t *testing.T) {
	if os.Getenv(batchEnv) == "" {
		self := exec.Command("/proc/self/exe", "-test.run", "^TestBatch$")
		self.Env = append(os.Environ(), batchEnv+"=1")
		if out, err := self.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread() // whose nice value it is
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 3); err != nil {
		t.Fatal(err)
	}
	if !Batch() {
		t.Fatal("the kernel lets no process be one of batches")
	}
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(started)
		if err := policy(t, unix.Gettid(), unix.SCHED_BATCH); err != nil {
			t.Error(err)
		}
	}()
	<-started
	if err := EachThread(func(id int) error { return policy(t, id, unix.SCHED_BATCH) }); err != nil {
		t.Fatal(err)
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &idle, 0); err != nil {
		t.Fatal(err)
	}
	Batch()
	if err := policy(t, 0, unix.SCHED_IDLE); err != nil {
		t.Fatal(err)
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || 20-nice != 3 {
		t.Errorf("nice %d, %v; want 3", 20-nice, err)
	}
}

// policy judges the policy of a thread. It returns an error if there is no such thread.
func policy(t *testing.T, thread int, want uint32) error {
	t.Helper()
	a, err := unix.SchedGetAttr(thread, 0)
	if err == nil && a.Policy != want {
		t.Errorf("thread %d: %+v; want policy %d", thread, a, want)
	}
	return err
}
