// Package wireshark connects Railbed with a user's Wireshark. It installs files in the user's own folders:
// an extcap plugin, the dissectors, and a profile. It also implements the plugin, by extcap(4) and chapter
// 8.2 of Wireshark's developer's guide. An interface of the plugin is a running testbed. Its packets are one
// pcapng stream, the same as in a recorded file.
package wireshark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"railbed/capture/filter"
)

// prefix begins the names of the plugin's interfaces. The testbed's name follows.
const prefix = "railbed:"

// probeVariable is an environment variable with which the plugin lists one more interface, probeName. So the
// plugin can be found in Wireshark's list if no testbed runs.
const (
	probeVariable = "RAILBED_EXTCAP_PROBE"
	probeName     = "railbed-probe"
)

// Testbeds are the testbeds of the calling user.
type Testbeds interface {
	// Running returns the names of the running testbeds. It connects to none of them, because Wireshark waits
	// for it when it starts.
	Running() ([]string, error)
	// Taps returns the words that select taps of a testbed: all, nics, switches, its nodes and switches, and
	// their ports.
	Taps(ctx context.Context, testbed string) ([]string, error)
	// Record writes the packets of a testbed to w as pcapng, in pieces of any size, until ctx ends. It then
	// writes the rest, with the statistics, and returns. An error of w ends the recording, too.
	Record(ctx context.Context, testbed string, r Recording, w io.Writer) error
}

// Recording describes the packets that a testbed records.
type Recording struct {
	Taps    []string // at least one
	Filter  string   // of pcap-filter(7), or ""
	SnapLen int      // bytes kept of each packet; 0 is all
	Events  bool     // also the packets that enter queues
}

// Plugin answers one call of Wireshark.
type Plugin struct {
	Testbeds Testbeds
	Version  string // of Railbed
	Stdout   io.Writer
}

// tapsTimeout bounds the only question that Wireshark's dialog asks a testbed.
const tapsTimeout = 5 * time.Second

// Run does what the arguments say. It ignores arguments that it does not know, because later versions of
// Wireshark have more. The error is for the user: Wireshark shows it.
func (p *Plugin) Run(ctx context.Context, args []string) error {
	a, err := parse(args)
	switch {
	case err != nil:
		return err
	case a.interfaces:
		return p.interfaces()
	case a.reload != "":
		return p.reload(ctx, a)
	case a.config:
		return p.print(configuration...)
	case a.dlts:
		return p.print("dlt {number=1}{name=EN10MB}{display=Ethernet}")
	case a.capture:
		return p.capture(ctx, a)
	case a.hasFilter: // Wireshark asks whether it is valid, and shows what is printed
		if _, err := filter.Compile(a.filter, 0); err != nil {
			return p.print(err.Error())
		}
		return nil
	}
	return errors.New("no call of Wireshark; want --extcap-interfaces, --extcap-dlts, --extcap-config or " +
		"--capture")
}

func (p *Plugin) print(lines ...string) error {
	_, err := io.WriteString(p.Stdout, strings.Join(lines, "\n")+"\n")
	return err
}

// tapWord is a word that selects taps.
type tapWord struct{ value, display string }

// tapWords are the words of every testbed.
var tapWords = []tapWord{
	{"all", "all: the whole fabric"},
	{"nics", "nics: ports of nodes"},
	{"switches", "switches: ports of switches"},
}

func (p *Plugin) interfaces() error {
	running, err := p.Testbeds.Running()
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("extcap {version=%s}", quoted(p.Version))}
	for _, name := range running {
		lines = append(lines, fmt.Sprintf("interface {value=%s%s}{display=Railbed: %s, whole fabric}", prefix,
			name, name))
	}
	if os.Getenv(probeVariable) != "" {
		lines = append(lines, "interface {value="+probeName+"}{display=Railbed: the plugin is found}")
	}
	if len(running) > 0 {
		lines = append(lines, toolbar()...)
	}
	return p.print(lines...)
}

// Numbers of the toolbar's controls.
const (
	tapsControl = iota
	filterControl
	dropsControl
	resetControl
)

func toolbar() []string {
	lines := []string{
		fmt.Sprintf("control {number=%d}{type=selector}{display=Taps}{tooltip=Show packets of these "+
			"taps only}",
			tapsControl),
		fmt.Sprintf("control {number=%d}{type=string}{display=Filter}{tooltip=Show packets that match "+
			"only. The "+
			"language is that of display filters, for example railbed.depth > 64000}", filterControl),
		fmt.Sprintf("control {number=%d}{type=boolean}{display=Drops only}{default=false}{tooltip=Show only "+
			"packets that a switch or a NIC dropped}", dropsControl),
		fmt.Sprintf("control {number=%d}{type=button}{role=restore}{display=Reset}", resetControl),
	}
	for i, word := range tapWords {
		lines = append(lines, fmt.Sprintf("value {control=%d}{value=%s}{display=%s}{default=%t}", tapsControl,
			word.value, word.display, i == 0))
	}
	return lines
}

// ownWords returns the words of one testbed.
func ownWords(all []string) (own []string) {
	for _, name := range all {
		if !slices.ContainsFunc(tapWords, func(w tapWord) bool { return w.value == name }) {
			own = append(own, name)
		}
	}
	return own
}

const tapsArgument = "arg {number=0}{call=--taps}{display=Taps}{type=selector}{reload=true}" +
	"{placeholder=Load nodes and ports}{tooltip=What is recorded}"

// configuration describes the arguments of a recording. It is the same for all testbeds, because Wireshark
// asks for it for each interface when it starts.
var configuration = append(slices.Concat([]string{tapsArgument}, tapValues(nil)),
	"arg {number=1}{call=--narrow}{display=Filter}{type=string}{tooltip=Pass on packets that match "+
		"only. The "+
		"language is that of display filters, for example railbed.depth > 64000}",
	"arg {number=2}{call=--drops-only}{display=Drops only}{type=boolflag}{default=false}{tooltip=Pass on "+
		"only packets that a switch or a NIC dropped}",
	"arg {number=3}{call=--events}{display=Queue events}{type=boolflag}{default=false}{tooltip=Record the "+
		"packets that enter queues of soft switches, too}",
	"arg {number=4}{call=--snaplen}{display=Bytes kept of each packet}{type=unsigned}{default=0}"+
		"{tooltip=0 keeps all}",
)

func tapValues(more []string) (lines []string) {
	for i, word := range tapWords {
		lines = append(lines, fmt.Sprintf("value {arg=0}{value=%s}{display=%s}{default=%t}", word.value,
			word.display, i == 0))
	}
	for _, name := range ownWords(more) {
		lines = append(lines, fmt.Sprintf("value {arg=0}{value=%s}{display=%s}{default=false}", name, name))
	}
	return lines
}

// reload prints the values of the selector of taps again, with the words of the testbed.
func (p *Plugin) reload(ctx context.Context, a *arguments) error {
	if a.reload != "taps" && a.reload != "--taps" {
		return nil
	}
	testbed, err := a.testbed()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tapsTimeout)
	defer cancel()
	names, err := p.Testbeds.Taps(ctx, testbed)
	if err != nil {
		return err
	}
	return p.print(tapValues(names)...)
}

// quoted makes a text a value of extcap's grammar, which has no escapes.
func quoted(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '{' || r == '}' || r == '\\' || r == 0x7F {
			return '_'
		}
		return r
	}, text)
}
