// Package doctor finds out what the host can do, by trying it, and says for
// each feature what depends on it and what would bring it.
//
// Every trial happens in a short-lived child process, and whatever touches the
// network or mounts happens in namespaces that end with that child, so that
// nothing on the host changes. The child is the running program itself,
// executed again in a part of package reexec; an init of this package plays it,
// so that it works from every program, test binaries included.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"railbed/internal/verdict"
)

// Result is what a probe found.
type Result string

// Results. Unknown means that the trial itself could not be made or did not
// end in time; it is not the same as having the feature.
const (
	OK      Result = "ok"
	Missing Result = "missing"
	Unknown Result = "unknown"
)

// Probe is one feature of the host and what was found out about it.
type Probe struct {
	// Feature is the name that a file's "requires" uses.
	Feature string `json:"feature"`
	Result  Result `json:"result"`
	// Needed says that "railbed up" cannot do without it.
	Needed bool `json:"needed"`
	// Tried is what was done to find out, Detail what the system answered.
	Tried  string `json:"tried"`
	Detail string `json:"detail,omitempty"`
	// Gates is what depends on the feature.
	Gates string `json:"gates"`
	// Remedy is what would bring the feature; empty when it is there.
	Remedy string `json:"remedy,omitempty"`
}

// Options says what to find out.
type Options struct {
	// Features names the features to try, in any order; default all of them.
	Features []string
	// Rootless tries the features of the rootless table as an ordinary user
	// would have them, in a user namespace of that user. Root tries it as
	// nobody.
	Rootless bool
}

// ErrNoSuchFeature is wrapped by Run when a name is not in the table.
var ErrNoSuchFeature = errors.New("no such feature")

// Run tries the features and returns one probe for each, in the order of the
// table. It takes about a second for all of them. The error is about the asking
// (a feature that does not exist, a cancelled context), never about the host.
func Run(ctx context.Context, options Options) ([]Probe, error) {
	chosen, err := choose(options)
	if err != nil {
		return nil, err
	}
	outcomes := map[string]outcome{}
	if options.Rootless {
		tryAll(ctx, asOrdinaryUser, names(chosen, nil), outcomes)
	} else {
		for _, where := range []place{onHost, inNamespaces} {
			tryAll(ctx, where, names(chosen, &where), outcomes)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("probe host: %w", err)
	}
	found := make([]Probe, 0, len(chosen))
	for _, f := range chosen {
		got := outcomes[f.name]
		probe := Probe{
			Feature: f.name, Result: got.Result, Needed: f.isNeeded(), Tried: f.tried,
			Detail: got.Detail, Gates: f.gates,
		}
		if got.Result != OK {
			probe.Remedy = cmp.Or(got.Remedy, f.remedy)
		}
		found = append(found, probe)
	}
	return found, nil
}

// Has tries one feature. It returns nil when the host has it and otherwise a
// *verdict.UnsupportedError with what was tried, what the system answered and
// the remedy; a feature that could not be tried counts as missing. Another error
// means that ctx ended. What was
// there once is not tried again by this process; what was missing is, because a
// module may have been loaded since. It is safe for concurrent use.
func Has(ctx context.Context, name string) error {
	if _, known := present.Load(name); known {
		return nil
	}
	probes, err := Run(ctx, Options{Features: []string{name}})
	if errors.Is(err, ErrNoSuchFeature) {
		return &verdict.UnsupportedError{Feature: name, Reason: err.Error()}
	}
	if err != nil {
		return err
	}
	if err := probes[0].Unsupported(); err != nil {
		return err
	}
	present.Store(name, true)
	return nil
}

// present holds the names of features that Has found.
var present sync.Map

// Unsupported is nil for a feature that is there and a
// *verdict.UnsupportedError otherwise.
func (p Probe) Unsupported() error {
	if p.Result == OK {
		return nil
	}
	return &verdict.UnsupportedError{Feature: p.Feature, Reason: p.Tried + ": " + p.Detail, Remedy: p.Remedy}
}

// Ready reports whether "railbed up" finds what it needs among the probes.
func Ready(probes []Probe) bool {
	return !slices.ContainsFunc(probes, func(p Probe) bool { return p.Needed && p.Result != OK })
}

// Features are the names of all features, in the order of the table.
func Features() []string { return names(features, nil) }

func choose(options Options) ([]feature, error) {
	for _, name := range options.Features {
		if !slices.ContainsFunc(features, func(f feature) bool { return f.name == name }) {
			return nil, fmt.Errorf("probe %q: %w; there are %s", name, ErrNoSuchFeature,
				strings.Join(Features(), ", "))
		}
	}
	var chosen []feature
	for _, f := range features {
		if len(options.Features) > 0 && !slices.Contains(options.Features, f.name) {
			continue
		}
		if options.Rootless && f.rootless == notInTable {
			continue
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

// names are the names of the features, or of those tried in one place.
func names(of []feature, where *place) []string {
	var found []string
	for _, f := range of {
		if where == nil || f.place == *where {
			found = append(found, f.name)
		}
	}
	return found
}
