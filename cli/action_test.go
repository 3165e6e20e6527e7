package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"railbed/cli"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// input is an input of the GitHub action, or of the GitLab template.
type input struct {
	Description string
	Default     any
	Type        string
}

// actionStep is a step of the action.
type actionStep struct {
	Name, If, Uses, Shell, Run string
	Env, With                  map[string]string
}

type githubAction struct {
	Name, Description string
	Inputs            map[string]input
	Outputs           map[string]struct{ Description, Value string }
	Runs              struct {
		Using string
		Steps []actionStep
	}
}

// parseStrictly decodes the YAML documents of a file, of which no key may be unknown.
func parseStrictly(t *testing.T, file string, documents ...any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	for _, document := range documents {
		if err := decoder.Decode(document); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func readAction(t *testing.T) githubAction {
	t.Helper()
	var action githubAction
	parseStrictly(t, "../action.yml", &action)
	if action.Runs.Using != "composite" || len(action.Runs.Steps) < 4 {
		t.Fatalf("using %q, %d steps", action.Runs.Using, len(action.Runs.Steps))
	}
	return action
}

var (
	expression = regexp.MustCompile(`\$\{\{ *([a-z_.]+) *\}\}`)

	calls = regexp.MustCompile(`(?m)\brailbed ([a-z-]+) `)
	flags = regexp.MustCompile(`(?:^|[ (])--([a-z-]+) ?"\$`)
)

// checkScript: the shell reads the script, and the commands of railbed in it have its flags.
func checkScript(t *testing.T, where, shell, script string) {
	t.Helper()
	check := exec.Command(shell, "-n")
	check.Stdin = strings.NewReader(script)
	if output, err := check.CombinedOutput(); err != nil {
		t.Errorf("%s: %s -n: %v\n%s", where, shell, err, output)
	}
	called := calls.FindAllStringSubmatch(script, -1)
	for _, call := range called {
		command, _, err := cli.Root().Find([]string{call[1]})
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		found := flags.FindAllStringSubmatch(script, -1)
		if len(found) < 7 {
			t.Errorf("%s: the flags of railbed %s are %q", where, call[1], found)
		}
		for _, flag := range found {
			if command.Flags().Lookup(flag[1]) == nil {
				t.Errorf("%s: railbed %s has no flag --%s", where, call[1], flag[1])
			}
		}
	}
}

// checkInputs: each input is described and used, and what is used is an input.
func checkInputs(t *testing.T, file string, inputs map[string]input, used []string) {
	t.Helper()
	for name, in := range inputs {
		if in.Description == "" {
			t.Errorf("%s: the input %s has no description", file, name)
		}
		if !slices.Contains(used, name) {
			t.Errorf("%s: nothing uses the input %s", file, name)
		}
	}
	for _, name := range used {
		if _, is := inputs[name]; !is {
			t.Errorf("%s: inputs.%s is no input", file, name)
		}
	}
}

// namesIn are the names of the first group in texts.
func namesIn(pattern *regexp.Regexp, texts ...string) (names []string) {
	for _, text := range texts {
		for _, found := range pattern.FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// TestAction: inputs are used, scripts are right, and no expression is in a script, where it would be code.
func TestAction(t *testing.T) {
	action := readAction(t)
	text, err := os.ReadFile("../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	checkInputs(t, "action.yml", action.Inputs,
		namesIn(regexp.MustCompile(`\$\{\{[^}]*?\binputs\.([a-z]+)`), string(text)))
	ran := false
	for _, step := range action.Runs.Steps {
		if (step.Uses == "") == (step.Run == "") || (step.Run != "" && step.Shell != "bash") {
			t.Errorf("step %q wants either uses, or run with bash", step.Name)
		}
		if step.Run == "" {
			continue
		}
		if strings.Contains(step.Run, "${{") {
			t.Errorf("step %q has an expression in its script", step.Name)
		}
		checkScript(t, step.Name, "bash", step.Run)
		ran = ran || calls.MatchString(step.Run)
		for name := range step.Env {
			if !strings.Contains(step.Run, "$"+name) {
				t.Errorf("step %q does not use %s", step.Name, name)
			}
		}
	}
	if !ran {
		t.Error("no step calls railbed")
	}
}

// TestGitLabTemplate is TestAction for the template for GitLab, which has the same inputs.
func TestGitLabTemplate(t *testing.T) {
	const file = "../templates/railbed.yml"
	var header struct {
		Spec struct{ Inputs map[string]input }
	}
	type job struct {
		Stage, Image, Tags string
		Variables          map[string]string
		BeforeScript       []string `yaml:"before_script"`
		Script             []string
		Artifacts          struct {
			When    string
			Paths   []string
			Reports map[string]string
		}
	}
	jobs := map[string]job{}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// GitLab replaces $[[ ]] in the text of values; as YAML they are lists.
	_, body, _ := strings.Cut(string(text), "\n---\n")
	quoted := regexp.MustCompile(`(?m)^( *(?:- |[a-zA-Z_]+: )?)(\$\[\[.*\]\].*?)(:?)$`).
		ReplaceAllString(body, `$1"$2"$3`)
	if err := yaml.Unmarshal([]byte(quoted), &jobs); err != nil {
		t.Fatalf("%v in\n%s", err, quoted)
	}
	parseStrictly(t, file, &header)
	used := namesIn(regexp.MustCompile(`\$\[\[ inputs\.([a-z]+) \]\]`), body)
	checkInputs(t, file, header.Spec.Inputs, used)
	ours := []string{"job", "stage", "image", "tags"}
	for name := range readAction(t).Inputs {
		// GitLab names artifacts itself, and the package has an address.
		if name != "artifact" && name != "version" {
			ours = append(ours, name)
		}
	}
	for name := range header.Spec.Inputs {
		if !slices.Contains(ours, name) {
			t.Errorf("the action has no input %s", name)
		}
	}
	if len(ours) != len(header.Spec.Inputs) {
		t.Errorf("%d inputs, want %q", len(header.Spec.Inputs), ours)
	}
	j, is := jobs["$[[ inputs.job ]]"]
	if !is || len(jobs) != 1 || j.Artifacts.Reports["junit"] != "$[[ inputs.results ]]/junit.xml" ||
		j.Artifacts.When != "always" {
		t.Fatalf("the jobs are %+v", jobs)
	}
	scripts := append(slices.Clone(j.BeforeScript), j.Script...)
	for _, script := range scripts {
		checkScript(t, file, "sh", script)
	}
	for name := range j.Variables {
		if !strings.Contains(strings.Join(scripts, "\n"), "$"+name) {
			t.Errorf("%s: no script uses %s", file, name)
		}
	}
	if !strings.Contains(strings.Join(j.Script, "\n"), "railbed test \"$@\"") {
		t.Errorf("%s: no script calls railbed test", file)
	}
}

// githubRunner is a runner of GitHub's for the steps of the action that are scripts.
type githubRunner struct {
	t *testing.T
	// root is the root directory in which the steps run, or empty for this machine's; dir is the working
	// directory in it.
	root, dir string
	path      string
	// installed leaves out the step that installs Railbed.
	installed bool
}

// run runs the scripts of the action in their order. It returns the exit code of the first that fails, after
// which only steps with a condition run.
func (r *githubRunner) run(inputs map[string]string) (code int) {
	action := readAction(r.t)
	values := map[string]string{"github.server_url": "https://forge.invalid", "github.action_path": "/action",
		"github.action_repository": "railbed/railbed"}
	for name, in := range action.Inputs {
		values["inputs."+name], _ = in.Default.(string)
	}
	for name, value := range inputs {
		values["inputs."+name] = value
	}
	for _, step := range action.Runs.Steps {
		if step.Run == "" || code != 0 && step.If == "" || r.installed && step.Name == "Install Railbed" {
			r.t.Logf("left out: %s %s", step.Name, step.Uses)
			continue
		}
		command := r.command(step, values)
		output, err := command.CombinedOutput()
		r.t.Logf("%s: %v\n%s", step.Name, command.ProcessState, output)
		if err != nil && code == 0 {
			code = command.ProcessState.ExitCode()
		}
	}
	return code
}

// command is the script of a step, with the environment that a runner gives it.
func (r *githubRunner) command(step actionStep, values map[string]string) *exec.Cmd {
	words := []string{"bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step.Run}
	if r.root != "" {
		words = append([]string{"chroot", r.root, "sh", "-c", `cd "$0" && exec "$@"`, r.dir}, words...)
	}
	command := exec.Command(words[0], words[1:]...)
	command.Dir = filepath.Join(r.root, r.dir)
	command.Env = []string{"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "PATH=" + r.path,
		"RUNNER_TEMP=" + r.dir, "GITHUB_ACTIONS=true", "CI=true"}
	for _, name := range []string{"GITHUB_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_ENV", "GITHUB_OUTPUT"} {
		command.Env = append(command.Env, name+"="+filepath.Join(r.dir, name))
	}
	for name, text := range step.Env {
		value := expression.ReplaceAllStringFunc(text, func(found string) string {
			value, known := values[expression.FindStringSubmatch(found)[1]]
			if !known {
				r.t.Errorf("step %q: %s has no value here", step.Name, found)
			}
			return value
		})
		command.Env = append(command.Env, name+"="+value)
	}
	return command
}

// TestActionRuns runs the steps of the action. With RAILBED_ACTION_ROOT, which scripts/package-try sets, they
// install the package and run scenarios of its library in that root. Otherwise they run two small scenarios
// on this machine, and the test binary is the command.
func TestActionRuns(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	if root := os.Getenv("RAILBED_ACTION_ROOT"); root != "" {
		r := &githubRunner{t: t, root: root, dir: "/try", path: "/usr/sbin:/usr/bin:/sbin:/bin"}
		code := r.run(map[string]string{"package": "railbed.deb", "files": "/usr/share/railbed/scenarios",
			"filter": os.Getenv("RAILBED_ACTION_FILTER")})
		checkResults(t, filepath.Join(root, r.dir), "\nPASS: ", code, 0)
		return
	}
	dir, programs := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(programs, asCommand))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"good.yaml": smallReduce("action-good", "100mbit", "correct: true"),
		"bad.yaml":  smallReduce("action-bad", "100mbit", "corect: true"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &githubRunner{t: t, dir: dir, path: programs + ":" + os.Getenv("PATH"), installed: true}
	code := r.run(map[string]string{"files": "good.yaml\nbad.yaml\n", "jobs": "2"})
	checkResults(t, dir, "\nFAIL: 1 PASS, 1 FAIL in ", code, verdict.ExitFail)
}

// checkResults: the suite ended with the line and the code, and left results and a summary.
func checkResults(t *testing.T, dir, line string, code, want int) {
	t.Helper()
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	for _, name := range []string{"junit.xml", "results.json", "index.html"} {
		if info, err := os.Stat(filepath.Join(dir, "test-results", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	summary, err := os.ReadFile(filepath.Join(dir, "GITHUB_STEP_SUMMARY"))
	if err != nil || !strings.Contains(string(summary), line) {
		t.Errorf("the summary is %q, %v, want %q in it", summary, err, line)
	}
}
