package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/input"
)

// defaultGroup is PyTorch's default process group, which has all ranks. ASTRA-sim takes "0" as this group,
// also if the file of groups has another group 0 (extract_comm_group in its Workload.cc).
const defaultGroup = "0"

// groups are the groups of ranks that collectives name, from a file of ASTRA-sim's form {"1": [0, 1]}.
type groups struct {
	name  string // of the file, or where it could be
	found bool   // the file exists
	ranks map[string][]int
}

// readGroups reads a file of groups for the given number of ranks.
func readGroups(name string, content []byte, ranks int) (groups, error) {
	g := groups{name: name, found: true, ranks: map[string][]int{}}
	var lists map[string][]int
	if err := json.Unmarshal(content, &lists); err != nil || lists == nil {
		what, offset := "there is no object", 0
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			what, offset = err.Error(), max(int(syntax.Offset)-1, 0)
		case errors.As(err, &kind):
			what, offset = kind.Value+" is no list of ranks", max(int(kind.Offset)-1, 0)
		}
		line, column := input.Position(content, offset)
		return g, fmt.Errorf(`%s:%d:%d: read groups of ranks: %s: want an object such as {"1": [0, 1]}`, name,
			line, column, what)
	}
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		wrong := func(format string, args ...any) error {
			line, column := input.Position(content, keyAt(content, key))
			return fmt.Errorf("%s:%d:%d: group %s: %s", name, line, column, shown(key),
				fmt.Sprintf(format, args...))
		}
		group, members := groupName(key), lists[key]
		if _, twice := g.ranks[group]; twice {
			return g, wrong("the file has group %s twice, want each once", shown(group))
		}
		if len(members) == 0 {
			return g, wrong("it has no ranks, want at least one")
		}
		seen := map[int]bool{}
		for _, rank := range members {
			if rank < 0 || rank >= ranks || seen[rank] {
				return g, wrong("it has rank %d, want ranks from 0 to %d, each once, as there are %d traces",
					rank, ranks-1, ranks)
			}
			seen[rank] = true
		}
		if group == defaultGroup && len(members) != ranks {
			return g, wrong("it has %d of the %d ranks, but group 0 is all ranks (PyTorch's default process "+
				"group): give a smaller group another number", len(members), ranks)
		}
		g.ranks[group] = members
	}
	return g, nil
}

// groupName returns the name of a group without a fraction of zeros: "1" for "1.0". Tools that keep
// attributes as floating-point numbers write such a fraction. ASTRA-sim reads names with std::stoi.
func groupName(name string) string {
	whole, zeros, found := strings.Cut(strings.TrimSpace(name), ".")
	if found && strings.Trim(zeros, "0") == "" && whole != "" && strings.Trim(whole, "0123456789") == "" {
		return whole
	}
	return strings.TrimSpace(name)
}

// keyAt returns the offset of a key of an object.
func keyAt(content []byte, key string) int {
	quoted, _ := json.Marshal(key)
	return max(bytes.Index(content, quoted), 0)
}

// group returns the ranks of a collective.
func (c *chakra) group(node *chakraNode) (name string, ranks []int, err error) {
	group := groupName(node.group)
	if group == "" || group == defaultGroup {
		for rank := range c.ranks {
			ranks = append(ranks, rank)
		}
		return "all", ranks, nil
	}
	ranks, known := c.groups.ranks[group]
	switch where := c.groups.name; {
	case known && slices.Contains(ranks, c.rank):
		return group, ranks, nil
	case known:
		return "", nil, c.errorAt(node.offset, "node %d has group %s, which has the ranks %v in %s, want a "+
			"group with rank %d, whose trace this is", node.id, shown(node.group), ranks, where, c.rank)
	case c.groups.found:
		return "", nil, c.errorAt(node.offset, "node %d has group %s, which %s does not have, want one of "+
			"its groups: %s", node.id, shown(node.group), where,
			strings.Join(slices.Sorted(maps.Keys(c.groups.ranks)), ", "))
	default:
		return "", nil, c.errorAt(node.offset, "node %d has group %s, and there is no file of groups %s: "+
			"make it, or name the file with groups: of the step", node.id, shown(node.group), where)
	}
}
