package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"railbed/capture/wireshark"
	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// incast is a file whose switch drops packets if two hosts send to the third.
const incast = `name: %s
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft, buffer: 32KB}
  links: {default: {rate: 20mbit, delay: 20us}}
nodes: {h1: {ranks: 2}}
`

// sharkHome is a home directory in which the plugin is installed.
type sharkHome struct {
	dir  string
	name string // of a testbed
}

func newSharkHome(t *testing.T) sharkHome {
	t.Helper()
	h := sharkHome{dir: t.TempDir(), name: fmt.Sprintf("shark-%d", os.Getpid()%100000)}
	programs := t.TempDir()
	self, err := os.Readlink(reexec.Self)
	if err == nil {
		err = os.Symlink(self, filepath.Join(programs, asCommand))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Setenv("HOME", h.dir)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // up keeps a user's calibrations there
	var result wireshark.Result
	if err := json.Unmarshal([]byte(must(t, "wireshark", "install", "-o", "json").stdout),
		&result); err != nil {
		t.Fatal(err)
	}
	if len(result.Wrote) != 4 {
		t.Fatalf("wrote %+v", result.Wrote)
	}
	return h
}

// tshark runs tshark and returns what it prints.
func (h sharkHome) tshark(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("timeout", append([]string{"60", "tshark"}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || strings.Contains(errs.String(), "Lua") || strings.Contains(errs.String(), "rror") {
		t.Fatalf("tshark %v: %v\n%s%s", args, err, out, errs.String())
	}
	return string(out)
}

// flood lets h0 and h1 send datagrams to h2 until the test ends.
func (h sharkHome) flood(t *testing.T) {
	t.Helper()
	for _, node := range []string{"h0", "h1"} {
		cmd := command("exec", node, "-t", h.name, "--", "timeout", "200", "bash", "-c",
			"while :; do dd if=/dev/zero bs=1400 count=200 status=none >/dev/udp/10.0.0.3/5001; done "+
				"2>/dev/null")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM) // bash survives SIGINT while a dd runs
			_ = cmd.Wait()
		})
	}
}

// ended waits until every recording of the testbed has ended.
func (h sharkHome) ended(t *testing.T) {
	t.Helper()
	hosttest.Eventually(t, "the end of every recording", func() error {
		events := must(t, "events", "-t", h.name).stdout
		started, stopped := strings.Count(events, "capture.start"), strings.Count(events, "capture.stop")
		if started == 0 || started != stopped {
			return fmt.Errorf("%d recordings began and %d ended:\n%s", started, stopped, events)
		}
		return nil
	})
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(),
		"wireshark_extcap_railbed-"+h.name+"*")); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestWireshark captures from a running testbed as users of Wireshark do, with the files of an installation
// in a new home directory.
func TestWireshark(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Testbed, hosttest.Tshark)
	h := newSharkHome(t)
	if list := h.tshark(t, "-D"); strings.Contains(list, "railbed:"+h.name) || strings.Contains(list,
		"probe") {
		t.Errorf("nothing runs, and tshark lists\n%s", list)
	}
	must(t, "up", writeFile(t, fmt.Sprintf(incast, h.name)))
	t.Cleanup(func() { must(t, "down", h.name) })
	list := h.tshark(t, "-D")
	if want := fmt.Sprintf("railbed:%s (Railbed: %s, whole fabric)\n", h.name,
		h.name); !strings.Contains(list, want) {
		t.Fatalf("tshark lists\n%s\nwant %s", list, want)
	}
	must(t, "doctor", "wireshark-plugin")
	h.flood(t)
	on := []string{"-i", "railbed:" + h.name}
	preference := "extcap.railbed_" + strings.ReplaceAll(h.name, "-", "_")
	t.Run("whole", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		h.tshark(t, append(on, "-c", "20", "-w", file)...)
		if got := strings.Count(must(t, "decode", file).stdout, "\n"); got != 20 {
			t.Errorf("%d packets, want 20", got)
		}
		h.ended(t)
	})
	t.Run("drops only", func(t *testing.T) {
		out := h.tshark(t, append(on, "-c", "5", "-o", preference+".dropsonly:true", "-T", "fields", "-e",
			"railbed.verdict", "-e", "railbed.reason", "-e", "railbed.node")...)
		if lines := strings.Fields(out); len(lines) != 15 || !slices.Equal(lines[:1], []string{"drop"}) ||
			strings.Count(out, "drop\t") != 5 {
			t.Errorf("tshark shows\n%s\nwant 5 drops", out)
		}
		h.ended(t)
	})
	t.Run("options", func(t *testing.T) {
		out := h.tshark(t, append(on, "-c", "4", "-f", "udp port 5001", "-o", preference+".taps:h0", "-o",
			preference+".narrow:ip.src == 10.0.0.1", "-T", "fields", "-e", "ip.src", "-e", "udp.dstport",
			"-e",
			"railbed.node", "-e", "railbed.rank")...)
		if out != strings.Repeat("10.0.0.1\t5001\th0\t0\n", 4) {
			t.Errorf("tshark shows\n%s", out)
		}
		h.ended(t)
	})
	t.Run("fields", h.fields)
	t.Run("stopped", h.stopped)
	t.Run("wrong", func(t *testing.T) {
		out, err := exec.Command("timeout", append([]string{"60", "tshark", "-o", preference +
			".narrow:ip.scr"},
			on...)...).CombinedOutput()
		if err == nil || strings.Contains(err.Error(), "124") || !strings.Contains(string(out),
			"did you mean") {
			t.Errorf("%v: %s", err, out)
		}
	})
	h.unknownFlags(t)
	h.removed(t)
}

// larger waits until a recording is larger than a number of bytes.
func larger(t *testing.T, file string, bytes int64) {
	t.Helper()
	hosttest.Until(t, "packets in "+file, func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > bytes
	})
}

// fields compares fields of a recording, as tshark shows them, with railbed decode.
func (h sharkHome) fields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	cmd := command("capture", "-t", h.name, "-w", file, "--limit", "3000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	larger(t, file, 2_000_000)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // exit code 5 if packets were lost
	for _, filter := range []string{`railbed.verdict == "drop" && railbed.depth > 1000`,
		`railbed.node == "leaf1" && railbed.port == "p2"`, "railbed.late > 0"} {
		fields := []string{"-Y", filter, "-e", "frame.number", "-e", "railbed.verdict", "-e",
			"railbed.reason",
			"-e", "railbed.depth", "-e", "railbed.node", "-e", "railbed.late"}
		want := must(t, append([]string{"decode", file}, fields...)...).stdout
		got := h.tshark(t, append([]string{"-r", file, "-T", "fields"}, fields...)...)
		if got != want {
			t.Errorf("%s: tshark shows %d bytes and decode %d:\n%.300s\n%.300s", filter, len(got),
				len(want), got,
				want)
		}
		if want == "" {
			t.Errorf("%s selects nothing", filter)
		}
	}
	// The NIC of h1 has two ranks, so the recording does not show which of them sent a packet.
	for rank, want := range []string{"h0 10.0.0.1", "", ""} {
		got := h.tshark(t, "-r", file, "-Y",
			fmt.Sprintf("udp.dstport == 5001 && railbed.rank == %d || icmp && "+
				"railbed.rank == %d", rank, rank), "-T", "fields", "-E", "separator= ", "-E", "occurrence=f",
			"-e",
			"railbed.node", "-e", "ip.src")
		lines := strings.Split(got, "\n")
		if lines[0] != want || slices.ContainsFunc(lines, func(l string) bool {
			return l != want &&
				l != ""
		}) {
			t.Errorf("rank %d sends %.200q, want %q", rank, got, want)
		}
	}
}

// stopped ends tshark as a window manager would end Wireshark. The file is whole, with its statistics.
func (h sharkHome) stopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	cmd := exec.Command("tshark", "-i", "railbed:"+h.name, "-w", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	larger(t, file, 100_000)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h.ended(t)
	if out := must(t, "decode", file, "-c", "1", "-Y", "railbed.node").stdout; out == "" {
		t.Error("no packet")
	}
}

// unknownFlags calls the plugin as a later version of Wireshark may.
func (h sharkHome) unknownFlags(t *testing.T) {
	t.Helper()
	plugin := filepath.Join(h.dir, ".config/wireshark/extcap/railbed-extcap")
	out, err := exec.Command(plugin, "--extcap-interfaces", "--extcap-version=9.0", "--extcap-locale", "de",
		"-v").
		CombinedOutput()
	if err != nil || !strings.Contains(string(out), "interface {value=railbed:"+h.name+"}") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.Command(plugin, "--extcap-interface", "railbed:"+h.name, "--extcap-config",
		"--extcap-reload-option", "taps", "--unknown").CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^value \{arg=0\}\{value=h2:eth0\}`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWiresharkStatusKeepsPathsWhole prints paths that are longer than a column of other tables.
func TestWiresharkStatusKeepsPathsWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := must(t, "wireshark", "status", "--dir", dir).stdout
	if !strings.Contains(out, dir+"/") {
		t.Errorf("a path is not whole:\n%s", out)
	}
}

// removed uninstalls, and checks that nothing is left.
func (h sharkHome) removed(t *testing.T) {
	t.Helper()
	if out := must(t, "wireshark", "status").stdout; !strings.Contains(out, "tshark -D lists the plugin") {
		t.Errorf("status: %s", out)
	}
	must(t, "wireshark", "uninstall")
	if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if list := h.tshark(t, "-D"); strings.Contains(list, "railbed") {
		t.Errorf("after uninstall tshark lists\n%s", list)
	}
	if code, _, _ := railbed("", "doctor", "wireshark-plugin"); code != 3 {
		t.Errorf("doctor: code %d, want 3", code)
	}
}
