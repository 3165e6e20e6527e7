package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
	"railbed/plan/spec/keys"
)

// keyPage is a page of the reference about groups of keys.
type keyPage struct {
	name, title, purpose string
	groups               []string // of keys, by the names of their Go types
}

// keyPagesOf lists the pages of keys. Package checks.md has the groups of checks.
var keyPagesOf = []keyPage{
	{"file.md", "The file", "This page is for those who write testbed files. It has the keys at the top of " +
		"a file, the addresses, the matrix and the forms of values. The other pages of the file have the " +
		"keys of its parts. `railbed explain KEY` prints the same in the terminal.",
		[]string{"Testbed", "Addressing", "Matrix", "Claim", "Compare"}},
	{"file-fabric.md", "The fabric", "This page has the keys of the key `fabric`: topology, hosts, " +
		"connections and routing daemons.", []string{"Fabric", "Routing"}},
	{"file-nodes.md", "Nodes", "This page has the keys of nodes: runtime, ranks, limits, containers and " +
		"the management network.", []string{"Node", "Management", "Health"}},
	{"file-switches.md", "Switches", "This page has the keys of switches: buffers, scheduling, marking, " +
		"trimming, flow control and aggregation.",
		[]string{"Switch", "Scheduler", "ECN", "Trim", "PFC", "GFC", "Aggregation"}},
	{"file-links.md", "Links", "This page has the keys of links: rate, delay, loss and other behaviour of " +
		"each direction.", []string{"Link", "GilbertElliott", "Flap", "Direction"}},
	{"file-steps.md", "Steps", "This page has the keys of steps: when a step starts, recordings, commands, " +
		"changes of links, traffic, probes and stacks. Workloads, messages and faults have pages of " +
		"their own.",
		[]string{"Step", "Retry", "Capture", "Exec", "LinkChange", "Traffic", "PauseFrames", "Probe",
			"Stack"}},
	{"file-workloads.md", "Workloads", "This page has the keys of collectives and training jobs, and of " +
		"the transports that carry them.",
		[]string{"Workload", "Sizes", "RD", "RoCE", "SGD", "MoE", "Training", "Model"}},
	{"file-messages.md", "Messages", "This page has the keys of messages outside of collectives: published " +
		"sizes, key-value caches and storage.", []string{"Messages", "OpenMessages", "ClosedMessages",
		"CacheMessages", "CacheDecode", "BlockMessages"}},
	{"file-faults.md", "Faults", "This page has the keys of the step `fault`. " +
		"[Faults](../how-to/faults.md) explains them with examples.",
		faultGroups()},
}

// faultGroups returns the groups of faults: Fault, and the settings of its kinds.
func faultGroups() []string {
	names := []string{"Fault"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[spec.Fault]()) {
		if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct &&
			!slices.Contains(names, f.Type.Elem().Name()) {
			names = append(names, f.Type.Elem().Name())
		}
	}
	return names
}

// checkGroups are the groups of checks.md in its order, without the checks of packets.
var checkGroups = []string{"Check", "WorkloadCheck", "Beside", "WhyCheck", "PacketsCheck"}

// keyWriter writes groups of keys on pages. It describes each key once, and links to that description from
// the other places.
type keyWriter struct {
	at      map[string]*keys.Key // the first key that has the group
	also    map[string][]string  // all paths to the group
	page    map[string]string    // of a group
	written map[string]string    // the group in which a key was described, by name and description
}

func newKeyWriter(t *testing.T) *keyWriter {
	t.Helper()
	w := &keyWriter{map[string]*keys.Key{"Testbed": keys.Root()}, map[string][]string{}, map[string]string{},
		map[string]string{}}
	for _, k := range keys.All() {
		if k.Group == "" {
			continue
		}
		if w.at[k.Group] == nil || len(k.Path) < len(w.at[k.Group].Path) {
			w.at[k.Group] = k
		}
		w.also[k.Group] = append(w.also[k.Group], k.Path)
	}
	for _, p := range keyPagesOf {
		for _, group := range p.groups {
			w.page[group] = p.name
		}
	}
	for group, k := range w.at {
		if strings.HasPrefix(k.Path, "checks") {
			w.page[group] = "checks.md"
		}
		if w.page[group] == "" {
			t.Errorf("no page of the reference has the keys of %s", k.Path)
		}
	}
	return w
}

func keyPages(t *testing.T) map[string]string {
	w, pages := newKeyWriter(t), map[string]string{}
	for _, of := range keyPagesOf {
		p := newPage(of.title, of.purpose)
		if of.name == "file.md" {
			fileWords(p)
		}
		for _, group := range of.groups {
			w.section(p, group)
		}
		pages[of.name] = strings.TrimRight(p.String(), "\n") + "\n"
	}
	return pages
}

// fileWords writes what holds for all keys.
func fileWords(p *page) {
	p.prose("A file is YAML 1.2 with strict types: an unknown key, a wrong type and a missing unit are "+
		"errors with `file:line:column`. All errors are reported at once, and nothing is changed on the "+
		"host. `railbed validate FILE` reports them without a run. `railbed schema` prints the JSON "+
		"Schema, with which editors complete and check files. A key exists since release %s, unless "+
		"its description names a later release.", keys.First)
	p.line("| type | units and form | example |\n|---|---|---|")
	for _, key := range []string{"fabric.links.rate", "fabric.switch.buffer", "fabric.links.delay",
		"fabric.links.loss", "fabric.switch.alpha", "steps.fault.clock.jump", "steps.fault.clock.drift",
		"checks.packets.marks.share"} {
		k, err := keys.Find(key)
		if err != nil {
			panic(err)
		}
		unit := k.Unit
		switch k.Type {
		case "positive number":
			unit = "none; a fraction such as 1/3 is exact"
		case "bound":
			unit = "`>=`, `>`, `<=`, `<`, `==` or `!=` and a quantity, in quotes"
		}
		p.line("| %s | %s | `%s` |", k.Type, unit, k.Value())
	}
	p.line("")
	p.prose("Times and rates are in the testbed's time. With `dilation: 10` the testbed's time runs ten " +
		"times slower than real time: the file and the report keep their values, and the run takes ten " +
		"times longer. Parts that keep real time make the run `degraded` unless `accept-undilated` lists " +
		"them. [FIDELITY.md](../../FIDELITY.md) has the details.")
	p.prose("Each value can be a variable, written `${NAME}`. In the reference, a default of `none` means " +
		"that the setting is absent, and `not judged` that a check does not look at the number. Entries of " +
		"mappings such as `nodes` and `links` have names or globs. The most specific entry wins: a name " +
		"overrides a glob, and a later glob overrides an earlier glob.")
}

// heading is the heading of a group of keys.
func (w *keyWriter) heading(group string) string {
	if path := w.at[group].Path; path != "" {
		return "`" + path + "`"
	}
	return "Keys of the file"
}

func (w *keyWriter) link(from, group string) string {
	to := "#" + anchor(w.heading(group))
	if w.page[group] != from {
		to = w.page[group] + to
	}
	return fmt.Sprintf("[%s](%s)", w.heading(group), to)
}

// section writes a group with its keys.
func (w *keyWriter) section(p *page, group string) {
	k := w.at[group]
	p.line("## %s\n", w.heading(group))
	if words := keys.Group(group); words != "" {
		whole := *k
		whole.Group, whole.Description, whole.Default = "", words, ""
		p.paragraphs(whole.Paragraphs())
	}
	if others := w.others(group); others != "" {
		p.prose("%s", others)
	}
	if example := k.Example(); example != "" && strings.Count(example, "\n") < 20 {
		p.code("yaml", example)
	}
	w.fields(p, group, "###")
}

// others lists the other places that have the keys of a group.
func (w *keyWriter) others(group string) string {
	var paths []string
	for _, path := range w.also[group] {
		if path != w.at[group].Path {
			paths = append(paths, "`"+path+"`")
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return "The same keys are in " + strings.Join(paths, ", ") + "."
}

// fields writes the keys of a group. Those that another group has, too, are described there.
func (w *keyWriter) fields(p *page, group, level string) {
	elsewhere := map[string][]string{}
	var order []string
	for _, f := range w.at[group].Fields() {
		mark := f.Name() + "\n" + f.Description
		if first, there := w.written[mark]; there && first != group {
			if elsewhere[first] == nil {
				order = append(order, first)
			}
			elsewhere[first] = append(elsewhere[first], "`"+f.Name()+"`")
			continue
		}
		w.written[mark] = group
		p.line("%s `%s`\n", level, f.Name())
		w.key(p, f, w.page[group], false)
	}
	for _, first := range order {
		p.prose("The keys %s are described at %s.", strings.Join(elsewhere[first], ", "),
			w.link(w.page[group], first))
	}
}

// key writes one key below its heading. It links to the keys of the value unless they follow.
func (w *keyWriter) key(p *page, k *keys.Key, on string, follow bool) {
	facts := []string{"*" + k.Type + "*"}
	if len(k.Values) > 0 {
		facts[0] += ": `" + strings.Join(k.Values, "`, `") + "`"
	}
	if k.Range != "" {
		facts[0] += ", " + k.Range
	}
	if k.Unit != "" {
		facts = append(facts, "Unit: "+escaped(k.Unit))
	}
	facts = append(facts, "Default: "+escaped(defaultWords(k)))
	if k.Since != keys.First {
		facts = append(facts, "Since: "+k.Since)
	}
	value := k.Value()
	short := len(value) <= 70 && !strings.ContainsAny(value, "`\n")
	if short {
		facts = append(facts, fmt.Sprintf("Example: `%s: %s`", k.Name(), value))
	}
	p.prose("%s.", strings.Join(facts, ". "))
	plain := *k
	plain.Group = ""
	words := plain.Paragraphs()
	if rest, is := strings.CutPrefix(words[0], k.Name()+" "); is {
		words[0] = "`" + k.Name() + "` " + rest
	}
	p.paragraphs(words)
	if !short && strings.Count(k.Example(), "\n") < 20 {
		p.code("yaml", k.Example())
	}
	if k.Group != "" && !follow {
		p.prose("Its keys: %s.", w.link(on, k.Group))
	}
}

// checksPage writes each check with its findings in a run that passes it and in a run that breaks it.
func checksPage(t *testing.T) string {
	w := newKeyWriter(t)
	p := newPage("Checks", "This page is for those who write checks. Each check has its keys, a finding of "+
		"a run that passes it, and a finding of a run that breaks it. A test makes these findings from "+
		"recordings and results in the repository.")
	p.prose("A check is PASS, FAIL or INCONCLUSIVE. It is INCONCLUSIVE if the recording lacks evidence " +
		"that the check needs, and never PASS then. `railbed verify` judges a recording by the same checks.")
	for _, group := range checkGroups {
		k := w.at[group]
		p.line("## %s\n", w.heading(group))
		whole := *k
		whole.Group, whole.Description, whole.Default = "", keys.Group(group), ""
		p.paragraphs(whole.Paragraphs())
		for _, f := range k.Fields() {
			w.check(p, f)
		}
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// check writes a key of a check with its findings and its own keys.
func (w *keyWriter) check(p *page, f *keys.Key) {
	packets := strings.HasPrefix(f.Path, "checks.packets.")
	own := packets && f.Group != "" && w.at[f.Group].Path == f.Path // no other check has these keys
	heading := f.Name()
	if own {
		heading = f.Path
	}
	p.line("### `%s`\n", heading)
	w.key(p, f, "checks.md", own)
	for _, one := range judgedBy(f) {
		p.code("yaml", "checks:\n  - "+inPackets(f, one.Check))
		p.line("%s", wrapped("- PASS: "+escaped(one.Pass), "  "))
		fails := one.Fail
		if one.Detail != "" && one.Detail != one.Fail {
			fails += ". " + one.Detail
		}
		p.line("%s\n", wrapped("- FAIL: "+escaped(fails), "  "))
	}
	if own {
		w.fields(p, f.Group, "####")
	}
}

// inPackets writes a check as an element of the list of checks.
func inPackets(f *keys.Key, check string) string {
	if !strings.HasPrefix(f.Path, "checks.packets.") {
		return check
	}
	return "packets:\n      " + strings.ReplaceAll(check, "\n", "\n      ")
}
