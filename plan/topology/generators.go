package topology

import "fmt"

// generators is the table of all topologies. The number of links is exact if it is a product of
// parameters. For the torus it is an upper bound.
var generators = []Generator{
	{
		Name: SingleSwitch, Summary: "every host on one switch",
		Params: []Param{{Name: "hosts", Required: true, Min: 1, Max: 4096, Doc: "hosts on the switch"}},
		size:   func(p map[string]int) size { return size{p["hosts"], 1, p["hosts"]} },
		build:  buildSingleSwitch,
	},
	{
		Name: LeafSpine, Summary: "two tiers: every leaf is wired to every spine",
		Params: []Param{
			{Name: "leaves", Required: true, Min: 1, Max: 1024, Doc: "leaf switches"},
			{Name: "spines", Required: true, Min: 1, Max: 256, Doc: "spine switches"},
			{Name: "hosts-per-leaf", Required: true, Min: 1, Max: 1024, Doc: "hosts on each leaf"},
			{Name: "striped", Default: 0, Min: 0, Max: 1,
				Doc: "1 numbers the hosts across the leaves, so that neighbours in a ring are on different " +
					"leaves"},
		},
		size: func(p map[string]int) size {
			hosts := p["leaves"] * p["hosts-per-leaf"]
			return size{hosts, p["leaves"] + p["spines"], hosts + p["leaves"]*p["spines"]}
		},
		build: buildLeafSpine,
	},
	{
		Name:    FatTree,
		Summary: "three tiers of k-port switches, k pods, k^3/4 hosts (Al-Fares, SIGCOMM 2008)",
		Params: []Param{{Name: "k", Required: true, Min: 2, Max: 24, Even: true,
			Doc: "ports of each switch"}},
		size: func(p map[string]int) size {
			hosts := p["k"] * p["k"] * p["k"] / 4
			return size{hosts, 5 * p["k"] * p["k"] / 4, 3 * hosts}
		},
		build: buildFatTree,
	},
	{
		Name:    RailOptimized,
		Summary: "NIC i of every server is on rail switch i, leaf1 to leafN; spines join the rails",
		Params: []Param{
			{Name: "servers", Required: true, Min: 1, Max: 4096, Doc: "servers"},
			{Name: "rails", Required: true, Min: 1, Max: 64, Doc: "rails, and NICs of each server"},
			{Name: "spines", Default: 0, Min: 0, Max: 256,
				Doc: "spine switches above the rails; without any the rails stay apart"},
		},
		size: func(p map[string]int) size {
			return size{p["servers"], p["rails"] + p["spines"], (p["servers"] + p["spines"]) * p["rails"]}
		},
		build: buildRailOptimized,
	},
	{
		Name: HPN, Summary: "dual-ToR, dual-plane rails in segments (Alibaba HPN, SIGCOMM 2024)",
		Params: []Param{
			{Name: "segments", Required: true, Min: 1, Max: 64, Doc: "segments"},
			{Name: "servers", Required: true, Min: 1, Max: 1024, Doc: "servers of each segment"},
			{Name: "rails", Required: true, Min: 1, Max: 16,
				Doc: "rails; each server has two ports per rail, one to each plane"},
			{Name: "aggs", Required: true, Min: 1, Max: 256, Doc: "aggregation switches of each plane"},
		},
		size: func(p map[string]int) size {
			hosts := p["segments"] * p["servers"]
			return size{hosts, 2 * (p["segments"]*p["rails"] + p["aggs"]),
				2 * p["rails"] * (hosts + p["segments"]*p["aggs"])}
		},
		build: buildHPN,
	},
	{
		Name: Torus, Summary: "switches in a grid of up to three dimensions, each with wrap-around links",
		Params: []Param{
			{Name: "x", Required: true, Min: 1, Max: 64, Doc: "switches along x"},
			{Name: "y", Default: 1, Min: 1, Max: 64, Doc: "switches along y"},
			{Name: "z", Default: 1, Min: 1, Max: 64, Doc: "switches along z"},
			{Name: "hosts-per-switch", Default: 1, Min: 1, Max: 256, Doc: "hosts on each switch"},
		},
		size: func(p map[string]int) size {
			switches := p["x"] * p["y"] * p["z"]
			return size{switches * p["hosts-per-switch"], switches, switches * (3 + p["hosts-per-switch"])}
		},
		build: buildTorus,
	},
	{
		Name:    Dragonfly,
		Summary: "groups of fully connected switches, with links between every two groups (Kim, ISCA 2008)",
		Params: []Param{
			{Name: "groups", Required: true, Min: 2, Max: 512, Doc: "groups"},
			{Name: "switches", Required: true, Min: 1, Max: 64, Doc: "switches of each group"},
			{Name: "hosts-per-switch", Default: 1, Min: 1, Max: 256, Doc: "hosts on each switch"},
			{Name: "global-links", Default: 1, Min: 1, Max: 64,
				Doc: "links of each switch to other groups, divided evenly among them"},
		},
		size: func(p map[string]int) size {
			g, a := p["groups"], p["switches"]
			hosts := g * a * p["hosts-per-switch"]
			return size{hosts, g * a, hosts + g*a*(a-1)/2 + g*(g-1)/2*dragonflyLinks(p)}
		},
		check: func(p map[string]int) *ParamError {
			if dragonflyLinks(p) > 0 {
				return nil
			}
			return &ParamError{Param: "groups",
				What: fmt.Sprintf("dragonfly: %d groups, whose %d switches with %d global-links reach %d "+
					"others",
					p["groups"], p["switches"], p["global-links"], p["switches"]*p["global-links"]),
				Want: fmt.Sprintf("want at most %d groups, or more switches or global-links",
					p["switches"]*p["global-links"]+1)}
		},
		build: buildDragonfly,
	},
}

func buildSingleSwitch(b *builder, p map[string]int) {
	sw := b.addSwitch(Switch{Name: "leaf1", Role: roleLeaf})
	for range p["hosts"] {
		b.wireHost(b.addHost(), sw)
	}
}

func buildLeafSpine(b *builder, p map[string]int) {
	leaves := b.addSwitches(p["leaves"], Switch{Name: "leaf", Role: roleLeaf})
	spines := b.addSwitches(p["spines"], Switch{Name: "spine", Role: roleSpine, Tier: 1})
	for i := range p["leaves"] * p["hosts-per-leaf"] {
		leaf := i / p["hosts-per-leaf"]
		if p["striped"] == 1 {
			leaf = i % p["leaves"]
		}
		b.wireHost(b.addHost(), leaves[leaf])
	}
	b.wireAll(leaves, spines)
}

// buildFatTree follows Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center network
// architecture". Core switch c belongs to row c/(k/2), and row r is wired to aggregation switch r
// of every pod.
func buildFatTree(b *builder, p map[string]int) {
	half := p["k"] / 2
	var leaves, aggs []int
	for pod := range p["k"] {
		for i := range half {
			leaves = append(leaves, b.addSwitch(Switch{Name: fmt.Sprintf("leaf%d", pod*half+i+1),
				Role: roleLeaf, Group: fmt.Sprintf("pod%d", pod+1)}))
		}
	}
	for pod := range p["k"] {
		for i := range half {
			aggs = append(aggs, b.addSwitch(Switch{Name: fmt.Sprintf("agg%d", pod*half+i+1), Role: roleAgg,
				Tier: 1, Group: fmt.Sprintf("pod%d", pod+1)}))
		}
	}
	cores := b.addSwitches(half*half, Switch{Name: "core", Role: roleCore, Tier: 2})
	for _, leaf := range leaves {
		for range half {
			b.wireHost(b.addHost(), leaf)
		}
	}
	for pod := range p["k"] {
		b.wireAll(leaves[pod*half:(pod+1)*half], aggs[pod*half:(pod+1)*half])
	}
	for i, agg := range aggs {
		row := i % half
		for _, core := range cores[row*half : (row+1)*half] {
			b.wire(agg, core)
		}
	}
}

func buildRailOptimized(b *builder, p map[string]int) {
	var rails []int
	for i := range p["rails"] {
		rails = append(rails, b.addSwitch(
			Switch{Name: fmt.Sprintf("leaf%d", i+1), Role: roleLeaf, Group: fmt.Sprintf("rail%d", i+1)}))
	}
	spines := b.addSwitches(p["spines"], Switch{Name: "spine", Role: roleSpine, Tier: 1})
	for range p["servers"] {
		host := b.addHost()
		for _, rail := range rails {
			b.wireHost(host, rail)
		}
	}
	b.wireAll(rails, spines)
}

// buildHPN follows Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model
// Training". Rail r of a segment has two ToRs, one in each plane. The server's ports eth(2r) and
// eth(2r+1) go to them. A ToR is wired only to the aggregation switches of its own plane. ToRs are
// ordered by plane first, so that the addresses of a plane are adjacent and its routes aggregate.
func buildHPN(b *builder, p map[string]int) {
	segments, rails := p["segments"], p["rails"]
	b.graph.Planes = 2
	tors := map[[3]int]int{} // by segment, rail, plane
	planes := [2][]int{}
	for plane := range 2 {
		for segment := range segments {
			for rail := range rails {
				id := b.addSwitch(Switch{
					Name: fmt.Sprintf("tor-s%dr%d%c", segment+1, rail+1, 'a'+plane),
					Role: roleTor, Group: planeName(plane),
				})
				tors[[3]int{segment, rail, plane}] = id
				planes[plane] = append(planes[plane], id)
			}
		}
	}
	var aggs [2][]int
	for plane := range 2 {
		aggs[plane] = b.addSwitches(p["aggs"],
			Switch{Name: fmt.Sprintf("agg-%c", 'a'+plane), Role: roleAgg, Tier: 1, Group: planeName(plane)})
	}
	for segment := range segments {
		for range p["servers"] {
			host := b.addHost()
			for rail := range rails {
				for plane := range 2 {
					b.wireHost(host, tors[[3]int{segment, rail, plane}])
				}
			}
		}
	}
	for plane := range 2 {
		b.wireAll(planes[plane], aggs[plane])
	}
}

func planeName(plane int) string { return fmt.Sprintf("plane-%c", 'a'+plane) }

// buildTorus wires each switch to its successor in every dimension, and the last one to the first.
// In a dimension of size two both links would join the same pair of switches, so the pair gets one
// link.
func buildTorus(b *builder, p map[string]int) {
	size := [3]int{p["x"], p["y"], p["z"]}
	dimensions := 3
	for dimensions > 1 && size[dimensions-1] == 1 {
		dimensions--
	}
	at := map[[3]int]int{}
	var order [][3]int
	for x := range size[0] {
		for y := range size[1] {
			for z := range size[2] {
				c := [3]int{x, y, z}
				name := "sw"
				for d := range dimensions {
					name += fmt.Sprintf("%s%d", map[bool]string{true: "-"}[d > 0], c[d])
				}
				at[c] = b.addSwitch(Switch{Name: name, Role: roleSwitch, At: c[:dimensions:dimensions]})
				order = append(order, c)
			}
		}
	}
	for _, c := range order {
		for range p["hosts-per-switch"] {
			b.wireHost(b.addHost(), at[c])
		}
	}
	for _, c := range order {
		for d := range 3 {
			next := c
			next[d] = (c[d] + 1) % size[d]
			if size[d] < 2 || size[d] == 2 && c[d] == 1 {
				continue
			}
			first, second := at[c], at[next]
			b.wire(min(first, second), max(first, second))
		}
	}
}

// dragonflyLinks returns the number of links between two groups.
func dragonflyLinks(p map[string]int) int {
	return p["switches"] * p["global-links"] / (p["groups"] - 1)
}

// buildDragonfly follows Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly
// topology". The switches of a group act as one router with many ports. That router's global ports
// go to the groups after it in turn, the next group first. Each switch has consecutive global
// ports.
func buildDragonfly(b *builder, p map[string]int) {
	groups, each := p["groups"], p["switches"]
	of := make([][]int, groups)
	for g := range groups {
		for i := range each {
			of[g] = append(of[g], b.addSwitch(
				Switch{Name: fmt.Sprintf("g%d-sw%d", g+1, i+1), Role: roleSwitch,
					Group: fmt.Sprintf("group%d", g+1)}))
		}
	}
	for g := range groups {
		for _, sw := range of[g] {
			for range p["hosts-per-switch"] {
				b.wireHost(b.addHost(), sw)
			}
		}
	}
	for g := range groups {
		for i, first := range of[g] {
			for _, second := range of[g][i+1:] {
				b.wire(first, second)
			}
		}
	}
	links := dragonflyLinks(p)
	for g := range groups {
		for other := g + 1; other < groups; other++ {
			for k := range links {
				there, back := (other-g-1)*links+k, (groups-other+g-1)*links+k
				b.wire(of[g][there/p["global-links"]], of[other][back/p["global-links"]])
			}
		}
	}
}
