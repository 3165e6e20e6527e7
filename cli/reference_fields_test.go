package cli

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"railbed/capture/display"
)

// dissectors are Railbed's dissectors for Wireshark, with the headings of their fields and paragraphs.
var dissectors = []struct {
	file, heading string
	words         []string
}{
	{"record.lua", "Records of switches and taps", []string{
		"A recording has these fields in addition to the bytes of a packet. If the recording lacks a " +
			"value, the packet has no such field. The field `railbed` stands for any record of a switch. " +
			"Only `railbed decode RUN` has the fields `run.message`, the number of the packet's message in " +
			"the run, and `run.rank`, the rank that sent the packet.",
		"`railbed.verdict` is `enqueue` or `dequeue` for a packet that enters or leaves a queue, `drop` " +
			"for a packet that is lost there, `mark` if congestion experienced was set, and `trim` if the " +
			"payload was cut away. It is `pause`, `resume` or `slow` for a frame of flow control. " +
			"Faults make " +
			"`delay`, `duplicate`, `corrupt`, `truncate`, `rewrite`, `mirror`, `misroute` and " +
			"`request-pause`.",
		"`railbed.reason` is the reason of the verdict. The check [drops](checks.md#checkspacketsdrops) " +
			"lists the reasons of drops. A mark has the reason `red`, for the length of the queue, or " +
			"`ecn-sharp`, for the time in it. A frame of flow control has the reason `pfc` or `gfc`. " +
			"`railbed.fault` is the name of the fault. `railbed.late` is the time at which the emulator " +
			"handled the packet, less the time that the model computed."}},
	{"railbed.lua", "Reliable datagrams and telemetry", []string{
		"[The protocol](../../transports/rd/PROTOCOL.md) explains the fields of `rd`. Those of " +
			"`railbed_int` belong to in-band telemetry (INT-MD 2.1)."}},
	{"aggregation.lua", "Aggregation in switches", []string{
		"[The protocol](../../fabric/softswitch/PROTOCOL.md) explains them."}},
	{"gfc.lua", "Gentle Flow Control", []string{"Switches and NICs of the fabric send these frames."}},
}

var (
	// protoField matches the type, name, label and table of words of a field.
	protoField = regexp.MustCompile(
		`ProtoField\.(\w+)\("([^"]+)", "([^"]+)"(?:, base\.\w+|, \d+)?(?:, (\w+))?`)
	// ownProtocol matches the protocols whose fields the dissectors have, and run.
	ownProtocol = regexp.MustCompile(`^(rd|railbed|railbed_.*|run)$`)
	luaTable    = regexp.MustCompile(`(?s)local (\w+) = \{([^{}]*)\}`)
	luaEntry    = regexp.MustCompile(`\[(\d+)\] = "([^"]*)"`)
)

// fieldsPage writes the fields of packets from the dissectors and from package display.
func fieldsPage(t *testing.T) string {
	p := newPage("Fields of packets", "This page is for those who write filters. `railbed decode -Y`, "+
		"`follow`, captures, rules and faults take these names, and so does Wireshark "+
		"[with Railbed's files](../how-to/captures.md#watch-in-wireshark).")
	ours := map[string]bool{}
	for _, f := range display.Fields {
		ours[f.Name] = true
	}
	for _, d := range dissectors {
		text, err := os.ReadFile("../capture/layers/" + d.file)
		if err != nil {
			t.Fatal(err)
		}
		p.line("## %s\n", d.heading)
		for _, words := range d.words {
			p.prose("%s", words)
		}
		p.line("| field | type | meaning |\n|---|---|---|")
		tables := luaTables(text)
		for _, f := range protoField.FindAllSubmatch(text, -1) {
			name, words := string(f[2]), string(f[3])
			if values := tables[string(f[4])]; values != "" {
				words += ": " + values
			}
			if !ours[name] {
				words += " (only in Wireshark)"
			}
			p.line("| `%s` | %s | %s |", name, luaType(string(f[1])), escaped(words))
		}
		p.line("")
	}
	wiresharkFields(p)
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// luaTables returns the tables of numbers and words in a dissector, as text.
func luaTables(text []byte) map[string]string {
	tables := map[string]string{}
	for _, table := range luaTable.FindAllSubmatch(text, -1) {
		var words []string
		for _, entry := range luaEntry.FindAllSubmatch(table[2], -1) {
			words = append(words, string(entry[1])+" "+string(entry[2]))
		}
		tables[string(table[1])] = strings.Join(words, ", ")
	}
	return tables
}

// wiresharkFields lists the fields that have Wireshark's names, with a line for each protocol.
func wiresharkFields(p *page) {
	p.line("## Fields of Wireshark\n")
	p.prose("Filters of Railbed take these fields of Wireshark, with the meaning that Wireshark gives them.")
	of := map[string][]string{}
	for _, f := range display.Fields {
		if protocol, _, _ := strings.Cut(f.Name, "."); !ownProtocol.MatchString(protocol) {
			of[protocol] = append(of[protocol], "`"+f.Name+"`")
		}
	}
	for _, protocol := range slices.Sorted(maps.Keys(of)) {
		p.line("%s", wrapped("- "+strings.Join(of[protocol], ", "), "  "))
	}
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
