package spec

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
)

// MaxNodes bounds the nodes that one file can name.
const MaxNodes = 4096

// Check finds all problems of the testbed that need no finished fabric, and returns them as
// Problems. Decode has called it. A testbed that was built in Go needs the call. Problems name
// fields by their keys in files.
func (t *Testbed) Check() error { return t.check(nil).Err() }

// check does as Check, but skips problems that would repeat a problem with one of the wrong paths.
func (t *Testbed) check(wrong map[string]bool) Problems {
	c := newChecker(t, wrong)
	c.named, c.runs = t.workloads(), t.stacks()
	for _, name := range c.named {
		c.workloads[name] = true
	}
	c.Tags("", t)
	c.name()
	c.addressing()
	c.fabric()
	c.nodes()
	c.steps()
	c.checks()
	return c.Problems
}

func newChecker(t *Testbed, wrong map[string]bool) *checker {
	c := &checker{Checker: strictyaml.NewChecker(t.Source, wrong), t: t, workloads: map[string]bool{},
		taken: map[string]string{}, files: map[string]string{},
		rotated: map[string]string{}}
	c.Enums = enums
	return c
}

type checker struct {
	*strictyaml.Checker
	t *Testbed
	// named holds the names of workloads and runs those of the stacks' runs, in order.
	named, runs []string
	workloads   map[string]bool
	// taken are the steps that use a name, files the captures that write a file, and rotated the captures
	// that write several files, by the first file.
	taken, files, rotated map[string]string
}

// enums are the enumerations that follow from the kinds of package schedule.
var enums = map[string][]string{"KINDS": WorkloadKinds(), "FORMULAS": formulas()}

// enumOf returns the values of a key of T that has an enumeration.
func enumOf[T any](key string) []string {
	return strictyaml.FieldOf(reflect.TypeFor[T](), key).Words(enums)
}

// Forms of names. The kernel's limit for a hostname is 64 bytes. The length of a node's name leaves
// room in it and, together with the testbed's name, in a file name.
var (
	testbedName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,23}$`)
	nodeName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,23}$`)
	portName    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,14}$`)
	captureName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}\.pcapng$`)
	// globForm matches a pattern over names: names, the wildcards of path.Match, and the colon and
	// dashes of link names and taps.
	globForm = regexp.MustCompile(`^[a-zA-Z0-9:._*?\[\]^-]+$`)
)

const (
	testbedNameForm = "1 to 24 characters of a-z, 0-9 and -, the first not -"
	nodeNameForm    = "at most 24 characters of a-z, 0-9 and -, the first a letter"
	portNameForm    = "at most 15 characters of a-z, A-Z, 0-9, dot, - and _, the first a letter or digit"
)

func (c *checker) name() {
	if name := c.t.Name; name != "" && !testbedName.MatchString(name) {
		c.Report("name", fmt.Sprintf("invalid name %q", printable.Clip(name)), "want "+testbedNameForm)
	}
	if strings.ContainsAny(c.t.Description, "\r\n") {
		c.Report("description", "description has several lines", "write one line")
	}
	for i, what := range c.t.AcceptUndilated {
		path := fmt.Sprintf("accept-undilated[%d]", i)
		switch {
		case !slices.Contains(Undilated, what):
			c.Report(path, fmt.Sprintf("unknown part %q in accept-undilated", printable.Clip(what)),
				"want "+strings.Join(Undilated, " or "))
		case slices.Contains(c.t.AcceptUndilated[:i], what):
			c.Report(path, fmt.Sprintf("%q is accepted twice", what), "remove one")
		case c.t.Dilation <= 1:
			c.Report(path, "accept-undilated without dilation", "remove it, or set a dilation above 1")
		}
	}
	required := map[string]bool{}
	for i, feature := range c.t.Requires {
		path := fmt.Sprintf("requires[%d]", i)
		twice := required[feature]
		required[feature] = true
		file := RequiredFile(feature) && !strings.ContainsRune(feature, 0)
		if !file && !requiredName.MatchString(feature) {
			c.Report(path, fmt.Sprintf("invalid feature %q", printable.Clip(feature)),
				"want a name that `railbed doctor` prints, such as netem, the name of a program without its "+
					"folder, such as redis-server, or a file, such as ./model.xml")
		} else if twice {
			c.Report(path, fmt.Sprintf("feature %q is required twice", feature), "remove one")
		}
	}
}

// addressing checks the form of the pools and that no two of them overlap. The plan checks their
// sizes.
func (c *checker) addressing() {
	a := c.t.Addressing
	type pool struct {
		key, text, fallback string
		is4                 bool
		parsed              netip.Prefix
	}
	pools := []pool{
		{key: "loopbacks4", text: a.Loopbacks4, fallback: DefaultLoopbacks4, is4: true},
		{key: "links4", text: a.Links4, fallback: DefaultLinks4, is4: true},
		{key: "loopbacks6", text: a.Loopbacks6, fallback: DefaultLoopbacks6},
		{key: "links6", text: a.Links6, fallback: DefaultLinks6},
	}
	managed := slices.ContainsFunc(c.t.Nodes, func(n Entry[Node]) bool { return n.Value.Management != nil })
	if a.Management4 != "" || managed {
		pools = append(pools, pool{key: "management4", text: a.Management4, fallback: DefaultManagement4,
			is4: true})
	}
	if a.Management6 != "" || managed {
		pools = append(pools, pool{key: "management6", text: a.Management6, fallback: DefaultManagement6})
	}
	for i, pool := range pools {
		path := strictyaml.FieldPath("addressing", pool.key)
		want := "want an IPv6 prefix such as " + pool.fallback
		if pool.is4 {
			want = "want an IPv4 prefix such as " + pool.fallback
		}
		text := pool.text
		if text == "" && !c.Source.Has(path) {
			text = pool.fallback
		}
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil || prefix.Addr().Is4() != pool.is4:
			c.Report(path, fmt.Sprintf("%s is %q", path, printable.Clip(text)), want)
			continue
		case prefix != prefix.Masked():
			c.Report(path, fmt.Sprintf("%s %q has host bits set", path, text),
				"want "+prefix.Masked().String())
			continue
		case !unicast(prefix):
			c.Report(path, fmt.Sprintf("%s %q holds addresses that hosts cannot have", path, text), want)
			continue
		}
		pools[i].parsed = prefix
		for _, other := range pools[:i] {
			if other.parsed.IsValid() && other.parsed.Overlaps(prefix) {
				c.overlap(path, strictyaml.FieldPath("addressing", other.key), prefix, other.parsed)
			}
		}
	}
}

// overlap reports two pools with common addresses. If one of them is a default, the position is
// that of the pool in the file.
func (c *checker) overlap(path, other string, prefix, otherPrefix netip.Prefix) {
	if !c.Source.Has(path) {
		path, other, prefix, otherPrefix = other, path, otherPrefix, prefix
	}
	c.Report(path, fmt.Sprintf("%s %s overlaps %s %s", path, prefix, other, otherPrefix),
		"give each pool addresses of its own")
}

// unusable holds the ranges with special meanings, from which a node cannot have an address.
var unusable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func unicast(prefix netip.Prefix) bool {
	return !slices.ContainsFunc(unusable, prefix.Overlaps)
}

// pattern checks a name or glob.
func (c *checker) pattern(report func(path, what, want string), at, pattern, kind string, name *regexp.Regexp,
	form string) {
	if !IsGlob(pattern) {
		if !name.MatchString(pattern) {
			report(at, fmt.Sprintf("invalid %s %q", kind, printable.Clip(pattern)), "want "+form)
		}
		return
	}
	if _, err := path.Match(pattern, ""); err != nil || !globForm.MatchString(pattern) {
		report(at, fmt.Sprintf("invalid pattern %q", printable.Clip(pattern)),
			`want names with *, ? and [0-9], as in "h[0-3]"`)
	}
}
