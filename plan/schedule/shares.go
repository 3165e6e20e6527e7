package schedule

// shares is a gather or a scatter. By direct the root exchanges each rank's share with that rank,
// the next rank first, as NCCL does. By binomial the shares pass the ranks of a binomial tree in
// log2(n) rounds, so that the root has as many partners. Each share is a separate message. Source:
// Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005.
func shares(kind Kind, algorithm string, n, root int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: algorithm, Root: root, Chunks: n}, n, 1)
	b.keep(root, root)
	at := func(place int) int { return (place + root) % n }
	// move passes the shares of count positions, from place on, between place and a position nearer
	// to the root.
	move := func(nearer, place, count int) {
		from, to := at(nearer), at(place)
		if kind == Gather {
			from, to = to, from
		}
		for p := place; p < place+count; p++ {
			b.send(0, from, to, at(p), 1)
			b.receive(0, from, to, at(p), 1)
		}
	}
	switch {
	case algorithm == Direct:
		for place := 1; place < n; place++ {
			move(0, place, 1)
		}
	case kind == Scatter:
		for distance := ceilPower(n) / 2; distance > 0; distance /= 2 {
			for v := 0; v+distance < n; v += 2 * distance {
				move(v, v+distance, min(distance, n-v-distance))
			}
		}
	default:
		for distance := 1; distance < n; distance *= 2 {
			for v := 0; v+distance < n; v += 2 * distance {
				move(v, v+distance, min(distance, n-v-distance))
			}
		}
	}
	return b.Schedule
}
