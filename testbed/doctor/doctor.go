// Package doctor finds out which features the host has by trying them. For each feature it reports
// what depends on the feature and what would provide it.
//
// Every trial runs in a short-lived child process. Trials that affect the network or mounts run in
// namespaces that end with that child, so nothing on the host changes. The child is the running
// program itself, executed again in a part of package reexec. An init of this package runs that
// part, so doctor works in every program, including test binaries.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// Result is the result of a probe.
type Result string

// Results. Unknown means that the trial could not be made or did not end in time. It does not mean
// that the host has the feature.
const (
	OK      Result = "ok"
	Missing Result = "missing"
	Unknown Result = "unknown"
)

// Probe is a feature of the host and the result of its trial.
type Probe struct {
	// Feature is the name in a file's "requires".
	Feature string `json:"feature"`
	Result  Result `json:"result"`
	// Needed reports whether "railbed up" needs the feature.
	Needed bool `json:"needed"`
	// Tried describes the trial, and Detail the answer of the system.
	Tried  string `json:"tried"`
	Detail string `json:"detail,omitempty"`
	// Gates describes what depends on the feature.
	Gates string `json:"gates"`
	// Remedy describes what would provide the feature. It is empty if the feature is there.
	Remedy string `json:"remedy,omitempty"`
}

// Options are the options of Run.
type Options struct {
	// Features are the names of the features to try, in any order. Default: all.
	Features []string
	// Rootless tries the features of the rootless table as an ordinary user would have them, in a
	// user namespace of that user. Root tries them as UID 65534.
	Rootless bool
}

// ErrNoSuchFeature is wrapped by Run if a name is not in the table.
var ErrNoSuchFeature = errors.New("no such feature")

// Run tries the features and returns one probe for each, in the order of the table. All of them
// take about a second. The error concerns only the request (an unknown feature, a cancelled
// context), never the host.
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

// Has tries one feature, or finds a program in PATH if no feature has the name. It returns nil if the host
// has it. Otherwise it returns a *verdict.UnsupportedError with the trial, the answer of the system and the
// remedy. A feature that could not be tried counts as missing. Any other error means that ctx ended. This
// process does not try a feature again that it has found. It does try a missing feature again, because a
// module may have been loaded since. Has is safe for concurrent use.
func Has(ctx context.Context, name string) error {
	if _, known := present.Load(name); known {
		return nil
	}
	probes, err := Run(ctx, Options{Features: []string{name}})
	if errors.Is(err, ErrNoSuchFeature) {
		return findProgram(name)
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

// HasRequired is Has for an element of requires, which may also be a file or folder of the host. Its
// name has a slash and is relative to the folder of the scenario file, file.
func HasRequired(ctx context.Context, file, name string) error {
	if !spec.RequiredFile(name) {
		return Has(ctx, name)
	}
	if _, err := os.Stat(spec.BesideFile(file, name)); err != nil {
		return &verdict.UnsupportedError{Feature: name, Reason: err.Error(),
			Remedy: "make the file; the scenario file may have instructions in its comments"}
	}
	return ctx.Err()
}

// findProgram finds a program in PATH.
func findProgram(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return &verdict.UnsupportedError{Feature: name, Reason: fmt.Sprintf("no program %s in PATH %s", name,
			os.Getenv("PATH")), Remedy: "install the program, or its package, on this host"}
	}
	return nil
}

// present holds the names of features that Has found.
var present sync.Map

// Unsupported returns nil for a feature that the host has, and a *verdict.UnsupportedError otherwise.
func (p Probe) Unsupported() error {
	if p.Result == OK {
		return nil
	}
	return &verdict.UnsupportedError{Feature: p.Feature, Reason: p.Tried + ": " + p.Detail, Remedy: p.Remedy}
}

// Features returns the names of all features, in the order of the table.
func Features() []string { return names(features, nil) }

func choose(options Options) ([]feature, error) {
	for _, name := range options.Features {
		if !slices.ContainsFunc(features, func(f feature) bool { return f.name == name }) {
			return nil, fmt.Errorf("probe %q: %w; the features are %s", name, ErrNoSuchFeature,
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

// names returns the names of the features, or of the features that are tried in one place.
func names(of []feature, where *place) []string {
	var found []string
	for _, f := range of {
		if where == nil || f.place == *where {
			found = append(found, f.name)
		}
	}
	return found
}
