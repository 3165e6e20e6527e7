package keys

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"railbed/internal/nearest"
)

// all are the keys of a file, parents first.
var all = sync.OnceValue(func() []*Key {
	var found []*Key
	var walk func(k *Key)
	walk = func(k *Key) {
		for _, f := range k.Fields() {
			found = append(found, f)
			walk(f)
		}
	}
	walk(Root())
	return found
})

// All returns the keys of a file, parents first.
func All() []*Key { return slices.Clone(all()) }

// Name returns the last part of the path.
func (k *Key) Name() string { return k.name }

// subscript is the part of a path that names an entry or a position, as error messages write it.
var subscript = regexp.MustCompile(`\["[^"]*"\]|\[[0-9*]+\]`)

// Find returns the key at a path. The path may begin below the root, as in links.loss, if all keys with this
// path have the same meaning. It may have names of entries and positions, as in nodes.h0.cpu and steps[0].at.
// If it ends with the name of an entry, as fabric.links.default, Find returns the key with the entries. A
// path that is no key can be a parameter of topologies, as fabric.params.striped or striped.
func Find(path string) (*Key, error) {
	path = strings.Trim(subscript.ReplaceAllString(path, ""), ".")
	if path == "" {
		return Root(), nil
	}
	parts := strings.Split(path, ".")
	if name, below := belowParams(path); below {
		return knownParameter(name)
	}
	found, known, at := descend(Root(), parts)
	if known {
		return found, nil
	}
	ends := endingWith(path)
	if key := parameter(path); key != nil && len(ends) == 0 {
		return key, nil
	}
	if alike(ends) {
		return first(ends), nil
	}
	if len(ends) > 0 {
		return nil, fmt.Errorf("%s is a key in several places; want one of %s", path, pathsOf(ends, 8))
	}
	if ends := endingWith(parts[0]); at == 0 && alike(ends) && len(parts) > 1 {
		key, known, next := descend(first(ends), parts[1:])
		if known {
			return key, nil
		}
		found, at = key, next+1
	}
	return nil, unknown(found, parts, at)
}

// unknown returns the error for a part of a path that is no key of the key before it.
func unknown(found *Key, parts []string, at int) error {
	where, they := "files have", "they have"
	if at > 0 {
		where, they = found.Path+" has", "it has"
	}
	fields := found.Fields()
	near := nearby(found, parts, at)
	switch {
	case len(fields) == 0:
		they += " no keys"
	case near != "":
		they = "did you mean " + near + "?"
	case at == 0 && len(mentioning(parts[0])) > 0:
		they = "keys whose descriptions have this word: " + pathsOf(mentioning(parts[0]), 5)
	default:
		they += " " + strings.Join(names(fields), ", ")
	}
	return fmt.Errorf("%s no key %q; %s", where, parts[at], they)
}

// descend follows the parts of a path. If a part is unknown it returns the key before it, and its position.
func descend(from *Key, parts []string) (found *Key, known bool, at int) {
	for i, part := range parts {
		fields := from.Fields()
		next := slices.IndexFunc(fields, func(f *Key) bool { return f.name == part })
		if next >= 0 {
			from = fields[next]
			continue
		}
		switch last := i+1 == len(parts); {
		case from.entries && len(fields) == 0: // a name such as net.core.rmem_max
			return from, true, len(parts)
		case from.entries && !last && field(fields, parts[i+1]),
			from.entries && from.isEntry(part) && (last || nearest.Word(parts[i+1], names(fields)) != ""):
			continue // the name of an entry
		}
		return from, false, i
	}
	return from, true, len(parts)
}

// isEntry reports whether an unknown part of a path is the name of an entry, and not a misspelt key of an
// entry. Names of nodes and globs of links have characters that few keys have. Descriptions quote special
// names such as "default".
func (k *Key) isEntry(part string) bool {
	return strings.ContainsAny(part, "0123456789*?") ||
		strings.Contains(k.Description, strconv.Quote(part)) ||
		nearest.Word(part, names(k.Fields())) == ""
}

// mentioning returns the keys whose descriptions have a word, or its singular.
func mentioning(word string) (found []*Key) {
	whole, err := regexp.Compile(`(?i)\b` + regexp.QuoteMeta(strings.TrimSuffix(word, "s")) + `s?\b`)
	if err != nil || len(word) < 3 {
		return nil
	}
	described := map[string]bool{}
	for _, k := range all() {
		if !described[k.Description] && whole.MatchString(k.Description) {
			found = append(found, k)
		}
		described[k.Description] = true
	}
	return found
}

func field(fields []*Key, name string) bool {
	return slices.ContainsFunc(fields, func(f *Key) bool { return f.name == name })
}

// endingWith returns the keys whose paths end with a path.
func endingWith(path string) (ends []*Key) {
	for _, k := range all() {
		if strings.HasSuffix(k.Path, "."+path) {
			ends = append(ends, k)
		}
	}
	return ends
}

// first returns the key with the shortest path, with the other paths.
func first(keys []*Key) *Key {
	slices.SortStableFunc(keys, func(a, b *Key) int { return len(a.Path) - len(b.Path) })
	key := *keys[0]
	for _, other := range keys[1:] {
		key.Also = append(key.Also, other.Path)
	}
	return &key
}

// alike reports whether there are keys, and all have the same meaning.
func alike(keys []*Key) bool {
	if len(keys) == 0 {
		return false
	}
	for _, k := range keys {
		if k.Description != keys[0].Description || k.Type != keys[0].Type {
			return false
		}
	}
	return true
}

// nearby returns the path that a wrong path most likely meant, or "".
func nearby(found *Key, parts []string, at int) string {
	attempt := slices.Clone(parts)
	if near := nearest.Word(parts[at], names(found.Fields())); near != "" {
		attempt[at] = near
		if right, err := Find(strings.Join(attempt, ".")); err == nil {
			return right.Path
		}
		return strings.TrimPrefix(found.Path+"."+near, ".")
	}
	last := parts[len(parts)-1]
	if ends := endingWith(last); len(parts) > 1 && len(ends) > 0 {
		return pathsOf(ends, 3)
	}
	for some := range slices.Chunk(distinct(), 200) {
		if near := nearest.Word(parts[at], some); near != "" {
			return pathsOf(endingWith(near), 3)
		}
	}
	return ""
}

func names(keys []*Key) (found []string) {
	for _, k := range keys {
		found = append(found, k.name)
	}
	return found
}

// distinct returns the names of all keys.
func distinct() []string {
	found := names(all())
	slices.Sort(found)
	return slices.Compact(found)
}

// pathsOf lists paths, the shortest first, but not more than a number of them.
func pathsOf(keys []*Key, most int) string {
	var paths []string
	for _, k := range keys {
		paths = append(paths, k.Path)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return len(a) - len(b) })
	if len(paths) > most {
		paths = append(paths[:most], fmt.Sprintf("%d more", len(paths)-most))
	}
	return strings.Join(paths, ", ")
}
