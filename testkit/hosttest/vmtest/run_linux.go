package vmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/frame"
	guest "railbed/internal/vmimage"
	"railbed/testkit/hosttest"
)

// Options configure a guest. The zero value is a guest with one processor, 512 MiB, only the
// modules that it boots with, and two minutes.
type Options struct {
	// Modules of the kernel are loaded before the program starts, each after its dependencies. A
	// guest loads no module by itself. So a module that another module requests by function must be
	// named, too: rdma_rxe needs crc32_generic. A module that is built into the kernel may be
	// named.
	Modules []string
	// Dirs are further directories of the host, which the guest sees read-only at the same path.
	Dirs []string
	// Env is added to the program's environment, as KEY=value.
	Env []string
	// CPUs is the number of processors, 1 if it is 0.
	CPUs int
	// Instructions makes the guest's clock advance by a nanosecond with each instruction, however
	// long the host takes for it. Measurements in the guest then do not depend on how busy the host
	// is.
	Instructions bool
	// MemoryMiB is the guest's memory, 512 if it is 0.
	MemoryMiB int
	// Timeout limits the guest's run, booting included; two minutes if it is 0.
	Timeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = 512
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	return o
}

// Self is the path of the test binary in a guest.
const Self = "/test"

// Result is the result of a program in a guest.
type Result struct {
	// Code is the program's exit code, or 128 plus the signal's number if a signal ended it.
	Code int
	// Output is the program's output on stdout and stderr.
	Output []byte
}

// Run boots a guest, runs the program in it as root in the directory of the test, and ends the
// guest. It skips the test if the host cannot run a guest. It fails the test if the guest does not
// boot or the program does not end in time. Each call boots a guest of its own, in six seconds on
// an idle machine.
func Run(t testing.TB, o Options, argv ...string) Result {
	t.Helper()
	hosttest.Need(t, hosttest.VM)
	o = o.withDefaults()
	result, err := run(t.TempDir(), o, argv)
	if err != nil {
		t.Fatalf("in a VM: %v\n%s", err, result.Output)
	}
	return result
}

// skipLine matches hosttest.Need's message about a skipped test.
var skipLine = regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: (cannot run here: .*)$`)

// InGuest runs the calling test a second time, alone, as root of a guest. It returns true in the
// second run. In the first process it returns false once the second run has ended, and marks the
// test as failed or skipped as the second was. So a test begins:
//
//	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"sch_netem"}}) {
//		return
//	}
//
// It is for top-level tests. RAILBED_REQUIRE applies in the guest, too.
func InGuest(t *testing.T, o Options) bool {
	t.Helper()
	if os.Getenv(stageEnv) == stageInside {
		return true
	}
	o = o.withDefaults()
	o.Env = append(slices.Clone(o.Env), "RAILBED_REQUIRE="+os.Getenv("RAILBED_REQUIRE"),
		"RAILBED_SAMPLE="+os.Getenv("RAILBED_SAMPLE"), "RAILBED_LONG="+os.Getenv("RAILBED_LONG"))
	result := Run(t, o, Self, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1",
		"-test.timeout="+o.Timeout.String())
	if result.Code != 0 {
		t.Fatalf("in a VM: exit status %d\n%s", result.Code, result.Output)
	}
	if testing.Verbose() {
		t.Logf("in a VM:\n%s", result.Output)
	}
	if skipped := skipLine.FindSubmatch(result.Output); skipped != nil {
		t.Skip("in a VM: " + string(skipped[1]))
	}
	if !bytes.Contains(result.Output, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("in a VM: the test did not run\n%s", result.Output)
	}
	return false
}

// run boots a guest with files in the given directory.
func run(dir string, o Options, argv []string) (Result, error) {
	image, err := buildImage(o, argv)
	if err != nil {
		return Result{}, err
	}
	initrd, console := filepath.Join(dir, "initrd"), filepath.Join(dir, "console")
	if err := os.WriteFile(initrd, image.archive, 0o600); err != nil {
		return Result{}, err
	}
	// The kernel sends the parent-death signal when the thread that started
	// the child ends; this keeps the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.Timeout,
		fmt.Errorf("not done after %s", o.Timeout))
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", qemuArgs(o, image, initrd, console)...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints bytes.Buffer
	qemu.Stderr = &complaints
	stdout, err := qemu.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	// The end of the input would close the channel for the guest, too. The pipe keeps the input
	// open until Wait closes it.
	if _, err := qemu.StdinPipe(); err != nil {
		return Result{}, err
	}
	if err := qemu.Start(); err != nil {
		return Result{}, err
	}
	result, err := collect(stdout)
	if err != nil {
		_, _ = io.Copy(io.Discard, stdout) // until the guest is gone; QEMU's exit shows the rest
	}
	ended := qemu.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err = errors.Join(err, ended); err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, &complaints, tail(console))
	}
	return result, err
}

// qemuArgs describes the machine: only the devices named here, and none that reaches outside the
// machine.
func qemuArgs(o Options, image image, initrd, console string) []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "pc", "-accel", "tcg", "-cpu", guest.EmulatedProcessor,
		"-m", strconv.Itoa(o.MemoryMiB), "-smp", strconv.Itoa(o.CPUs),
		"-kernel", image.kernel, "-initrd", initrd,
		// The kernel passes unknown parameters to the first process. With panic=-1 it restarts at a
		// panic, which ends QEMU.
		"-append", "console=ttyS0 panic=-1 mitigations=off " + stageEnv + "=" + stageInit,
		"-chardev", "file,id=console,path=" + escape(console), "-serial", "chardev:console",
		"-chardev", "stdio,id=channel,signal=off", "-device", "virtio-serial-pci", "-device",
		"virtserialport,chardev=channel",
		"-device", "virtio-rng-pci",
	}
	if o.Instructions {
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	for i, share := range image.shares {
		tag := shareTag(i)
		args = append(args,
			"-fsdev", "local,id="+tag+",path="+escape(
				share)+",security_model=none,readonly=on,multidevs=remap",
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	return args
}

// escape doubles the comma, which ends a value in an option of QEMU.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// collect reads the guest's frames until they end.
func collect(channel io.Reader) (Result, error) {
	var result Result
	exited := false
	for reader := frame.NewReader(channel); ; {
		kind, payload, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF) && exited:
			return result, nil
		case errors.Is(err, io.EOF):
			return result, errors.New("the guest ended before its program did")
		case err != nil:
			return result, err
		}
		switch kind {
		case frame.Stdout:
			result.Output = append(result.Output, payload...)
		case frame.Exit:
			exited = true
			if err := json.Unmarshal(payload, &result.Code); err != nil {
				return result, fmt.Errorf("read exit code: %w", err)
			}
		case frame.Failure:
			return result, errors.New(string(payload))
		}
	}
}

// tail returns the end of the kernel's console output.
func tail(console string) string {
	text, err := os.ReadFile(console)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	const enough = 70 // lines: enough for a panic with its traces
	return "the kernel's last words:\n" + strings.Join(lines[max(0, len(lines)-enough):], "\n")
}
