package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVerifyRules(t *testing.T) {
	const capture = "../capture/verify/rocechecks/testdata/rxe/write-lost-behind.pcap"
	rules := func(text string) string {
		name := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	kept := rules("rules:\n  - rule: {always: infiniband, where: udp}\n  - roce: {rule: psn}\n")
	broken := rules("rules:\n  - rule: {never: arp}\n  - rule: {never: infiniband.aeth}\n")
	found := filepath.Join(t.TempDir(), "found")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"kept":   {[]string{"--rules", kept}, 0, "0 of 60 packets do not match"},
		"broken": {[]string{"--rules", broken}, 1, "16 of 60 packets match"},
		"with offenders": {[]string{"--rules", broken, "--offenders", found}, 1,
			"these packets and their neighbours are in " + filepath.Join(found, "check-2.pcapng")},
		"beside a check": {[]string{"--rules", kept, "--check", "rule: {never: infiniband.aeth}"}, 1,
			"16 of 60 packets match"},
		"a wrong filter": {[]string{"--rules", rules("rules:\n  - rule: {never: ip.scr}\n")}, 2,
			`rules.yaml:2:19: no field "ip.scr"; want a field; did you mean "ip.src"?`},
		"a wrong filter of a flag": {[]string{"--check", "rule: {never: 'tcp && ip.scr'}"}, 2,
			`--check:1:23: no field "ip.scr"`},
		"a wrong key": {[]string{"--rules", rules("rules:\n  - rule: {nevr: ip}\n")}, 2, `rules.yaml:2:12: `},
		"two kinds": {[]string{"--rules", rules("rules: [{rule: {never: ip, always: ip}}]")}, 2,
			"rules.yaml:1:"},
		"no bound": {[]string{"--rules", rules("rules: [{rule: {count: ip}}]")}, 2, `lacks the key "is"`},
		"a key of others": {[]string{"--rules", rules("rules: [{rule: {never: ip, within: 1s}}]")}, 2,
			"within has no meaning for a rule of never"},
		"no rules": {[]string{"--rules", rules("rules: []")}, 2, "the file has no rules"},
		"no file":  {[]string{"--rules", kept + "s"}, 2, "cannot be read: no such file"},
		"a formula without a workload": {[]string{"--rules",
			rules(`rules: [{rule: {count: ip, is: "== n"}}]`)}, 2, "n is a number of a workload"},
	} {
		code, stdout, stderr := railbed("", append([]string{"verify", capture}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, c.code, c.says, stdout, stderr)
		}
	}
	code, stdout, stderr := railbed("", "decode", filepath.Join(found, "check-2.pcapng"), "-Y",
		"infiniband.aeth", "-e", "frame.number")
	if n := strings.Count(stdout, "\n"); code != 0 || n != 16 {
		t.Errorf("exit %d, the excerpt has %d acknowledgements, want 16:\n%s", code, n, stderr)
	}
	var report struct {
		Checks []struct{ Verdict, Excerpt string }
	}
	_, stdout, _ = railbed("", "verify", capture, "--rules", broken, "--offenders", found, "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Checks[0].Excerpt != "" ||
		report.Checks[1].Excerpt != filepath.Join(found, "check-2.pcapng") {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestOffendersFollowNoPlantedLink: verify --offenders writes to no file that another user's link leads to.
func TestOffendersFollowNoPlantedLink(t *testing.T) {
	dir := t.TempDir()
	victim, shared := filepath.Join(dir, "victim"), filepath.Join(dir, "shared")
	for _, err := range []error{
		os.WriteFile(victim, []byte("precious"), 0o600), os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777),
		os.Symlink(victim, filepath.Join(shared, "check-1.pcapng")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const capture = "../capture/verify/rocechecks/testdata/rxe/write-lost-behind.pcap"
	code, stdout, stderr := railbed("", "verify", capture, "--check",
		"rule: {never: infiniband}", "--offenders", shared)
	if code != 2 || !strings.Contains(stderr, "is a symbolic link") {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the link's file has %q, %v", text, err)
	}
}
