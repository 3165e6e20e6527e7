package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"railbed/capture/verify"
	"railbed/plan"
)

// parseTaps parses the values of --tap, INTERFACE=NODE:PORT. The plan is nil if it is unknown.
func parseTaps(values []string, p *plan.Plan) (map[string]string, error) {
	taps, ports := map[string]string{}, map[string]string{}
	for _, value := range values {
		at := strings.LastIndexByte(value, '=')
		name := value[:max(at, 0)]
		node, port, both := strings.Cut(value[at+1:], ":")
		switch {
		case at < 1 || !both || node == "" || port == "":
			return nil, usage("--tap %q: want INTERFACE=NODE:PORT, such as eth0=h0:eth0, or 0=h0:eth0 for "+
				"the first interface", value)
		case taps[name] != "":
			return nil, usage("--tap %q: interface %s is %s already", value, name, taps[name])
		case ports[node+":"+port] != "":
			return nil, usage("--tap %q: %s:%s is interface %s already", value, node, port,
				ports[node+":"+port])
		}
		taps[name], ports[node+":"+port] = node+":"+port, name
		if p != nil {
			if err := p.CheckPort(node + ":" + port); err != nil {
				return nil, usage("--tap %q: %w", value, err)
			}
		}
	}
	return taps, nil
}

// interfaceNames returns the names that a capture gives its interfaces. Interfaces without a name
// are named by their number.
func interfaceNames(capture verify.Summary, taps map[string]string) (names []string) {
	for i, tap := range capture.Taps {
		name := tap.Name
		for own, given := range taps {
			if given == tap.Name {
				name = own
			}
		}
		if name == "" {
			name = strconv.Itoa(i)
		}
		names = append(names, name)
	}
	return names
}

// unknownTaps returns the interfaces of a capture that are not ports of the plan. It returns an
// error if all are unknown, or if --tap names an interface that the capture does not have.
func unknownTaps(capture verify.Summary, taps map[string]string, p *plan.Plan) (unknown []string, err error) {
	names := interfaceNames(capture, taps)
	for own, given := range taps {
		if !slices.ContainsFunc(capture.Taps, func(t verify.Tap) bool { return t.Name == given }) {
			return nil, usage("--tap %s=%s: the capture has no interface %s; it has %s", own, given, own,
				shortened(names))
		}
	}
	if p == nil {
		return nil, nil
	}
	ports := p.Ports()
	slices.Sort(ports)
	for i, tap := range capture.Taps {
		if _, known := slices.BinarySearch(ports, tap.Name); !known {
			unknown = append(unknown, names[i])
		}
	}
	if len(unknown) > 0 && len(unknown) == len(capture.Taps) {
		return nil, usage("no interface of the capture is a port of the plan: the capture has %s, and the "+
			"plan %s; say which is which, as in --tap %s=%s",
			shortened(names), shortened(ports), names[0], ports[0])
	}
	return unknown, nil
}

// shortened returns the start of a list of names.
func shortened(names []string) string {
	const most = 16
	var words []string
	for _, name := range names[:min(len(names), most)] {
		words = append(words, strings.Trim(strconv.Quote(name), `"`)) // names in captures are untrusted
	}
	text := strings.Join(words, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// completeTaps completes the ports of the plan after INTERFACE=.
func completeTaps(a *app, flags *verifyFlags) completion {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		p, _, err := a.verifyPlan(*flags)
		name, _, begun := strings.Cut(typed, "=")
		if err != nil || p == nil || !begun {
			return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		var words []string
		for _, port := range p.Ports() {
			words = append(words, name+"="+port)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
