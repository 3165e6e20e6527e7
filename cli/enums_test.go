package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify"
	"railbed/fabric/softswitch"
	"railbed/internal/element"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/plan/topology"
	"railbed/testkit/plantest"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
	"railbed/workloads/flows"
	"railbed/workloads/stacks"
	"railbed/workloads/training/placement"
	"railbed/workloads/worker"
)

// TestEnumsAreImplemented: what implements an enumeration of the file knows each of its
// values, and refuses another. A value that the schema has and the code has not is red,
// and so is an enumeration that has no place here.
func TestEnumsAreImplemented(t *testing.T) {
	const unheard = "unheard-of"
	checks := implementations(t)
	maps.Copy(checks, ofFaults())
	for field, values := range enums(t) {
		knows, there := checks[field]
		if !there {
			t.Errorf("nothing here says whether %s of %v is implemented", field, values)
			continue
		}
		delete(checks, field)
		for _, value := range values {
			if err := knows(value); err != nil {
				t.Errorf("%s: %s is in the schema, and not implemented: %v", field, value, err)
			}
		}
		if knows(unheard) == nil {
			t.Errorf("%s: what implements it takes %s", field, unheard)
		}
	}
	for field := range checks {
		t.Errorf("the schema has no enumeration %s", field)
	}
}

// only accepts the given values.
func only(values ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("want one of %v", values)
		}
		return nil
	}
}

// ofFaults are the values of faults. One value of each field is the default, or the only value.
func ofFaults() map[string]func(string) error {
	known := map[string]func(string) error{
		"FaultRewrite.checksums": only(spec.UpdateChecksums, spec.KeepChecksums),
		"Fault.disk":             only("full"),
		"Fault.queue-pairs":      only("lost"),
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[spec.Fault]()) {
		if f.Type.Kind() != reflect.Pointer || f.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		if _, picks := f.Type.Elem().FieldByName("Per"); picks {
			known[f.Type.Elem().Name()+".per"] = only("packet", spec.PickMessages)
		}
	}
	return known
}

// implementations ask what does the work. A nil error is that it knows the value.
func implementations(t *testing.T) map[string]func(value string) error {
	soft := func(change func(p *plan.Plan, value string)) func(string) error {
		return func(value string) error {
			p := plantest.Compile(t, "name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n"+
				"  switch: {kind: soft, buffer: 8MB, ecn: {kmin: 1KB, kmax: 2KB, pmax: 100%}, gfc: {kind: "+
				"buffer, priorities: [3]}}\n  links: {default: {rate: 1gbit, delay: 5us}}\n")
			change(p, value)
			_, err := softswitch.New(p, softswitch.Options{Memory: 1 << 20})
			return err
		}
	}
	jitter := soft(func(p *plan.Plan, value string) {
		p.Links[0].AToB.Jitter, p.Links[0].AToB.JitterKind = 1000, value
	})
	// A worker reports all errors of a job, here more than the expected one.
	job := func(change func(j *worker.Job, value string)) func(string) error {
		return func(value string) error {
			j := worker.Job{Kind: spec.AllReduce}
			change(&j, value)
			if _, err := worker.Run(t.Context(), j, nil, nil); err == nil ||
				strings.Contains(err.Error(), "no such algorithm") ||
				strings.Contains(err.Error(), "unknown transport") {
				return fmt.Errorf("%+v: %w", j, err)
			}
			return nil
		}
	}
	known := func(is func(value string) bool) func(string) error {
		return func(value string) error {
			if !is(value) {
				return fmt.Errorf("nobody knows %s", value)
			}
			return nil
		}
	}
	// Of these the code asks for one and takes the other for granted: a third one needs
	// a look at who reads the field.
	return map[string]func(string) error{
		"Switch.kind": func(value string) error {
			if value == spec.Router || value == spec.Bridge { // package kernelswitch's
				return nil
			}
			return soft(func(p *plan.Plan, value string) { p.Switches[0].Kind = value })(value)
		},
		"Node.nic-path":     only(spec.KernelPath, spec.Bypass),
		"Switch.forwarding": soft(func(p *plan.Plan, value string) { p.Switches[0].Forwarding = value }),
		"Switch.load-balance": soft(func(p *plan.Plan, value string) {
			p.Switches[0].Soft.LoadBalance = value
		}),
		"ECN.kind": soft(func(p *plan.Plan, value string) {
			p.Switches[0].Soft.ECN.Kind = value
		}),
		"GFC.kind": soft(func(p *plan.Plan, value string) {
			p.Switches[0].Soft.GFC.Kind = value
		}),
		"Direction.jitter-kind": jitter,
		"Link.jitter-kind":      jitter,
		"Fabric.topology": func(value string) error {
			if value == "explicit" {
				_, err := topology.Explicit(topology.Wiring{Hosts: []string{"a", "b"},
					Switches: []string{"s"}, Connect: []string{"a -- s", "b -- s"}})
				return err
			}
			params := map[string]int{}
			if g, known := topology.Find(value); known {
				for _, p := range g.Params {
					params[p.Name] = max(p.Default, 2*p.Min) // even
				}
			}
			_, err := topology.Generate(value, params)
			return err
		},
		"RD.spray": func(value string) error {
			kind, err := path.Parse(value)
			if err == nil {
				_, err = path.New(kind, 4, path.Options{})
			}
			return err
		},
		"RD.control": func(value string) error { _, err := rate.Parse(value); return err },
		"Workload.kind": job(func(j *worker.Job, value string) {
			if j.Kind = value; value == spec.KindSGD {
				j.Work = worker.SGD{Config: &spec.SGD{Exchange: spec.ExchangeWhole}}
			}
		}),
		"SGD.exchange": func(value string) error {
			training := worker.SGD{Config: &spec.SGD{Exchange: value, Bits: "8"}}
			_, err := worker.Run(t.Context(), worker.Job{Work: training}, nil, nil)
			if err == nil || strings.Contains(err.Error(), "gradients by exchange") {
				return fmt.Errorf("exchange %s: %w", value, err)
			}
			return nil
		},
		"SGD.bits":           only("2", "4", "8"),
		"Training.transport": job(func(j *worker.Job, value string) { j.Transport = value }),
		"Training.placement": func(value string) error {
			p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\n")
			_, err := placement.Choose(p, value, 2, nil)
			return err
		},
		"Messages.transport":   job(func(j *worker.Job, value string) { j.Transport = value }),
		"OpenMessages.sizes":   known(func(value string) bool { return flows.Published[value] != nil }),
		"ClosedMessages.sizes": known(func(value string) bool { return flows.Published[value] != nil }),
		"Model.dtype":          only(spec.BF16, spec.FP16, spec.FP32),
		"RoCE.repeat":          only(spec.RoCEGoBackN, spec.RoCESelective),
		"RoCE.congestion":      only(spec.RoCENone, spec.RoCEDCQCN),
		"Workload.type":        known(func(value string) bool { return element.Type(value).Size() > 0 }),
		"Workload.op": known(func(value string) bool {
			return element.Combiner(element.Float32, element.Op(value),
				element.Terms{A: 1, B: 1, Ranks: 2}) != nil
		}),
		"Workload.transport": job(func(j *worker.Job, value string) { j.Transport = value }),
		"Workload.algorithm": func(value string) error {
			var err error
			for _, kind := range spec.WorkloadKinds() {
				if err = job(func(j *worker.Job, value string) {
					j.Kind, j.Algorithm = kind, value
				})(value); err == nil {
					break
				}
			}
			return err
		},
		"PacketsCheck.that": func(value string) error {
			_, err := verify.New(&spec.PacketsCheck{That: value}, verify.Sources{})
			return err
		},
		"DropsCheck.reason": known(func(value string) bool {
			return slices.Contains(softswitch.Recorded(), value)
		}),
		"RoCECheck.rule": func(value string) error {
			_, err := verify.New(&spec.PacketsCheck{RoCE: &spec.RoCECheck{Rule: value}}, verify.Sources{})
			return err
		},
		"Workload.ip":           only("4", "6"),
		"Training.ip":           only("4", "6"),
		"Messages.ip":           only("4", "6"),
		"Probe.ip":              only("4", "6"),
		"Stack.kind":            stackKind,
		"Routing.daemon":        only(spec.FRR), // package nodes/frr
		"Node.build-network":    only(spec.BuildWithout, spec.BuildDefault, spec.BuildHost),
		"Node.pull":             only(spec.PullMissing, spec.PullNever, spec.PullAlways),
		"Node.restart":          only(spec.RestartNo, spec.RestartOnFailure, spec.RestartAlways),
		"Node.runtime":          only("netns", "docker", "vm", "cni"),
		"Capture.events":        only("none", "all"),
		"LinkChange.state":      only("up", "down"),
		"Check.fidelity":        only("faithful", "degraded"),
		"PacketsCheck.deadlock": only("none", "some"),
		"LatencyCheck.per":      only("flow", "pair"),
		"Rule.per": func(value string) error {
			_, err := verify.New(&spec.PacketsCheck{Rule: &spec.Rule{Count: "ip", Is: "<= 1", Per: value}},
				verify.Sources{})
			return err
		},
		"PathSpread.flows":     only("one-path", "every-path"),
		"BytesPerRank.formula": only(append(formulas(), spec.FormulaTraining, spec.FormulaMessages)...),
		"Node.rdma":            only(spec.NoRDMA, spec.RXE),
	}
}

// formulas returns the formulas of the algorithms of all kinds.
func formulas() (all []string) {
	for _, kind := range spec.WorkloadKinds() {
		for _, algorithm := range spec.Algorithms(kind) {
			switch {
			case algorithm == schedule.MSCCL:
				all = append(all, algorithm)
			case kind == spec.AllToAll || kind == spec.KindMoE:
				all = append(all, kind)
			default:
				all = append(all, algorithm+"-"+kind)
			}
		}
	}
	return all
}

// stackKind asks for an adapter, whose programs the host need not have.
func stackKind(value string) error {
	if _, err := stacks.Find(context.Background(), value); !errors.Is(err, verdict.ErrUnsupported) {
		return err
	}
	return nil
}

// enums are the schema's enumerations, by type and field.
func enums(t *testing.T) map[string][]string {
	t.Helper()
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct {
				AnyOf []struct {
					Enum []any `json:"enum"`
				} `json:"anyOf"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(spec.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for name, of := range schema.Defs {
		for field, property := range of.Properties {
			for _, choice := range property.AnyOf {
				for _, value := range choice.Enum {
					if text := fmt.Sprint(value); !slices.Contains(found[name+"."+field], text) {
						found[name+"."+field] = append(found[name+"."+field], text)
					}
				}
			}
		}
	}
	if len(found) < 15 {
		t.Fatalf("the schema has the enumerations %v; want more", found)
	}
	return found
}
