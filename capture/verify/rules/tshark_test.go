package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/verifytest"
)

// ruleOf makes a check from the text of a rule.
func ruleOf(t *testing.T, text string) evidence.Check {
	t.Helper()
	asked, source, err := spec.ParsePacketsCheck("rule", "rule: {"+text+"}")
	if err == nil {
		err = Check(source, spec.PacketsPath+".rule", asked.Rule, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	check, err := New(asked.Rule, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return check
}

// judged judges a file by a rule.
func judged(t *testing.T, name, text string) evidence.Result {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	results, _, err := evidence.Run(t.Context(), file, evidence.Options{}, ruleOf(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return results[0]
}

// fields returns values of fields of the packets that tshark -Y selects, a line for each packet.
func fields(t *testing.T, name, filter string, fields ...string) (rows [][]string) {
	t.Helper()
	dissector := filepath.Join(t.TempDir(), "railbed.lua")
	if err := os.WriteFile(dissector, layers.Dissector, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", name, "-X", "lua_script:" + dissector, "-T", "fields", "-o", "ip.defragment:FALSE",
		"-o", "tcp.desegment_tcp_streams:FALSE"}
	if filter != "" { // Wireshark reads Railbed's records as comments
		filter = strings.ReplaceAll(filter, `railbed.verdict == "drop"`,
			`frame.comment contains "verdict=drop"`)
		args = append(args, "-Y", filter)
	}
	for _, field := range fields {
		args = append(args, "-e", field)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark -Y '%s': %v\n%s", filter, err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// numbers returns the first column of rows.
func numbers(t *testing.T, rows [][]string) (all []int) {
	t.Helper()
	for _, row := range rows {
		n, err := strconv.ParseInt(row[0], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, int(n))
	}
	return all
}

// recordings are captures of Linux's rxe, and one of soft switches that mark, pause and drop.
func recordings(t *testing.T) []string {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Mark()
	s.Chain()
	s.Lose("railbed verdict=drop reason=tail depth=40320")
	name := filepath.Join(t.TempDir(), "soft.pcapng")
	if err := os.WriteFile(name, s.Write(), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"../rocechecks/testdata/rxe/write-lost-behind.pcap",
		"../rocechecks/testdata/rxe/write-marked.pcap", name}
}

var frameOf = regexp.MustCompile(`^frame (\d+) of the capture, which breaks the check$`)

// offenders returns the numbers of the packets that break a check, as its excerpt has them.
func offenders(t *testing.T, r evidence.Result) (all []int) {
	t.Helper()
	if !r.Offenders.Kept() {
		return nil
	}
	var file bytes.Buffer
	if err := r.Offenders.WriteExcerpt(&file, r.Name); err != nil {
		t.Fatal(err)
	}
	in, err := pcapng.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, comment := range p.Comments {
			if found := frameOf.FindSubmatch(comment); found != nil {
				n, _ := strconv.Atoi(string(found[1]))
				all = append(all, n)
			}
		}
	}
}

var filters = []string{"infiniband.bth.opcode == 17", "ip.dsfield.ecn == 3", "tcp && frame.len > 100",
	`railbed.verdict == "drop"`, "ip.src == 10.0.0.0/8"}

// The oracle is tshark -Y: the packets that a rule selects are those that tshark prints.
func TestRulesSelectAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	found := 0
	for _, name := range recordings(t) {
		all := numbers(t, fields(t, name, "", "frame.number"))
		ip := numbers(t, fields(t, name, "ip", "frame.number"))
		for _, filter := range filters {
			want := numbers(t, fields(t, name, filter, "frame.number"))
			found += len(want)
			r := judged(t, name, fmt.Sprintf("never: '%s'", filter))
			if got := offenders(t, r); int(r.Measured["offenders"]) != len(want) ||
				!slices.Equal(got, want[:min(len(want), 100)]) {
				t.Errorf("%s: never %s: %v has %v, tshark finds %v", name, filter, r, got, want)
			}
			r = judged(t, name, fmt.Sprintf("always: '%s'", filter))
			if int(r.Measured["offenders"]) != len(all)-len(want) {
				t.Errorf("%s: always %s: %v, tshark finds %d of %d", name, filter, r, len(want), len(all))
			}
			r = judged(t, name, fmt.Sprintf("count: '%s', is: '== %d'", filter, len(want)))
			if len(r.Details) > 0 && strings.Contains(r.Details[0], "want") ||
				!strings.HasPrefix(r.Summary, fmt.Sprintf("%d of %d packets", len(want), len(all))) {
				t.Errorf("%s: count %s: %v, want %d", name, filter, r, len(want))
			}
			r = judged(t, name, fmt.Sprintf("share: '%s', where: ip, is: '>= 0%%'", filter))
			both := 0
			for _, n := range want {
				if slices.Contains(ip, n) {
					both++
				}
			}
			if !strings.HasSuffix(r.Summary, fmt.Sprintf("%d of %d", both, len(ip))) {
				t.Errorf("%s: share %s: %v, want %d of %d", name, filter, r, both, len(ip))
			}
		}
	}
	if found < 100 {
		t.Errorf("the filters select %d packets", found)
	}
}

// The counts of flows agree with the addresses and ports that tshark prints.
func TestCountsOfFlowsAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	for _, name := range recordings(t) {
		flows := map[string]int{}
		for _, row := range fields(t, name, "ip && (udp || tcp) && !icmp", "ip.src", "ip.dst", "udp.srcport",
			"udp.dstport", "tcp.srcport", "tcp.dstport") {
			flows[strings.Join(row, " ")]++
		}
		most := 0
		for _, n := range flows {
			most = max(most, n)
		}
		if most < 2 {
			continue
		}
		for _, c := range []struct {
			limit, offenders int
		}{{most, 0}, {most - 1, 1}} {
			r := judged(t, name, fmt.Sprintf("count: ip, where: 'ip && (udp || tcp) && !icmp', per: flow, "+
				"is: '<= %d'", c.limit))
			over := 0
			for _, n := range flows {
				over += max(0, n-c.limit)
			}
			if int(r.Measured["offenders"]) != over || over < c.offenders ||
				!strings.HasSuffix(r.Summary, "in "+plural.Count(len(flows), "flows")) {
				t.Errorf("%s: %v, want %d offenders in %d flows", name, r, over, len(flows))
			}
		}
	}
}

// The sums, orders and times are computed from the fields that tshark prints.
func TestStatesAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	const name = "../rocechecks/testdata/rxe/write-lost-behind.pcap"
	rows := fields(t, name, "infiniband", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.len",
		"ip.src", "ip.dst", "frame.time_epoch")
	type packet struct {
		opcode, psn, length int
		source, destination string
		ns                  int64
	}
	var packets []packet
	for _, row := range rows {
		n := numbers(t, [][]string{row[:1], row[1:2], row[2:3]})
		whole, fraction, _ := strings.Cut(row[5], ".")
		seconds, err := strconv.ParseInt(whole, 10, 64)
		nanos, err2 := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		packets = append(packets, packet{n[0], n[1], n[2], row[3], row[4], seconds*1e9 + nanos})
	}
	sum, behind := 0, 0
	newest := map[string]int{}
	for _, p := range packets {
		if p.opcode == 17 {
			continue
		}
		sum += p.length
		last, known := newest[p.source]
		if known && (p.psn-last)&0xFFFFFF >= 1<<23 {
			behind++
		} else {
			newest[p.source] = p.psn
		}
	}
	if behind < 3 {
		t.Fatalf("%d packets go back in %s", behind, name)
	}
	want := func(text string, offenders int, says string) {
		t.Helper()
		r := judged(t, name, text)
		if int(r.Measured["offenders"]) != offenders || !strings.Contains(r.Summary, says) {
			t.Errorf("%s: %v, want %d offenders and %q", text, r, offenders, says)
		}
	}
	want(`sum: frame.len, where: 'infiniband && !(infiniband.bth.opcode == 17)', is: "<= 1GB"`, 0,
		fmt.Sprintf("frame.len is %d in ", sum))
	want(`in-order: infiniband.bth.psn, where: '!(infiniband.bth.opcode == 17)'`, behind, "")
	for _, micros := range []int{10, 100, 300, 1000} {
		crowded, alone := 0, 0
		var times []int64
		for i, p := range packets {
			times = append(times, p.ns)
			if i >= 3 && p.ns-times[i-3] < int64(micros)*1000 {
				crowded++
			}
			if p.opcode == 17 {
				continue
			}
			if !slices.ContainsFunc(packets[i+1:], func(q packet) bool {
				return q.opcode == 17 && q.source == p.destination && q.ns-p.ns <= int64(micros)*1000
			}) {
				alone++
			}
		}
		want(fmt.Sprintf(`count: infiniband, window: %dus, is: "<= 3"`, micros), crowded, "")
		want(fmt.Sprintf(`after: '!(infiniband.bth.opcode == 17)', expect: 'infiniband.bth.opcode == 17', `+
			`within: %dus, same: [ip.src=ip.dst]`, micros), alone, "")
	}
}
