package wireshark

import (
	"fmt"
	"strconv"
	"strings"
)

// arguments are the arguments of one call of the plugin.
type arguments struct {
	interfaces, dlts, config, capture bool

	name      string // of the interface
	reload    string // the option whose values are asked for
	filter    string // Wireshark's capture filter
	hasFilter bool
	fifo      string
	in, out   string // the control pipes from and to Wireshark

	taps    string
	narrow  string
	drops   bool
	events  bool
	snapLen int
}

// flags returns where the arguments without a value go.
func (a *arguments) flags() map[string]*bool {
	return map[string]*bool{
		"--extcap-interfaces": &a.interfaces, "--extcap-dlts": &a.dlts, "--extcap-config": &a.config,
		"--capture": &a.capture, "--drops-only": &a.drops, "--events": &a.events,
	}
}

// parse reads arguments of the forms "--name", "--name value" and "--name=value". It passes over names that
// it does not know, and over values without a name.
func parse(args []string) (*arguments, error) {
	a := &arguments{taps: "all"}
	snapLen := "0"
	flags := a.flags()
	values := map[string]*string{
		"--extcap-interface": &a.name, "--extcap-reload-option": &a.reload,
		"--extcap-capture-filter": &a.filter, "--fifo": &a.fifo, "--extcap-control-in": &a.in,
		"--extcap-control-out": &a.out, "--taps": &a.taps, "--narrow": &a.narrow, "--snaplen": &snapLen,
	}
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		if flag := flags[name]; flag != nil {
			// Wireshark leaves out a flag that is not set. Other programs write its value.
			if !has && i+1 < len(args) && (args[i+1] == "true" || args[i+1] == "false") {
				i, value, has = i+1, args[i+1], true
			}
			*flag = !has || value != "false"
		}
		to := values[name]
		if to == nil {
			continue
		}
		if !has {
			if i++; i == len(args) {
				return nil, fmt.Errorf("argument %s has no value", name)
			}
			value = args[i]
		}
		*to = value
		a.hasFilter = a.hasFilter || to == &a.filter
	}
	var err error
	if a.snapLen, err = strconv.Atoi(snapLen); err != nil {
		return nil, fmt.Errorf("argument --snaplen %q: want a number of bytes, or 0 for all", snapLen)
	}
	return a, nil
}

// testbed returns the name of the interface's testbed.
func (a *arguments) testbed() (string, error) {
	name, ours := strings.CutPrefix(a.name, prefix)
	if !ours || name == "" {
		return "", fmt.Errorf("interface %q: want %sTESTBED, as --extcap-interfaces lists them", a.name,
			prefix)
	}
	return name, nil
}

// recording returns what the testbed is to record.
func (a *arguments) recording() Recording {
	words := strings.FieldsFunc(a.taps, func(r rune) bool { return r == ' ' || r == ',' })
	if len(words) == 0 {
		words = []string{"all"}
	}
	return Recording{Taps: words, Filter: a.filter, SnapLen: a.snapLen, Events: a.events}
}
