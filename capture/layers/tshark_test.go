package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/testkit/hosttest"
)

// captured is a frame as a capture has it: of length bytes, of which the first ones.
type captured struct {
	frame  []byte
	length int
}

// dissect prints fields of frames as Wireshark understands them with our
// dissector, one line a frame.
func dissect(t *testing.T, frames []captured, fields ...string) []string {
	t.Helper()
	hosttest.Need(t, hosttest.Tshark)
	folder := t.TempDir()
	name, script := filepath.Join(folder, "x.pcapng"), filepath.Join(folder, "railbed.lua")
	if err := os.WriteFile(script, Dissector, 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pcapgo.NewNgWriter(file, golayers.LinkTypeEthernet)
	for _, f := range frames {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(f.frame), Length: f.length}, f.frame)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", name, "-X", "lua_script:" + script, "-T", "fields", "-E", "separator=|",
		"-E", "occurrence=a", "-E", "aggregator=,"}
	for _, field := range fields {
		args = append(args, "-e", field)
	}
	command := exec.Command("tshark", args...)
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil || strings.Contains(problems.String(), "Lua") {
		t.Fatalf("tshark: %v: %s", err, problems.String())
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark printed %d lines for %d frames", len(lines), len(frames))
	}
	return lines
}
