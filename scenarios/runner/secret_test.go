package runner

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/transports/rd/privacy"
)

// rdSecret is an all-reduce between processes that encrypt.
const rdSecret = `
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, mtu: 4200}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, transport: rd, size: 1MiB, iterations: 2, rd: {encrypt: true, engines: 2}}
checks:
  - workload: {name: ar, correct: true}
  - packets: {conservation: "*"}
  - packets: {that: "every rd message is placed exactly once"}
`

// TestSecretStaysSecret checks that a run with encryption is correct, that its packets are
// encrypted, and that checks which cannot read them do not pass. The secret must be in no command
// line, no environment and no file that the run leaves.
func TestSecretStaysSecret(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Testbed)
	secret := privacy.Generate()
	forms := formsOf(secret)
	o := options(t, rdSecret)
	o.secret = func() privacy.Material { return bytes.Clone(secret) }
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan int)
	go func() { watched <- watchProcesses(ctx, t, forms) }()
	r := runAll(t, t.Context(), o)
	stop()
	if workers := <-watched; workers < 3 {
		t.Errorf("saw %d workers", workers)
	}
	if len(r.Checks) != 3 || r.Checks[0].Verdict != verdict.Pass || r.Checks[1].Verdict != verdict.Pass ||
		r.Checks[2].Verdict != verdict.Inconclusive {
		t.Errorf("%s: %+v", r.Reason, r.Checks)
	}
	files := 0
	err := filepath.WalkDir(o.Out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if form := found(content, forms); form != "" {
			t.Errorf("%s has the secret as %s", path, form)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, %v", files, err)
	}
	if sealed, clear := countSealed(t, filepath.Join(o.Out, "run.pcapng")); sealed < 500 || clear != 0 {
		t.Errorf("%d packets are encrypted, %d are not", sealed, clear)
	}
	// What was searched for would have been found.
	for name, form := range forms {
		if got := found(append([]byte("key="), form...), forms); got == "" {
			t.Errorf("%s is not found", name)
		}
	}
}

// formsOf is how a secret may be written.
func formsOf(secret privacy.Material) map[string][]byte {
	b := []byte(secret)
	list := strings.Trim(fmt.Sprint(b), "[]")
	return map[string][]byte{
		"bytes": b, "hex": []byte(hex.EncodeToString(b)),
		"HEX":             []byte(strings.ToUpper(hex.EncodeToString(b))),
		"base64":          []byte(strings.TrimRight(base64.StdEncoding.EncodeToString(b), "=")),
		"base64 for URLs": []byte(base64.RawURLEncoding.EncodeToString(b)),
		"numbers":         []byte(list), "JSON": []byte(strings.ReplaceAll(list, " ", ",")),
		"Go": []byte(strings.ReplaceAll(list, " ", ", ")),
	}
}

func found(content []byte, forms map[string][]byte) string {
	for name, form := range forms {
		if bytes.Contains(content, form) {
			return name
		}
	}
	return ""
}

// watchProcesses looks at the command lines and environments of all processes
// until the context ends, and counts the workers that it saw.
func watchProcesses(ctx context.Context, t *testing.T, forms map[string][]byte) int {
	workers := make(map[string]bool)
	for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		entries, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range entries {
			line, err := os.ReadFile(process + "/cmdline")
			if err != nil || len(line) == 0 {
				continue
			}
			environment, err := os.ReadFile(process + "/environ")
			if form := found(append(line, environment...), forms); form != "" {
				t.Errorf("%s has the secret as %s in its command line or environment", process, form)
			}
			if err == nil && bytes.Contains(line, []byte("worker\x00collective")) {
				workers[process] = true
			}
		}
	}
	return len(workers)
}

// countSealed counts reliable datagrams in a recording.
func countSealed(t *testing.T, path string) (sealed, clear int) {
	t.Helper()
	r := openRecording(t, path)
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return sealed, clear
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Data) < 42+wire.RDBaseLen || !wire.IsPortRD(wire.UDP(p.Data[34:]).DstPort()) {
			continue
		}
		if rd := wire.RD(p.Data[42:]); rd.HasBase() && rd.Sealed() {
			sealed++
		} else if !rd.HasBase() || rd.Type() != wire.RDReject {
			clear++
		}
	}
}

// rdKeys is a run whose file asks for the keys, through switches that trim.
const rdKeys = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 2, striped: 1}
  switch: {kind: soft, trim: true, buffer: 60KB}
  links: {default: {rate: 40mbit, mtu: 4200}, host: {rate: 100mbit}}
steps:
  - capture: {at: [all], file: run.pcapng, snaplen: 8KiB}
  - workload: {name: ar, kind: all-reduce, transport: rd, size: 256KiB, iterations: 1, rd: {encrypt: true, key-log: true}}
checks:
  - workload: {name: ar, correct: true}
  - packets: {bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 2%}}
  - packets: {that: "every rd message is placed exactly once"}
`

// TestKeyLogOpensRecordings holds that checks read encrypted packets where the file
// asks for their keys, find there what is wrong, and without the keys do not pass.
func TestKeyLogOpensRecordings(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	o := options(t, rdKeys)
	_, held := runAndHold(t, o)
	t.Run("Wireshark", func(t *testing.T) { // of trimmed and of encrypted packets
		wiresharkAgrees(t, filepath.Join(o.Out, "run.pcapng"), wire.RDData, wire.RDAck, wire.RDNack)
	})
	verdicts := func(checks []report.Check) (all [3]verdict.Verdict) {
		for i, c := range checks {
			all[i] = c.Verdict
		}
		return all
	}
	checks := rejudge(t, o, held)
	if got := verdicts(checks); got != [3]verdict.Verdict{verdict.Pass, verdict.Pass, verdict.Pass} {
		t.Errorf("with keys: %+v", checks)
	}
	if strings.Contains(checks[2].Summary, " 0 trimmed") {
		t.Errorf("nothing was trimmed: %s", checks[2].Summary)
	}
	altered := filepath.Join(t.TempDir(), "altered.pcapng")
	rewrite(t, filepath.Join(o.Out, "run.pcapng"), altered,
		once(func(nic bool, p *pcapng.Packet, rd wire.RD) bool {
			return nic && p.Flags&pcapng.DirectionMask == pcapng.Inbound && !rd.SealedTrimmed()
		}, 0))
	checks, err := judge.Checks(t.Context(), o.File, o.Plan, held, func(string) (io.ReadCloser, error) {
		return os.Open(altered)
	}, func(int64) {})
	if err != nil || checks[2].Verdict != verdict.Fail {
		t.Errorf("a packet does not come: %v, %+v", err, checks)
	}
	log := filepath.Join(o.Out, "ar.keys")
	info, err := os.Stat(log)
	if err != nil || info.Mode().Perm() != keysMode {
		t.Fatalf("%v, %v", info, err)
	}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	held.Keys, err = privacy.ReadKeyLog(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts(rejudge(t, o, held)); got[2] != verdict.Pass {
		t.Errorf("with the keys of the file: %v", got)
	}
	held.Keys = nil
	if got := verdicts(rejudge(t, o, held)); got[1] != verdict.Inconclusive ||
		got[2] != verdict.Inconclusive {
		t.Errorf("without keys: %v", got)
	}
}
