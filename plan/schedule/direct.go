package schedule

// direct is an all-to-all in which each rank sends each other rank its share at once, starting with
// the next rank.
func direct(_ Kind, n, _ int) *Schedule {
	s := &Schedule{Kind: AllToAll, Algorithm: Direct, Chunks: n, Equal: true, OutOfPlace: true}
	for rank := range n {
		sends := Thread{Steps: []Step{{Op: Copy, Chunk: rank, Count: 1, Source: Input, Target: Output}}}
		receives := Thread{}
		for i := 1; i < n; i++ {
			to, from := (rank+i)%n, (rank+n-i)%n
			sends.Steps = append(sends.Steps, Step{Op: Send, Peer: to, Chunk: to, Count: 1, Source: Input})
			receives.Steps = append(receives.Steps,
				Step{Op: Receive, Peer: from, Chunk: from, Count: 1, Target: Output})
		}
		s.Ranks = append(s.Ranks, []Thread{sends, receives})
	}
	return s
}
