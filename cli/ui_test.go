package cli_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestUI opens the URL that the command prints. The command ends at Ctrl-C and with its testbed.
func TestUI(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-ui"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { do(t, "down", name) })
	for _, how := range []string{"Ctrl-C", "down"} {
		var stderr spoken
		cmd := command("ui", name, "-o", "json")
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		line, err := bufio.NewReader(stdout).ReadBytes('\n')
		var printed struct{ Testbed, URL string }
		if err != nil || json.Unmarshal(line, &printed) != nil || printed.Testbed != name {
			t.Fatalf("printed %q, %v; %s", line, err, &stderr)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{}
		answer, err := (&http.Client{Jar: jar, Transport: transport}).Get(printed.URL)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", printed.URL, answer, err)
		}
		answer.Body.Close()
		transport.CloseIdleConnections()
		if how == "down" {
			must(t, "down", name)
		} else if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil || strings.Contains(stderr.String(), "taken down") != (how == "down") {
				t.Errorf("after %s: %v: %s", how, err, &stderr)
			}
		case <-time.After(hosttest.Bound):
			t.Fatalf("it does not end with %s", how)
		}
	}
	for _, args := range [][]string{{name}, {"--port", "65536"}} {
		if got := do(t, append([]string{"ui"}, args...)...); got.code != verdict.ExitUsage {
			t.Errorf("%v: exit code %d: %s", args, got.code, got.stderr)
		}
	}
}
