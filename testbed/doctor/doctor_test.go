package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// The table of DESIGN §5, word for word: what an ordinary user has in a user
// namespace, and what not.
var rootlessTable = map[string]Result{
	"veth": OK, "tap": OK, "tbf": OK, "clsact": OK, "packet-socket": OK,
	"sysfs-mount": OK, "proc-mount": OK, "forwarding": OK,
	"bpf-tc": Missing, "bpf-xdp": Missing, "rcvbufforce": Missing, "sched-rr": Missing,
	"nice": Missing, "other-users": Missing, "run-netns": Missing,
}

func TestRootlessTable(t *testing.T) {
	hosttest.Need(t, hosttest.UserNS)
	probes, err := Run(t.Context(), Options{Rootless: true})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]Probe{}
	for _, p := range probes {
		tried[p.Feature] = p
	}
	for name, want := range rootlessTable {
		if name == "tap" {
			want = tapForUsers(t)
		}
		if got, in := tried[name]; !in || got.Result != want {
			t.Errorf("%s: %q (%s), want %s", name, got.Result, got.Detail, want)
		}
	}
	// What the table promises beyond the design holds as well.
	for _, f := range features {
		want := map[rootlessCost]Result{worksRootless: OK, failsRootless: Missing}[f.rootless]
		if f.name == "tap" {
			want = tapForUsers(t)
		}
		if got, in := tried[f.name]; in != (f.rootless != notInTable) || got.Result != want {
			t.Errorf("%s: %q (%s), want %q", f.name, got.Result, got.Detail, want)
		}
	}
}

// tapForUsers returns the result that an ordinary user must get. udev opens /dev/net/tun to all
// users, and a machine without udev does not.
func tapForUsers(t *testing.T) Result {
	t.Helper()
	device, err := os.Stat("/dev/net/tun")
	if err != nil {
		t.Fatal(err)
	}
	if device.Mode().Perm()&0o006 != 0o006 {
		return Missing
	}
	return OK
}

// Run twice: a trial must not find what the one before it left.
func TestRunGivesEveryFeatureAnAnswer(t *testing.T) {
	before, _ := os.ReadFile("/proc/self/mountinfo")
	for range 2 {
		probes, err := Run(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range probes {
			got = append(got, p.Feature)
			if p.Tried == "" || p.Gates == "" || (p.Result == OK) != (p.Remedy == "") {
				t.Errorf("incomplete row %+v", p)
			}
			if p.Result == Unknown && !strings.Contains(p.Detail, "not loaded") {
				t.Errorf("%s: unknown: %s", p.Feature, p.Detail)
			}
			if p.Result != OK && p.Detail == "" {
				t.Errorf("%s: no reason", p.Feature)
			}
		}
		if !slices.Equal(got, Features()) {
			t.Errorf("got %v, want %v", got, Features())
		}
	}
	if after, _ := os.ReadFile("/proc/self/mountinfo"); string(after) != string(before) {
		t.Errorf("mounts changed from\n%s\nto\n%s", before, after)
	}
}

// With systemd the host's mounts are shared, and a mount in a copy of its mount
// namespace appears in the original unless that is prevented.
func TestMountsDoNotSpread(t *testing.T) {
	if !hosttest.InUserNS(t) {
		return
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !strings.Contains(string(before), " shared:") {
		t.Fatalf("mounts are not shared: %v\n%s", err, before)
	}
	if err := Has(t.Context(), "sysfs-mount"); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || string(after) != string(before) {
		t.Errorf("mounts changed from\n%s\nto\n%s", before, after)
	}
}

// On a machine whose root may make namespaces, up finds what it needs.
func TestReadyWhereNamespacesWork(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	probes, err := Run(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	needed := 0
	for _, p := range probes {
		if p.Needed {
			needed++
		}
		if p.Needed && p.Result != OK {
			t.Errorf("up needs %s: %s %s", p.Feature, p.Result, p.Detail)
		}
	}
	if needed == 0 {
		t.Error("up needs no feature")
	}
}

func TestHas(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	if err := Has(t.Context(), "veth"); err != nil {
		t.Errorf("veth: %v", err)
	}
	// What is there is not tried again: a plan may require it for every link.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Has(ended, "veth"); err != nil {
		t.Errorf("veth again: %v", err)
	}
	if err := Has(ended, "memory"); err == nil {
		t.Error("memory is there although it was never tried")
	}
	err := Has(t.Context(), "no-such-feature")
	var unsupported *verdict.UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "no program no-such-feature in PATH") {
		t.Errorf("no-such-feature: %v", err)
	}
	if err := Has(t.Context(), "sh"); err != nil { // a program
		t.Errorf("sh: %v", err)
	}
}

func TestUnsupportedNamesTrialAnswerAndRemedy(t *testing.T) {
	probe := Probe{Feature: "netem", Result: Missing, Tried: "set it on a veth",
		Detail: "set netem: no such file or directory", Remedy: "modprobe sch_netem"}
	want := "netem: unsupported here: set it on a veth: set netem: no such file or directory; modprobe " +
		"sch_netem"
	if got := probe.Unsupported(); got == nil || got.Error() != want ||
		!errors.Is(got, verdict.ErrUnsupported) {
		t.Errorf("got %v, want %s", got, want)
	}
	probe.Result = OK
	if got := probe.Unsupported(); got != nil {
		t.Errorf("got %v for a feature that is there", got)
	}
}

// Where the kernel refuses the namespaces, everything in them is missing and
// says so; nothing is unknown and nothing is there by mistake. In the user
// namespace there is no other user to drop to.
func TestRefusedNamespaces(t *testing.T) {
	if !hosttest.InUserNS(t) {
		return
	}
	probes, err := Run(t.Context(), Options{Rootless: true})
	if err != nil || len(probes) == 0 {
		t.Fatalf("%d probes, %v", len(probes), err)
	}
	for _, p := range probes {
		if p.Result != Missing || !strings.HasPrefix(p.Detail, "needs namespaces: clone: ") {
			t.Errorf("%s: %s, %q", p.Feature, p.Result, p.Detail)
		}
	}
}

// A feature that hangs is unknown, and so is a feature that kills its child. The other features are
// still tried.
func TestTrialsThatDoNotEnd(t *testing.T) {
	outcomes := map[string]outcome{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tryAll(ctx, onHost, []string{"no-such-feature", "memory"}, outcomes)
	if got := outcomes["no-such-feature"]; got.Result != Unknown {
		t.Errorf("got %+v, want unknown", got)
	}
	if got := outcomes["memory"]; got.Result != OK {
		t.Errorf("got %+v, want ok", got)
	}
}

func TestCancelledRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOwnGroupIsADirectory(t *testing.T) {
	for _, filesystem := range []string{"cgroup", "cgroup2"} {
		mounted, err := cgroups(filesystem)
		if err != nil {
			t.Fatal(err)
		}
		for _, hierarchy := range mounted {
			path := hierarchy.path
			if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err != nil {
				t.Errorf("%s %s: %v", filesystem, hierarchy.controllers, err)
			}
		}
	}
}

// TestPackageNamesWhatIsAskedFor: the Debian package recommends or suggests each package of a remedy, and no
// other.
func TestPackageNamesWhatIsAskedFor(t *testing.T) {
	text, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var settings struct{ Recommends, Suggests []string }
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	named := append(settings.Recommends, settings.Suggests...)
	asked := map[string]bool{}
	install := regexp.MustCompile(`apt-get install((?: --?[a-z-]+)*)((?: [a-z0-9][a-z0-9.+-]+)+)`)
	for _, f := range features {
		remedy, _, _ := strings.Cut(strings.ReplaceAll(f.remedy, " and start it", ";"), "$(uname")
		for _, found := range install.FindAllStringSubmatch(remedy, -1) {
			for _, name := range strings.Fields(found[2]) {
				// Ubuntu's alone.
				asked[name] = !strings.HasPrefix(name, "linux-modules-extra")
			}
		}
	}
	for _, name := range named {
		if !asked[name] {
			t.Errorf("no remedy asks for the package %s", name)
		}
	}
	for name, debian := range asked {
		if debian && !slices.Contains(named, name) {
			t.Errorf("a remedy asks for the package %s, which packaging/nfpm.yaml does not name", name)
		}
	}
	if len(asked) < 8 {
		t.Errorf("the remedies ask for %v", asked)
	}
}
