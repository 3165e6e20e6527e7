package flows

import (
	"math"
	"slices"

	"railbed/internal/units"
)

// Sizes is a distribution of message sizes: the share of messages of at most a given number of
// bytes, linear between points.
type Sizes struct{ points []point }

type point struct{ bytes, share float64 }

// Published are distributions from papers, by name.
var Published = map[string]*Sizes{
	// Query and other traffic of a web search cluster: Alizadeh et al., "Data center TCP", 2010, as
	// in the artefact of Li et al., "HPCC", 2019.
	"web-search": {points: []point{{0, 0}, {10e3, .15}, {20e3, .2}, {30e3, .3}, {50e3, .4}, {80e3, .53},
		{200e3, .6}, {1e6, .7}, {2e6, .8}, {5e6, .9}, {10e6, .97}, {30e6, 1}}},
	// A data mining cluster: Greenberg et al., "VL2", 2009, in packets of 1,460 bytes as in
	// Alizadeh et al., "pFabric", 2013.
	"data-mining": {points: []point{{1460, 0}, {1460, .5}, {2 * 1460, .6}, {3 * 1460, .7}, {7 * 1460, .8},
		{267 * 1460, .9}, {2107 * 1460, .95}, {66667 * 1460, .99}, {666667 * 1460, 1}}},
	// Hadoop at Facebook: Roy et al., "Inside the social network's (datacenter) network", 2015, as
	// in HPCC's artefact.
	"hadoop": {points: []point{{0, 0}, {100, .01}, {200, .02}, {300, .05}, {350, .15}, {400, .2}, {500, .3},
		{600, .4}, {700, .5}, {1e3, .6}, {2e3, .67}, {7e3, .7}, {30e3, .72}, {50e3, .82}, {80e3, .87},
		{120e3, .9}, {300e3, .95}, {1e6, .975}, {2e6, .99}, {10e6, 1}}},
	// Alibaba's block storage in 2019, from HPCC's artefact.
	"storage": {points: []point{{0, 0}, {4e3, .2293}, {8e3, .6921}, {16e3, .8061}, {32e3, .9047},
		{64e3, .9353}, {128e3, .9677}, {256e3, .9753}, {2e6, 1}}},
}

// Scaled returns the distribution with all sizes multiplied by a factor, for links that are slower
// than the measured links.
func (s *Sizes) Scaled(by float64) *Sizes {
	scaled := &Sizes{points: slices.Clone(s.points)}
	for i := range scaled.points {
		scaled.points[i].bytes *= by
	}
	return scaled
}

// At returns the size that the given share of messages does not exceed, at least one byte.
func (s *Sizes) At(share float64) units.Bytes {
	i, _ := slices.BinarySearchFunc(s.points, share, func(p point, share float64) int {
		if p.share <= share {
			return -1
		}
		return 1
	})
	if i == len(s.points) {
		return round(s.points[i-1].bytes)
	}
	if i == 0 {
		return round(s.points[0].bytes)
	}
	a, b := s.points[i-1], s.points[i]
	return round(a.bytes + (b.bytes-a.bytes)*(share-a.share)/(b.share-a.share))
}

func round(size float64) units.Bytes { return units.Bytes(max(1, math.Round(size))) }

// Mean returns the mean size in bytes.
func (s *Sizes) Mean() float64 {
	mean := s.points[0].bytes * s.points[0].share
	for i, p := range s.points[1:] {
		before := s.points[i]
		mean += (before.bytes + p.bytes) / 2 * (p.share - before.share)
	}
	return mean
}

// Most returns the largest size.
func (s *Sizes) Most() units.Bytes { return round(s.points[len(s.points)-1].bytes) }
