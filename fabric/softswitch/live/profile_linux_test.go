package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// profileEnv has the process of the switches write a profile of its CPU time into a
// file.
const profileEnv = "RAILBED_SWITCH_PROFILE"

// profiled is the process with its profile.
func profiled(main func([]string) int) func([]string) int {
	return func(args []string) int {
		file, err := os.Create(os.Getenv(profileEnv))
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
			return 1
		}
		defer file.Close()
		defer pprof.StopCPUProfile()
		return main(args)
	}
}

// rest is all time that no cost names: Go's runtime.
const rest = "Go's runtime"

// costs are the uses of CPU time. A sample belongs to the innermost function on the stack that one
// of them names. A system call belongs to its caller.
var costs = []struct {
	what  string
	where *regexp.Regexp
}{
	{"system call: send (AF_XDP)", regexp.MustCompile(`/port\.\(\*xdpPort\)\.push `)},
	{"rings: give frames to AF_XDP", regexp.MustCompile(`/port\.\(\*xdp`)},
	{"rings: take frames from the packet socket", regexp.MustCompile(`/port\.`)},
	{"system call: look for frames, sleep", regexp.MustCompile(`/live\.\(\*loop\)\.(poll|look|sleep|wait) `)},
	{"watch arrivals, its system calls included",
		regexp.MustCompile(`/live\.\(\*(monitorThreads|monitorSocket|monitors|waiting|dues|windows)\)|/live\.(watched|keyOf)`)},
	{"timing: clock, lateness", regexp.MustCompile(`/clock\.|/live\.\(\*(thread|Lateness|patience)\)`)},
	{"parse", regexp.MustCompile(`/wire\.|/packet\.\(\*Packet\)`)},
	{"packet memory", regexp.MustCompile(`/packet\.\(\*Pool\)`)},
	{"forwarding table", regexp.MustCompile(`/softswitch/forward\.`)},
	{"queue", regexp.MustCompile(`/softswitch/queue\.`)},
	{"link", regexp.MustCompile(`/softswitch/medium\.|/softswitch/draw\.`)},
	{"events in their order", regexp.MustCompile(`/softswitch\.\(\*(agenda|lane)\)`)},
	{"recording", regexp.MustCompile(`/internal/feed\.|/live\.\(\*taps?\)`)},
	{"rest of the engine", regexp.MustCompile(`/softswitch\.`)},
	{"rest of the loop", regexp.MustCompile(`/live\.`)},
}

// shareOut reads what "go tool pprof -traces" prints: for each stack its time and then
// its functions, the innermost first.
func shareOut(traces string) (share map[string]float64, total time.Duration) {
	spent := map[string]time.Duration{}
	for _, sample := range regexp.MustCompile(`(?m)^-+\+-+\n`).Split(traces, -1)[1:] {
		first, _, _ := strings.Cut(strings.TrimSpace(sample), " ")
		took, err := time.ParseDuration(first)
		if err != nil {
			continue // a title
		}
		total += took
		spent[costOf(sample)] += took
	}
	share = map[string]float64{}
	for what, took := range spent {
		share[what] = float64(took) / float64(total)
	}
	return share, total
}

func costOf(sample string) string {
	for line := range strings.Lines(sample) {
		function := strings.TrimSpace(line) + " "
		for _, c := range costs {
			if c.where.MatchString(function) {
				return c.what
			}
		}
	}
	return rest
}

// BenchmarkProfile reports the use of CPU time of a switch that receives all that a node can send.
// It reports shares of the process's time by the work of its threads. System calls include the
// kernel's work in them for the receiving node.
func BenchmarkProfile(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, c := range []struct {
		name, settings string
		size           int
		priorities     []uint8
	}{{"64", plainSwitch, 64, onePriority}, {"1400", plainSwitch, 1400, onePriority},
		{"full-1400", fullSwitch, 1400, allPriorities}} {
		b.Run(c.name, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "switch.prof")
			var rates []float64
			b.Run("load", func(b *testing.B) { // the profile is there when all of it has ended
				b.Setenv(profileEnv, file)
				s := startBench(b, c.settings, 1500, true)
				if c.settings == fullSwitch {
					s.record(b)
				}
				s.Part(b)
				g := porttest.NewGenerator(b, s.Left, s.frames(c.size, c.priorities))
				s.Trial(b, g, 1000, 50*time.Millisecond)
				for range b.N * benchRounds() {
					rates = append(rates, s.Saturate(b, g, 500*time.Millisecond).Rate)
				}
				b.ReportMetric(0, "ns/op")
			})
			traces, err := exec.Command("go", "tool", "pprof", "-traces", file).CombinedOutput()
			if err != nil {
				b.Fatalf("go tool pprof: %v\n%s", err, traces)
			}
			share, total := shareOut(string(traces))
			if total == 0 {
				b.Fatalf("an empty profile:\n%s", traces)
			}
			slices.Sort(rates)
			fmt.Printf("%s: %.0f frames/s arrived, %v of CPU time:\n", b.Name(), median(rates), total)
			for _, what := range append(costNames(), rest) {
				if share[what] > 0 {
					fmt.Printf("  %5.1f %%  %s\n", 100*share[what], what)
				}
			}
		})
	}
}

func costNames() (names []string) {
	for _, c := range costs {
		names = append(names, c.what)
	}
	return names
}
