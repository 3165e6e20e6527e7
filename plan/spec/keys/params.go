package keys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/plan/topology"
)

// paramsPath is the key whose entries are the parameters of topologies.
const paramsPath = "fabric.params"

// belowParams returns the name of the parameter that a path such as fabric.params.striped has.
func belowParams(path string) (name string, below bool) {
	name = path[strings.LastIndex(path, ".")+1:]
	return name, name != "*" && (path == paramsPath+"."+name || path == "params."+name)
}

// parameter describes a parameter of topologies, or returns nil.
func parameter(name string) *Key {
	var of []string // the topologies
	var params []topology.Param
	for _, g := range topology.Generators() {
		for _, p := range g.Params {
			if p.Name == name {
				of, params = append(of, g.Name), append(params, p)
			}
		}
	}
	if len(params) == 0 {
		return nil
	}
	return paramKey(of, params)
}

// knownParameter is parameter with an error for an unknown name.
func knownParameter(name string) (*Key, error) {
	if key := parameter(name); key != nil {
		return key, nil
	}
	var known []string
	for _, g := range topology.Generators() {
		for _, p := range g.Params {
			known = append(known, p.Name)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	hint := "they have " + strings.Join(known, ", ")
	if near := nearest.Word(name, known); near != "" {
		hint = "did you mean " + paramsPath + "." + near + "?"
	}
	return nil, fmt.Errorf("topologies have no parameter %q; %s", name, hint)
}

// paramKey makes the key of a parameter that some topologies have.
func paramKey(of []string, params []topology.Param) *Key {
	all, _, _ := descend(Root(), strings.Split(paramsPath, "."))
	key, p := *all, params[0]
	key.Path, key.Type, key.Default = paramsPath+"."+p.Name, "integer", ""
	key.Range = "" // each topology has its own
	key.Description = p.Name + " is a parameter of these topologies:\n"
	for i, p := range params {
		value := "required"
		if !p.Required {
			value = fmt.Sprintf("default %d", p.Default)
		}
		key.Description += fmt.Sprintf("\n  - %s: %s (%s; %s).", of[i], p.Doc,
			strings.TrimPrefix(p.Want(), "want "), value)
	}
	// Four, or the largest value below, is valid for each parameter.
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(min(p.Max, 4))}
	key.example = mapping(p.Name, value)
	return &key
}
