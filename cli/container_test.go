package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// TestRailbedInAContainer runs a scenario in the image, with the capabilities that the line of
// docs/how-to/run-in-docker.md gives it, as an ordinary user with none, and with too few.
func TestRailbedInAContainer(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.Docker, hosttest.Ping)
	engine := dockertest.Start(t)
	docker := func(args ...string) (string, error) {
		cmd := exec.Command("docker", args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+engine.Host)
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	image := exec.Command("../scripts/image", "railbed")
	image.Env = append(os.Environ(), "DOCKER_HOST="+engine.Host)
	if output, err := image.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	results := t.TempDir()
	if err := os.Chmod(results, 0o777); err != nil {
		t.Fatal(err)
	}
	run := func(out string, options ...string) (string, error) {
		args := append([]string{"run", "--rm", "--network", "none", "-v", results + ":/railbed/out"},
			options...)
		return docker(append(args, "railbed", "run", "/usr/share/railbed/scenarios/two-hosts.yaml", "--out",
			"out/"+out)...)
	}
	for name, options := range map[string][]string{
		"root": documented(t),
		"user": {"--user", "65534", "--security-opt", "seccomp=unconfined", "--security-opt",
			"systempaths=unconfined"},
	} {
		if output, err := run(name, options...); err != nil {
			t.Errorf("%s: %v\n%s", name, err, output)
			continue
		}
		var report struct{ Verdict string }
		text, err := os.ReadFile(filepath.Join(results, name, "report.json"))
		if err != nil || json.Unmarshal(text, &report) != nil || report.Verdict != "PASS" {
			t.Errorf("%s: %v, %s", name, err, report.Verdict)
		}
	}
	output, err := run("nothing")
	if err == nil || !strings.Contains(output, "railbed doctor says what the host allows") {
		t.Errorf("without capabilities: %v\n%s", err, output)
	}
	// A container that stays holds a testbed that stays.
	if output, err := docker(append(append([]string{"run", "-d", "--init", "--network", "none", "--name",
		"lab"}, documented(t)...), "--entrypoint", "sleep", "railbed", "1000")...); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, args := range [][]string{{"up", "/usr/share/railbed/scenarios/two-hosts.yaml"},
		{"exec", "h0", "--", "ping", "-c1", "h1"}, {"inspect", "--verify"}, {"down"}} {
		if output, err := docker(append([]string{"exec", "lab", "railbed"}, args...)...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, output)
		}
	}
}

// documented are the options of the line in docs/how-to/run-in-docker.md.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/how-to/run-in-docker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(text), "$ docker run --rm ")
	line, _, _ = strings.Cut(strings.ReplaceAll(line, "\\\n", " "), " railbed\n")
	var options []string
	for words := strings.Fields(line); len(words) > 0; words = words[1:] {
		if strings.HasPrefix(words[0], "--") && len(words) > 1 {
			options = append(options, words[0], words[1])
		}
	}
	if !found || len(options) < 6 {
		t.Fatalf("the page has no line that runs the image: %q", options)
	}
	return options
}
