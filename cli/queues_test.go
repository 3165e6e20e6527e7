package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"railbed/fabric/port"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// TestInspectSaysWhyNotTheFastestDriver: more NICs than have ports of their own say
// so, in the document each and in the table in one line; fewer do not.
func TestInspectSaysWhyNotTheFastestDriver(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for _, nics := range []int{8, 9} {
		name := fmt.Sprintf("cli-drivers-%d", nics)
		must(t, "up", writeFile(
			t, strings.Replace(twoHostsOn(name, "soft"), "hosts: 2", fmt.Sprintf("hosts: %d", nics), 1)))
		t.Cleanup(func() { must(t, "down", name) })
		var state supervisor.State
		if err := json.Unmarshal([]byte(must(t, "inspect", name, "-o", "json").stdout), &state); err != nil {
			t.Fatal(err)
		}
		shared := 0
		for _, nic := range state.Soft.NICs {
			if reason := nic.Description.Reason; strings.Contains(reason,
				fmt.Sprintf("%d NICs share one ring", nics)) &&
				strings.Contains(reason, "within two seconds") {
				shared++
			}
			if d := nic.Description; d.Driver != port.XDP && d.Reason == "" {
				t.Errorf("%s:%s of %d uses %s and does not say why", nic.Node, nic.NIC, nics, d.Driver)
			}
		}
		var lines []string
		for line := range strings.Lines(must(t, "inspect", name).stdout) {
			if strings.Contains(line, "share one ring") {
				lines = append(lines, line)
			}
		}
		switch {
		case nics == 8 && (shared != 0 || len(lines) != 0):
			t.Errorf("8 NICs have ports of their own: %q", lines)
		case nics == 9 && (shared != nics || len(lines) != 1 ||
			!strings.HasPrefix(lines[0], "9 of 9 NICs use the driver packet: 9 NICs share one ring")):
			t.Errorf("%d of 9 NICs say that they share a ring, and inspect %q", shared, lines)
		}
	}
}
