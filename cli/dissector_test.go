package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// TestDissectorCommand puts what is printed where the help says, and Wireshark
// knows the protocol.
func TestDissectorCommand(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	code, script, errs := railbed("", "dissector")
	if code != 0 || errs != "" {
		t.Fatalf("code %d, %s", code, errs)
	}
	_, help, _ := railbed("", "dissector", "--help")
	if where := "railbed dissector > ~/.local/lib/wireshark/plugins/railbed.lua"; !strings.Contains(help,
		where) {
		t.Errorf("the help does not say %q:\n%s", where, help)
	}
	home := t.TempDir()
	plugins := filepath.Join(home, ".local", "lib", "wireshark", "plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		command := exec.Command("tshark", "-G", "protocols")
		command.Env = append(os.Environ(), "HOME="+home)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("tshark: %v", err)
		}
		return strings.Contains(string(out), "Reliable datagram\t")
	}
	if known() {
		t.Error("tshark knows the protocol without us")
	}
	if err := os.WriteFile(filepath.Join(plugins, "railbed.lua"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if !known() {
		t.Error("tshark does not know the protocol")
	}
	if code, _, errs := railbed("", "dissector", "more"); code != 2 {
		t.Errorf("with an argument: code %d, %s", code, errs)
	}
}
