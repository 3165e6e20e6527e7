package rules

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/privacytest"
	"railbed/testkit/verifytest"
	"railbed/transports/rd/privacy"
)

// sealedRing is a ring all-reduce over rd, which is encrypted. The headers may be readable, and keys known.
func sealedRing(t *testing.T, readable, keys bool) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Sealing, s.Snap = &verifytest.Sealing{Secret: privacytest.Secret(), Readable: readable}, 2000
	s.RDRing(4)
	s.Now += 100_000_000
	if keys {
		s.Keys = privacy.NewKeyLog()
		lives := make([]uint64, len(s.Workload.Ranks))
		for i := range lives {
			lives[i] = verifytest.RDLife(i)
		}
		secret := privacy.Material(bytes.Repeat([]byte{0x5E}, privacy.SecretLen)) // as privacytest's
		if err := s.Keys.Add(secret, lives); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestEncrypted: rules read the fields of encrypted datagrams if the recording has keys, or if the fields are
// readable. Otherwise no rule about them passes or fails.
func TestEncrypted(t *testing.T) {
	rules := map[string]verdict.Verdict{ // of readable datagrams
		`never: 'rd.data.total > 0'`:                                       fail,
		`never: 'rd.data.position == 0'`:                                   fail,
		`never: 'rd.data.position == 1'`:                                   pass,
		`never: 'railbed.message > 0'`:                                     fail,
		`count: 'rd.data.position == 0', is: "<= 0"`:                       fail,
		`count: 'rd.data.position == 0', is: ">= 1"`:                       pass,
		`count: 'rd.data.position == 0', is: "== 0"`:                       fail,
		`share: 'rd.data.position == 0', is: "< 1%"`:                       fail,
		`always: 'rd.data.total > 0', where: 'rd.type == 1'`:               pass,
		`always: 'rd.data.total == 0', where: 'rd.type == 1'`:              fail,
		`never: rd, where: 'rd.data.position == 0'`:                        fail,
		`sum: rd.data.total, is: "<= 1"`:                                   fail,
		`in-order: rd.data.position, per: port`:                            fail,
		`count: 'rd.data.total > 0', window: 1s, is: "<= 0"`:               fail,
		`after: 'rd.type == 1', expect: 'rd.data.total == 1', within: 1ms`: fail,
		`never: 'rd.ack.received == 77'`:                                   pass,
		`never: '!(rd.data.total > 0)', where: 'rd.type == 1'`:             pass,
	}
	names := slices.Sorted(maps.Keys(rules))
	for _, c := range []struct{ readable, keys bool }{{false, false}, {false, true}, {true, false}} {
		var checks []evidence.Check
		for _, rule := range names {
			checks = append(checks, ruleOf(t, rule))
		}
		results, _ := sealedRing(t, c.readable, c.keys).Run(checks...)
		for i, rule := range names {
			want, says := rules[rule], ""
			if !c.readable && !c.keys {
				want, says = unclear, "are encrypted, with a field that the rule reads; rd: {key-log: true}"
			}
			t.Run(fmt.Sprint(rule, c), func(t *testing.T) { verifytest.Wants(t, results[i], want, says) })
		}
	}
	s := sealedRing(t, false, false)
	results, _ := s.Run(ruleOf(t, `never: 'rd.type == 9 || tcp'`), ruleOf(t, `count: rd.psn, is: ">= 9"`))
	verifytest.Wants(t, results[0], pass, "") // the base is readable
	verifytest.Wants(t, results[1], pass, "")
	s = sealedRing(t, false, true)
	s.Snap = 200 // what is cut off cannot be decrypted
	results, _ = s.Run(ruleOf(t, `never: 'rd.data.position == 1'`))
	verifytest.Wants(t, results[0], unclear, "were cut off before a field that the rule reads")
}

// TestUnrecorded: a recording of another program does not show directions, ids and ranks.
func TestUnrecorded(t *testing.T) {
	for _, filter := range []string{"frame.packet_flags_direction == 2", "railbed.rank == 1",
		"!(frame.packet_flags_direction == 1)", "frame.packet_id == 5", "railbed.rank"} {
		for _, rule := range []string{`never: '%s'`, `count: '%s', is: "<= 0"`, `count: '%s', is: ">= 1"`,
			`always: '%s'`, `always: udp, where: '%s'`, `share: '%s', is: "<= 1%%"`} {
			s := datagrams(t, 40, false, none)
			s.Foreign = true
			results, _ := s.Run(ruleOf(t, fmt.Sprintf(rule, filter)))
			verifytest.Wants(t, results[0], unclear, "were recorded without a field that the rule reads")
		}
	}
	s := datagrams(t, 40, false, none)
	results, _ := s.Run(ruleOf(t, `never: 'frame.packet_flags_direction == 3'`),
		ruleOf(t, `never: 'railbed.rank == 1', at: leaf1`))
	verifytest.Wants(t, results[0], pass, "")
	verifytest.Wants(t, results[1], unclear, "were recorded without") // only NICs show it
}

// carried makes a packet carry another packet.
func carried(s *verifytest.Scene, id uint64, number byte, port uint16, header, inside []byte) {
	s.Change(func(k verifytest.Sighting) bool { return k.ID == id }, func(k *verifytest.Sighting) {
		frame := append(slices.Clone(k.Frame[:42]), header...)
		if number != 17 {
			frame = append(frame[:34], header...)
		}
		frame = append(frame, inside...)
		frame[23], frame[16], frame[17] = number, byte((len(frame)-14)>>8), byte(len(frame)-14)
		if number == 17 {
			frame[36], frame[37], frame[38], frame[39] = byte(port>>8), byte(port), 0, byte(len(frame)-34)
		}
		k.Frame, k.Length = frame, len(frame)
	})
}

// TestEncapsulated: a rule about a packet that another carries finds it, or proves nothing.
func TestEncapsulated(t *testing.T) {
	segment := append([]byte{0x45, 0, 0, 40, 0, 1, 0, 0, 9, 6, 0, 0, 192, 168, 7, 1, 192, 168, 7, 2},
		0x15, 0xB3, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0)
	for name, c := range map[string]struct {
		number byte
		port   uint16
		header []byte
		read   bool
		says   string
	}{
		"4in4": {4, 0, nil, true, ""},
		"gre":  {47, 0, []byte{0, 0, 8, 0}, true, ""},
		"vxlan": {17, 4789, slices.Concat([]byte{8, 0, 0, 0, 0, 0, 7, 0}, make([]byte, 12), []byte{8, 0}),
			true, ""},
		"gtp":   {17, 2152, []byte{0x30, 0xFF, 0, 40, 0, 0, 0, 1}, false, "not decoded: UDP port 2152"},
		"esp":   {50, 0, make([]byte, 8), false, "not decrypted: ESP"},
		"other": {115, 0, make([]byte, 4), false, "not decoded: IP protocol 115"},
	} {
		for _, rule := range []string{`never: 'tcp.flags.syn == 1'`, `count: 'tcp.dstport == 80', is: "<= 0"`,
			`never: 'ip.src == 192.168.7.1'`, `never: udp, where: 'ip.ttl == 9'`} {
			s := datagrams(t, 40, false, none)
			carried(s, s.Sightings[0].ID, c.number, c.port, c.header, segment)
			results, _ := s.Run(ruleOf(t, rule), ruleOf(t, `count: udp, at: h2, is: ">= 30"`))
			want := unclear
			if c.read {
				want = fail
				if strings.Contains(rule, "where") && c.number != 17 {
					want = pass
				}
			}
			t.Run(name+", "+rule, func(t *testing.T) { verifytest.Wants(t, results[0], want, c.says) })
			verifytest.Wants(t, results[1], pass, "") // whatever is inside
		}
	}
}

// TestFragments: a later fragment has no ports, and may have the ports that a rule forbids.
func TestFragments(t *testing.T) {
	s := datagrams(t, 40, false, none)
	first := s.Sightings[0].ID
	s.Change(func(k verifytest.Sighting) bool { return k.ID == first }, func(k *verifytest.Sighting) {
		k.Frame = slices.Clone(k.Frame)
		k.Frame[21] = 8
	})
	results, _ := s.Run(ruleOf(t, `never: 'udp.dstport == 9'`), ruleOf(t, `always: 'udp.dstport == 17000'`),
		ruleOf(t, `never: tcp`))
	for _, r := range results[:2] {
		verifytest.Wants(t, r, unclear, "are fragments without a field that the rule reads")
	}
	verifytest.Wants(t, results[2], pass, "")
}

// TestImpossible: no port of the rule has the name, so that the rule is INCONCLUSIVE.
func TestImpossible(t *testing.T) {
	for _, rule := range []string{`never: 'railbed.node == "h9"'`,
		`count: 'railbed.node == "h9"', is: "<= 0"`,
		`never: 'tcp && railbed.port contains "rail"'`, `always: 'railbed.node != "h9"'`,
		`never: 'railbed.node == "leaf1"', at: h0`, `never: 'railbed.node in {h0, h9}'`,
		`never: 'tcp && frame.interface_name == "h0:eth7"'`} {
		for _, foreign := range []bool{false, true} {
			s := datagrams(t, 40, false, none)
			s.Foreign = foreign
			results, _ := s.Run(ruleOf(t, rule))
			verifytest.Wants(t, results[0], map[bool]verdict.Verdict{true: results[0].Verdict,
				false: unclear}[results[0].Verdict == fail], "no packet has such a")
		}
	}
	s := datagrams(t, 40, false, none)
	results, _ := s.Run(ruleOf(t, `never: 'railbed.node == "h1"'`))
	verifytest.Wants(t, results[0], pass, "")
}

// TestImpossibleHasPositions: a file alone shows these constants.
func TestImpossibleHasPositions(t *testing.T) {
	s := datagrams(t, 1, false, none)
	names := Names(s.Plan, []string{"lost"})
	for rule, column := range map[string]string{
		`never: 'ip.ttl == 300'`:                                       "ip.ttl == |300",
		`never: 'udp.port in {1, 60000..70000}'`:                       "60000..|70000",
		`never: 'ip.dsfield.ecn > 3'`:                                  "ecn > |3",
		`never: 'ip.ttl < 0'`:                                          "ip.ttl < |0",
		`never: 'infiniband.bth.psn == 0x1000000'`:                     "psn == |0x",
		`never: 'ip.hdr_len == 21'`:                                    "hdr_len == |21",
		`never: 'ip.version == 5'`:                                     "version == |5",
		`never: 'eth.type == 46'`:                                      "type == |46",
		`never: 'frame.packet_flags_direction == 4'`:                   "direction == |4",
		`never: 'udp.port in {9..5}'`:                                  "in {|9",
		`never: 'railbed.reason == "overflow"'`:                        `reason == |"overflow`,
		`never: 'railbed.verdict contains "zz"'`:                       `contains |"zz`,
		`never: 'railbed.node == ""'`:                                  `node == |""`,
		`never: 'tcp && railbed.node == "h9"'`:                         `|railbed.node`,
		`never: 'railbed.node != "h9"'`:                                `|railbed.node`,
		`never: 'railbed.port == "rail7"'`:                             `|railbed.port`,
		`never: 'frame.interface_name == "h0:eth7"'`:                   `|frame.interface_name`,
		`never: 'railbed.fault == "nosuch"'`:                           `|railbed.fault`,
		`never: 'railbed.rank == 64'`:                                  `|railbed.rank`,
		`always: ip, where: 'railbed.node == "leaf9"'`:                 `|railbed.node`,
		`after: ip, expect: 'railbed.fault == "f"', within: 1s`:        `|railbed.fault`,
		`never: 'railbed.node == "h1" && railbed.fault == "lost"'`:     "",
		`never: 'railbed.verdict == "drop" && railbed.reason != tail'`: "",
		`never: 'ip.ttl > 254 && ip.hdr_len < 21 && eth.type >= 1536'`: "",
	} {
		asked, source, err := spec.ParsePacketsCheck("rule", "rule: {"+rule+"}")
		if err != nil {
			t.Fatal(err)
		}
		err = Check(source, spec.PacketsPath+".rule", asked.Rule, names)
		if column == "" {
			if err != nil {
				t.Errorf("%s: %v", rule, err)
			}
			continue
		}
		before, after, _ := strings.Cut(column, "|")
		at := strings.Index("rule: {"+rule, before+after) + len(before) + 1
		var problems spec.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Column != at {
			t.Errorf("%s: %v, want one problem at column %d", rule, err, at)
		}
	}
}
