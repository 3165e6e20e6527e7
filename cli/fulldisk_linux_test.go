package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// onAFullDisk runs a scenario whose results do not fit their file system, first the
// logs and then the report.
const onAFullDisk = `
mount --make-rprivate /
mount -t tmpfs -o size=$SIZE tmpfs "$DIR"
(exec -a railbed "$SELF" run "$FILE" --out "$DIR/out")
code=$?
if [ -e "$DIR/out/report.html" ]; then echo "there is a page" >&2; fi
exit $code
`

// TestResultsOnAFullDisk: such a run is not PASS with exit code 0. It prints each error once, and names no
// page that was not written.
func TestResultsOnAFullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	for _, test := range []struct {
		name, size, steps, verdict, says string
		code                             int
	}{
		{"a log", "256k", "- exec: {name: talk, nodes: [h0], command: [head, -c, 2M, /dev/zero]}\n",
			"ABORTED", "no space left on device", verdict.ExitFail},
		{"a capture", "256k", "- capture: {at: [all], file: run.pcapng}\n- exec: {nodes: [h0], command: " +
			"[ping, -f, -c2000, -s1000, h1]}\nchecks:\n- packets: {drops: {count: \"== 0\"}}\n", "ABORTED",
			"no space left on device", verdict.ExitFail},
		{"the report", "256k", "- exec: {name: talk, nodes: [h0], command: [head, -c, 216K, /dev/zero]}\n",
			"PASS", "write ", verdict.ExitFail},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "full.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(small, "cli-small", "cli-full",
				1)+"steps:\n"+test.steps), 0o600); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			got := inMounts(onAFullDisk, "DIR="+dir, "SELF="+self, "FILE="+file, "SIZE="+test.size)
			if got.code != test.code || !strings.HasPrefix(got.stdout, test.verdict+": ") ||
				!strings.Contains(got.stdout+got.stderr, test.says) {
				t.Errorf("exit code %d, want %d and a line %s..., and %q; printed\n%s\n%s", got.code,
					test.code, test.verdict, test.says, got.stdout, got.stderr)
			}
			if !strings.Contains(got.stderr, "the disk is full: free space") {
				t.Errorf("no remedy:\n%s", got.stderr)
			}
			if cut := test.name == "a capture"; strings.Contains(got.stdout, "not complete") != cut {
				t.Errorf("the recording was cut: %t\n%s", cut, got.stdout)
			}
			page := strings.Contains(got.stderr, "there is a page")
			if named := strings.Contains(got.stdout, "report.html"); named != page {
				t.Errorf("the text names the page: %v, and it exists: %v\n%s", named, page, got.stdout)
			}
			for _, name := range []string{"report.json", "junit.xml", "report.html", "workloads.json"} {
				if n := strings.Count(got.stderr, name+": no space left"); n > 1 {
					t.Errorf("the error of %s was printed %d times:\n%s", name, n, got.stderr)
				}
			}
		})
	}
}

// onFullTmpfs runs a command on a file system of 64 KiB with free KiB. It lists the files that the command
// left.
const onFullTmpfs = `
mount --make-rprivate /
mount -t tmpfs -o size=64k,mode=755 tmpfs "$DIR"
railbed() { (exec -a railbed "$SELF" "$@"); }
eval "$PREPARE" >/dev/null 2>&1
cat /dev/zero > "$DIR/fill" 2>/dev/null
truncate -s -"$FREE"K "$DIR/fill"
eval "railbed $COMMAND"
code=$?
rm "$DIR/fill"
find "$DIR" -type f ! -path '*/run-*' -printf '%P\n' | sort > "$LIST"
exit $code
`

// TestFilesOnAFullDisk: every command that writes a file fails on a full disk. It prints each error once and
// what to do, leaves no part of a file that it does not name, and names no file that it has not written.
func TestFilesOnAFullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	work := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("file.yaml", small+"steps:\n- capture: {at: [all], file: run.pcapng}\n- workload: "+
		"{name: w, kind: all-reduce, algorithm: ring, transport: rd, size: 16KiB}\n")
	write("suite/quick.yaml", strings.Replace(small, "cli-small", "cli-full-suite", 1)+
		"steps:\n- exec: {nodes: [h0], command: [\"true\"]}\n")
	results := filepath.Join(work, "results")
	other := filepath.Join(work, "other")
	must(t, "run", file, "--out", results)
	must(t, "run", file, "--out", other)
	must(t, "up", write("up.yaml", strings.Replace(small, "cli-small", "cli-full-up", 1)))
	defer must(t, "down", "cli-full-up")
	const collective = "collective all_reduce -t cli-full-up -b 1K -e 2K -f 2 -n 2 --transport tcp,rd " +
		"--out $DIR"
	for _, test := range []struct {
		name, prepare, free, command string
		left                         []string // files
		says                         string   // a part of the outputs, not empty
	}{
		{"a trace", "", "8", "trace $RUN --out $DIR/x.json", nil, "write $DIR/x.json: no space"},
		{"a trace over another", "echo old >$DIR/x.json", "8", "trace $RUN --out $DIR/x.json", nil,
			"write $DIR/x.json: no space"},
		{"a link to a trace", "echo old >$DIR/y; ln -s y $DIR/x.json", "8", "trace $RUN --out $DIR/x.json",
			[]string{"y"}, "the file is not complete"},
		{"a bundle", "", "8", "bundle $RUN --out $DIR/x.zip", nil, "write $DIR/x.zip: no space"},
		{"a comparison", "", "8", "report $RUN $OTHER --no-recordings --html $DIR/x.html", nil,
			"write $DIR/x.html: no space"},
		{"a diagram", "", "0", "follow $RUN --message 1 --svg $DIR/x.svg", nil, "write $DIR/x.svg: no space"},
		{"an export", "", "0", "export compose $FILE --out $DIR/x.yaml", nil, "write $DIR/x.yaml: no space"},
		{"offenders", "", "4", "verify $RUN --check 'rule: {never: rd}' --offenders $DIR/off", nil,
			"\nFAIL"},
		{"a sweep", "", "4", collective, []string{"sweep.csv"}, "by size: $DIR/sweep.csv\n"},
		{"a sweep as JSON", "", "0", collective + " --output json", nil, `"avg_busbw_gb_s":`},
		{"a recording", "", "16", "capture all -t cli-full-up -w $DIR/x.pcapng & for i in $(seq 200); do " +
			"railbed exec h0 -t cli-full-up -- ping -f -c200 -s1000 h1 >/dev/null; " +
			"kill -0 $! 2>/dev/null || break; done; wait $!", []string{"x.pcapng"},
			"the recording is not complete"},
		{"a suite without room", "", "4", "test $SUITE --out $DIR/out", nil, "\nABORTED: 1 ABORTED in "},
		{"a suite without room for its page", "", "16", "test $SUITE --out $DIR/out",
			[]string{"out/junit.xml", "out/results.json"}, "results: $DIR/out/results.json"},
		{"a suite beside an earlier page", "railbed test $SUITE --out $DIR/out", "0",
			"test $SUITE --out $DIR/out", []string{"out/index.html", "out/junit.xml", "out/results.json"},
			"write $DIR/out/index.html: no space"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, list := t.TempDir(), filepath.Join(t.TempDir(), "list")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			got := inMounts(onFullTmpfs, "DIR="+dir, "SELF="+self, "RUN="+results, "OTHER="+other,
				"FILE="+file, "LIST="+list, "SUITE="+filepath.Join(work, "suite"),
				"PREPARE="+test.prepare, "FREE="+test.free,
				"COMMAND="+test.command)
			all := got.stdout + got.stderr
			says := strings.ReplaceAll(test.says, "$DIR", dir)
			if got.code != verdict.ExitFail || !strings.Contains(all, says) {
				t.Errorf("exit code %d, want %d and %q in\n%s", got.code, verdict.ExitFail, says, all)
			}
			if n := strings.Count(got.stderr, "the disk is full: free space"); n != 1 {
				t.Errorf("the remedy is there %d times:\n%s", n, got.stderr)
			}
			for line := range strings.Lines(got.stderr) {
				if strings.Count(got.stderr, line) > 1 || strings.Count(line, "write ") > 1 {
					t.Errorf("%q is there twice, or names a file twice:\n%s", line, got.stderr)
				}
			}
			text, err := os.ReadFile(list)
			if left := strings.Fields(string(text)); err != nil || !slices.Equal(left, test.left) {
				t.Errorf("left %q, %v; want %q\n%s", left, err, test.left, all)
			}
			if strings.Contains(got.stdout, "index.html") {
				t.Errorf("the text names a page that was not written:\n%s", got.stdout)
			}
		})
	}
}
