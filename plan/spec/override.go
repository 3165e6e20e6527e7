package spec

import (
	"cmp"
	"maps"
	"path"
	"reflect"
	"strings"

	"railbed/internal/units"
)

// DefaultKey is the key of the settings that every other key overrides.
const DefaultKey = "default"

// Classes of links. They are keys of Fabric.Links that apply to all links of the class.
const (
	HostLink   = "host"   // one end is a node
	FabricLink = "fabric" // both ends are switches
)

// Defaults of settings that neither an entry nor "default" gives.
const (
	defaultRate        = units.Rate(1e9)
	defaultMTU         = 1500
	defaultWeight      = 1
	defaultBuffer      = units.Bytes(256 << 10)
	defaultNICQueue    = units.Bytes(256 << 10)
	defaultMemory      = units.Bytes(256 << 20)
	defaultRanks       = 1
	defaultRuntime     = Netns
	DefaultManagement4 = "172.24.0.0/14"
	DefaultManagement6 = "fd00:a3::/48"
	DefaultLoopbacks4  = "10.0.0.0/16"
	DefaultLinks4      = "10.128.0.0/10"
	DefaultLoopbacks6  = "fd00:a1::/64"
	DefaultLinks6      = "fd00:a2::/64"
)

// Zeros marks the fields of a struct that are zero or empty on purpose. With it "loss: 0%" for one
// link overrides a loss that applies to all. The decoder sets it. A testbed built in Go sets it
// itself where it needs to.
type Zeros uint32

// Fields that can be zero on purpose, besides the settings of links.
const (
	ZeroRanks  Zeros = 1 << 5
	ZeroCPU    Zeros = 1 << 6
	ZeroMemory Zeros = 1 << 7
	ZeroWarmup Zeros = 1 << 8
	ZeroStrict Zeros = 1 << 13
)

// Mark marks the field with a key.
func (z *Zeros) Mark(key string) { *z |= zeroOf[key] }

// Marked reports whether the field with a key is marked.
func (z Zeros) Marked(key string) bool { return z&zeroOf[key] != 0 }

var zeroOf = marks()

// marks returns the marks of keys.
func marks() map[string]Zeros {
	of := map[string]Zeros{"ranks": ZeroRanks, "cpu": ZeroCPU, "memory": ZeroMemory, "warmup": ZeroWarmup,
		"strict": ZeroStrict}
	for _, s := range LinkSettings {
		of[s.Key] = s.zero
	}
	return of
}

// over returns specific if it is set or zero on purpose, otherwise base.
func over[T comparable](specific, base T, onPurpose bool) T {
	if onPurpose {
		return specific
	}
	return cmp.Or(specific, base)
}

// overList is over for lists.
func overList[T any](specific, base []T, onPurpose bool) []T {
	if onPurpose || len(specific) > 0 {
		return specific
	}
	return base
}

// IsGlob reports whether a key or a name in a list is a pattern.
func IsGlob(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// Match reports whether a name equals the pattern or matches it, by the rules of path.Match: * and
// ? stand for any characters, [0-3] and [^a] are classes. A malformed pattern, which Decode
// refuses, matches nothing.
func Match(pattern, name string) bool {
	if pattern == name {
		return true
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

// Get returns the value of a key.
func (o Ordered[T]) Get(key string) (value T, found bool) {
	for _, entry := range o {
		if entry.Key == key {
			return entry.Value, true
		}
	}
	return value, false
}

// Unmatched returns the keys that match none of the names, in order. "default" matches all names.
// Classes of links count as names.
func (o Ordered[T]) Unmatched(names ...string) []string {
	exact := make(map[string]bool, len(names))
	for _, name := range names {
		exact[name] = true
	}
	var unmatched []string
	for _, entry := range o {
		if entry.Key != DefaultKey && !exact[entry.Key] && !matchesAny(entry.Key, names) {
			unmatched = append(unmatched, entry.Key)
		}
	}
	return unmatched
}

func matchesAny(pattern string, names []string) bool {
	if !IsGlob(pattern) {
		return false
	}
	for _, name := range names {
		if Match(pattern, name) {
			return true
		}
	}
	return false
}

// settings calls apply for each entry of the mapping that applies to a name. The order is from the
// least to the most specific entry: "default", the class, globs in the file's order, the name
// itself.
func settings[T any](o Ordered[T], name, class string, apply func(T)) {
	for _, key := range []string{DefaultKey, class} {
		if value, found := o.Get(key); found && key != "" {
			apply(value)
		}
	}
	for _, entry := range o {
		if IsGlob(entry.Key) && Match(entry.Key, name) {
			apply(entry.Value)
		}
	}
	if value, found := o.Get(name); found && name != DefaultKey && name != class {
		apply(value)
	}
}

// NodeFor returns all settings of a node, with defaults. Env and Sysctls are merged key by key.
func (t *Testbed) NodeFor(name string) Node {
	return t.nodeOver(name, Node{Runtime: defaultRuntime, Ranks: defaultRanks, NICQueue: defaultNICQueue})
}

// NodeSettings returns the settings that the file gives for a node, without defaults.
func (t *Testbed) NodeSettings(name string) Node { return t.nodeOver(name, Node{}) }

func (t *Testbed) nodeOver(name string, merged Node) Node {
	settings(t.Nodes, name, "", func(n Node) {
		merged.Runtime = cmp.Or(n.Runtime, merged.Runtime)
		merged.RDMA = cmp.Or(n.RDMA, merged.RDMA)
		if n.Modules != nil {
			merged.Modules = n.Modules
		}
		merged.NICs = cmp.Or(n.NICs, merged.NICs)
		merged.Ranks = over(n.Ranks, merged.Ranks, n.Zero&ZeroRanks != 0)
		merged.CPU = over(n.CPU, merged.CPU, n.Zero&ZeroCPU != 0)
		merged.Memory = over(n.Memory, merged.Memory, n.Zero&ZeroMemory != 0)
		merged.NICQueue = cmp.Or(n.NICQueue, merged.NICQueue)
		merged.NICPath = cmp.Or(n.NICPath, merged.NICPath)
		merged.NICMirror = cmp.Or(n.NICMirror, merged.NICMirror)
		merged.Env = mergedMap(merged.Env, n.Env)
		merged.Sysctls = mergedMap(merged.Sysctls, n.Sysctls)
		merged.Container = n.Container.Over(merged.Container)
		merged.Management = cmp.Or(n.Management, merged.Management)
	})
	return merged
}

func mergedMap(base, specific map[string]string) map[string]string {
	if base == nil && specific == nil {
		return nil
	}
	merged := make(map[string]string, len(base)+len(specific))
	maps.Copy(merged, base)
	maps.Copy(merged, specific)
	return merged
}

// LinkFor returns all settings of a link of a class, with defaults. AToB and BToA of the result are
// set and complete, except that a Queue that no entry sets is zero. Within an entry, settings of
// one direction override settings of both. A more specific entry overrides both.
func (f *Fabric) LinkFor(name, class string) Link {
	return f.linkOver(name, class, Direction{Rate: defaultRate}, defaultMTU, defaultWeight)
}

// LinkSettings returns the settings that the file gives for a link of a class, without defaults.
func (f *Fabric) LinkSettings(name, class string) Link {
	merged := f.linkOver(name, class, Direction{}, 0, 0)
	if reflect.DeepEqual(merged.AToB, merged.BToA) {
		return Link{Direction: *merged.AToB, MTU: merged.MTU, Weight: merged.Weight}
	}
	return Link{MTU: merged.MTU, Weight: merged.Weight, AToB: merged.AToB, BToA: merged.BToA}
}

func (f *Fabric) linkOver(name, class string, both Direction, mtu, weight int) Link {
	ab, ba := both, both
	settings(f.Links, name, class, func(l Link) {
		both = l.Direction.Over(both)
		ab, ba = l.Direction.Over(ab), l.Direction.Over(ba)
		if l.AToB != nil {
			ab = l.AToB.Over(ab)
		}
		if l.BToA != nil {
			ba = l.BToA.Over(ba)
		}
		mtu = cmp.Or(l.MTU, mtu)
		weight = cmp.Or(l.Weight, weight)
	})
	both.Zero, ab.Zero, ba.Zero = 0, 0, 0
	return Link{Direction: both, MTU: mtu, Weight: weight, AToB: &ab, BToA: &ba}
}
