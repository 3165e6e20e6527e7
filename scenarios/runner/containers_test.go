package runner

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// TestContainers runs the library's scenarios with containers, whose programs are
// this host's, and what befalls containers and their engine while a run needs them.
func TestContainers(t *testing.T) {
	hosttest.Need(t, hosttest.Docker, hosttest.Root, hosttest.Redis, hosttest.OpenMPI)
	if output, err := exec.Command("../containers/make-roots").CombinedOutput(); err != nil {
		t.Fatalf("make-roots: %v\n%s", err, output)
	}
	engine := dockertest.Start(t)
	files, err := filepath.Glob("../containers/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d scenario files, %v", len(files), err)
	}
	for i, path := range files {
		if !hosttest.Sampled(t, i) {
			continue
		}
		t.Run(strings.TrimPrefix(path, "../"), func(t *testing.T) { keepsItsWord(t, load(t, path)) })
	}
	root, err := filepath.Abs("../containers/root/tools.tar")
	if err != nil {
		t.Fatal(err)
	}
	const head = twoHosts + "nodes:\n  default: {runtime: docker, rootfs: ROOT}\n"
	file := func(t *testing.T, text string) Options {
		return options(t, strings.ReplaceAll(head+text, "ROOT", root))
	}
	t.Run("entry points end", func(t *testing.T) {
		o := file(t, `
  h0: {command: [sh, -c, "echo fine"], restart: on-failure}
  h1: {command: [sh, -c, "echo no; exit 3"]}
steps:
  - sleep: 1s
`)
		r := runAll(t, t.Context(), o)
		want(t, r, verdict.Fail)
		if wanted := "h1: the entry point exited with 3"; r.Reason != wanted ||
			!slices.Equal(r.Containers, []string{wanted}) {
			t.Errorf("reason %q, containers %q; want %q", r.Reason, r.Containers, wanted)
		}
		for node, said := range map[string]string{"h0": "fine\n", "h1": "no\n"} {
			if got := readOut(t, o, filepath.Join("logs", node, "container.log")); got != said {
				t.Errorf("%s said %q, want %q", node, got, said)
			}
		}
	})
	t.Run("container is stopped", func(t *testing.T) {
		o := file(t, "steps:\n  - exec: {nodes: [h0], command: [sleep, \"1000\"], timeout: 2m}\n")
		stopped := make(chan error, 1)
		o.Progress = func(u Update) {
			if strings.HasPrefix(u.Phase, "[1/1] exec") {
				go func() {
					_, err := engine.Docker("stop", "railbed-"+o.Plan.Name+"-h0")
					stopped <- err
				}()
			}
		}
		r := runAll(t, t.Context(), o)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		carried(t, r)
		const wanted = "h0: the container was asked to stop, by docker stop or by its engine's end"
		if r.Verdict != verdict.Fail || !strings.Contains(r.Reason, "step exec sleep 1000: ") ||
			len(r.Containers) == 0 || r.Containers[0] != wanted {
			t.Errorf("%s: %s; containers %q, want %q", r.Verdict, r.Reason, r.Containers, wanted)
		}
	})
	t.Run("engine crashes", func(t *testing.T) {
		o := file(t, "steps:\n  - exec: {nodes: [h0], command: [sleep, \"1000\"], timeout: 2m}\n")
		crashed := make(chan error, 1)
		o.Progress = func(u Update) {
			if strings.HasPrefix(u.Line, "up in ") {
				go func() {
					engine.Stop()
					crashed <- engine.Run()
				}()
			}
		}
		began := time.Now()
		r := runAll(t, t.Context(), o)
		if err := <-crashed; err != nil {
			t.Fatal(err)
		}
		carried(t, r)
		lost := slices.ContainsFunc(r.Containers, func(line string) bool {
			return strings.Contains(line, "the engine went away")
		})
		if took := time.Since(began); r.Verdict != verdict.Fail || !lost || took > time.Minute {
			t.Errorf("%s after %s: %s; containers %q", r.Verdict, took, r.Reason, r.Containers)
		}
	})
}
