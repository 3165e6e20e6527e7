package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"railbed/capture/display"
)

// dissectors are Railbed's dissectors for Wireshark, with the headings of their fields.
var dissectors = []struct{ file, heading, words string }{
	{"record.lua", "Records of switches and taps", "A recording has these beside the bytes of a " +
		"packet. A field is absent if the recording lacks it. `railbed` itself stands for any record " +
		"of a switch."},
	{"railbed.lua", "Reliable datagrams and telemetry", "[The " +
		"protocol](../../transports/rd/PROTOCOL.md) explains the fields of `rd`. Those of " +
		"`railbed_int` belong to in-band telemetry (INT-MD 2.1)."},
	{"aggregation.lua", "Aggregation in switches",
		"[The protocol](../../fabric/softswitch/PROTOCOL.md) explains them."},
	{"gfc.lua", "Gentle Flow Control", "The frames are of the fabric's own."},
}

// recordWords are the words of railbed.verdict.
const recordWords = "`railbed.verdict` is `enqueue` or `dequeue` for a packet that enters or leaves " +
	"a queue, `drop` for a packet that is lost there, `mark` if congestion experienced was set, " +
	"and `trim` if the payload was cut away. It is `pause`, `resume` or `slow` for a frame of " +
	"flow control. Faults make `delay`, `duplicate`, `corrupt`, `truncate`, `rewrite`, `mirror`, " +
	"`misroute` and `request-pause`. `railbed.reason` says why: the reasons of drops are those " +
	"of the check [drops](checks.md#checkspacketsdrops); of marks `red` (the length of the " +
	"queue) or `ecn-sharp` (the time in it); of frames of flow control `pfc` or `gfc`. " +
	"`railbed.fault` is the name of the fault. `railbed.late` is the time at which the emulator " +
	"handled the packet, less the time that the model computed."

var (
	protoField = regexp.MustCompile(`ProtoField\.(\w+)\("([^"]+)", "([^"]+)"(?:, base\.\w+|, \d+)?(?:, (\w+))?`)
	luaTable   = regexp.MustCompile(`(?s)local (\w+) = \{([^{}]*)\}`)
	luaEntry   = regexp.MustCompile(`\[(\d+)\] = "([^"]*)"`)
)

// fieldsPage writes the fields of packets from the dissectors and from package display.
func fieldsPage(t *testing.T) string {
	p := newPage("Fields of packets", "This page is for those who write filters. `railbed "+
		"decode -Y`, `follow`, "+
		"captures, rules and faults take these names, and so does Wireshark "+
		"[with Railbed's files](../how-to/captures.md#watch-in-wireshark).")
	known := map[string]bool{}
	for _, f := range display.Fields {
		known[f.Name] = true
	}
	shown := map[string]bool{"railbed": true}
	for _, d := range dissectors {
		text, err := os.ReadFile("../capture/layers/" + d.file)
		if err != nil {
			t.Fatal(err)
		}
		tables := map[string]string{}
		for _, table := range luaTable.FindAllSubmatch(text, -1) {
			var words []string
			for _, entry := range luaEntry.FindAllSubmatch(table[2], -1) {
				words = append(words, string(entry[1])+" "+string(entry[2]))
			}
			tables[string(table[1])] = strings.Join(words, ", ")
		}
		p.line("## %s\n", d.heading)
		p.prose("%s", d.words)
		if d.file == "record.lua" {
			p.prose("%s", recordWords)
		}
		p.line("| field | type | meaning |\n|---|---|---|")
		for _, f := range protoField.FindAllSubmatch(text, -1) {
			name, words := string(f[2]), string(f[3])
			if values := tables[string(f[4])]; values != "" {
				words += ": " + values
			}
			if !known[name] {
				words += " (only in Wireshark)"
			}
			shown[name] = true
			p.line("| `%s` | %s | %s |", name, luaType(string(f[1])), escaped(words))
		}
		if d.file == "record.lua" {
			p.line("| `run.message` | number | Message of the run; only `railbed decode RUN` has it |")
			p.line("| `run.rank` | number | Rank that sent the packet; only `railbed decode RUN` has it |")
			shown["run.message"], shown["run.rank"] = true, true
		}
		p.line("")
	}
	p.line("## Fields of Wireshark\n")
	p.prose("Railbed knows these names of Wireshark, with Wireshark's meaning. Its own reference explains " +
		"them.")
	of := map[string][]string{}
	var protocols []string
	for _, f := range display.Fields {
		if shown[f.Name] || strings.HasPrefix(f.Name, "rd") || strings.HasPrefix(f.Name, "railbed") {
			continue
		}
		protocol, _, _ := strings.Cut(f.Name, ".")
		if of[protocol] == nil {
			protocols = append(protocols, protocol)
		}
		of[protocol] = append(of[protocol], "`"+f.Name+"`")
	}
	slices.Sort(protocols)
	for _, protocol := range protocols {
		p.line("%s", wrapped("- "+strings.Join(of[protocol], ", "), "  "))
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// luaType returns the type of a field for people.
func luaType(kind string) string {
	switch kind {
	case "string":
		return "text"
	case "bytes":
		return "bytes"
	case "bool":
		return "true or false"
	case "relative_time":
		return "seconds"
	}
	return "number"
}
