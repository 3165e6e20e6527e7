package rocechecks

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
	"railbed/testkit/verifytest"
)

// rxePrograms is a folder with the programs that TestRecordRXE wants.
var rxePrograms = flag.String("rxe", "", "record testdata/rxe anew, with the programs in this `folder`")

// TestRecordRXE makes the recordings of testdata/rxe, in a guest with Debian's kernel:
//
//	for p in perftest ibverbs-utils ibverbs-providers rdmacm-utils libibumad3 libpci3; do apt-get
//	download $p; done
//	for p in *.deb; do dpkg -x $p /tmp/rdma; done
//	go test ./capture/verify/rocechecks -run TestRecordRXE -rxe /tmp/rdma
//
// They differ each time, and TestRXE has counts of them.
func TestRecordRXE(t *testing.T) {
	if *rxePrograms == "" {
		t.Skip("records only when -rxe names the programs' folder")
	}
	r := vmtest.Run(t, vmtest.Options{
		Modules: []string{"veth", "rdma_rxe", "crc32_generic", "ib_uverbs", "rdma_ucm", "ib_umad",
			"sch_netem", "sch_ingress", "cls_matchall", "act_gact"},
		Dirs: []string{*rxePrograms}, Env: []string{"RDMA=" + *rxePrograms}, Timeout: 5 * time.Minute,
	}, "/bin/sh", "testdata/rxe/record.sh")
	recordings := strings.Split(string(r.Output), "\n== ")
	t.Log(recordings[0])
	for _, recording := range recordings[1:] {
		name, rest, _ := strings.Cut(recording, "\n")
		text, problems, _ := strings.Cut(rest, "\n==")
		if strings.TrimSpace(problems) != "" {
			t.Errorf("after %s: %s", name, problems)
		}
		content, err := base64.StdEncoding.DecodeString(
			strings.ReplaceAll(strings.ReplaceAll(text, "\r", ""), "\n", ""))
		if err == nil {
			err = os.WriteFile(filepath.Join("testdata/rxe", name+".pcap"), content, 0o644)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.Code != 0 {
		t.Errorf("exit status %d", r.Code)
	}
}

// judgeRXE returns the results of checks for a recording.
func judgeRXE(t *testing.T, name string, checks ...evidence.Check) []evidence.Result {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/rxe", name+".pcap"))
	if err != nil {
		t.Fatal(err)
	}
	results, _, err := evidence.Run(t.Context(), bytes.NewReader(content), evidence.Options{}, checks...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestRXE checks all rules against recordings of rdma_rxe on both ends. The letters P and I stand
// for pass and inconclusive, in the order of roceRules. The counts of retransmissions and answers
// must equal tshark's. Where packets were lost before the tap, or duplicated, the tap does not show
// how the sender goes back.
func TestRXE(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	recordings := map[string]string{
		"write": "PPPPIII", "read": "PPPPIII", "send": "PPPPIII", "atomic": "PPPIIII",
		"write-ipv6": "PPPPIII", "rping": "PPPPIII",
		"write-lost-before": "PPPPIII", "write-lost-behind": "PPPPPII", "send-lost-behind": "PPPPPII",
		"read-lost": "PPPPPII", "atomic-lost": "PPPIPII",
		"write-duplicated": "PPPPPII", "write-marked": "PPPPPII",
	}
	for name, want := range recordings {
		results := judgeRXE(t, name, rules(t, roceRules...)...)
		got := ""
		for _, r := range results {
			got += string(r.Verdict[:1])
		}
		if got != want {
			t.Errorf("%s: %s, want %s: %v", name, got, want, results)
		}
		counts := tsharkRoCE(t, filepath.Join("testdata/rxe", name+".pcap"))
		measured := map[string]float64{}
		for _, of := range []struct {
			rule int
			keys []string
		}{{1, []string{"sent", "again"}}, {2, []string{"answers", "naks"}}, {5, []string{"marked"}}} {
			for _, key := range of.keys {
				measured[key] = results[of.rule].Measured[key]
			}
		}
		if !maps.Equal(measured, counts) {
			t.Errorf("%s: counted %v, tshark %v", name, measured, counts)
		}
	}
	// The kernel looks at no mark, which the check says with the count.
	cnp := judgeRXE(t, "write-marked", newCNP(0))[0]
	verifytest.Wants(t, cnp, unclear,
		" with a mark came to receivers that sent no CNP at all, as rdma_rxe does")
	if cnp.Measured["marked"] == 0 || cnp.Measured["marked"] != cnp.Measured["not-applicable"] {
		t.Errorf("%v: %v", cnp, cnp.Measured)
	}
}

// startsCheck finds with which PSNs connections began, of those whose messages that
// connected were seen.
type startsCheck struct {
	follower[struct{}]
	right, wrong int
}

func (k *startsCheck) Begin(c *evidence.Capture) { k.capture = c }

func (k *startsCheck) Packet(p *evidence.Packet) {
	f, place := k.walkRequests(p)
	if f == nil || place != placeFirst {
		return
	}
	switch start, known := k.starts[f.key]; {
	case known && start.psn == p.RoCE.BTH.PSN:
		k.right++
	case known:
		k.wrong++
	}
}

func (k *startsCheck) Result() evidence.Result { return evidence.Result{Name: "starts"} }

// TestRXEStarts: requests of rdma_rxe begin at the PSNs that are read from the messages of
// rdma_cm.
func TestRXEStarts(t *testing.T) {
	k := &startsCheck{follower: newFollower[struct{}](atRequester)}
	judgeRXE(t, "rping", k)
	if k.right != 2 || k.wrong > 0 {
		t.Errorf("%d connections began where the messages say, %d elsewhere, want 2 and 0", k.right, k.wrong)
	}
}

// tsharkRoCE counts requests of connections, and those whose queue pair and PSN were
// there before; answers, and NAKs of a sequence error; and requests with a mark.
func tsharkRoCE(t *testing.T, name string) map[string]float64 {
	t.Helper()
	out, err := exec.Command("tshark", "-n", "-r", name, "-T", "fields", "-E", "separator=|", "-E",
		"occurrence=f",
		"-e", "ip.dst", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e",
		"infiniband.bth.psn", "-e", "infiniband.aeth.syndrome", "-e", "ip.dsfield.ecn", "-e",
		"infiniband.reth.dmalen").Output()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{"sent": 0, "again": 0, "answers": 0, "naks": 0, "marked": 0}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		o, err := strconv.ParseUint(f[1], 0, 8)
		switch {
		case err != nil:
			t.Fatalf("tshark says %q", line)
		case o >= 0x60: // of datagrams
		case o >= 0x0D && o <= 0x12:
			counts["answers"]++
			if f[4] == "96" {
				counts["naks"]++
			}
		default:
			counts["sent"]++
			psn, err := strconv.Atoi(f[3])
			if err != nil {
				t.Fatalf("tshark says %q", line)
			}
			psns := 1
			if length, err := strconv.Atoi(f[6]); o == 0x0C && err == nil {
				psns = (length + 1023) / 1024
			}
			if seen[fmt.Sprint(f[0], f[2], psn)] {
				counts["again"]++
			}
			for i := range psns {
				seen[fmt.Sprint(f[0], f[2], psn+i)] = true
			}
			if f[5] == "3" {
				counts["marked"]++
			}
		}
	}
	return counts
}
