package flows

import (
	"slices"
	"testing"
)

// TestReplicas: a block that is written goes to several servers, with the same bytes, and is done when the
// last of them has it. A rank has a number of blocks in transit, whatever the number of their copies. A block
// that is read comes from one server.
func TestReplicas(t *testing.T) {
	const depth, replicas, servers, count = 2, 3, 4, 150
	s := Blocks{Ranks: servers + 1, Servers: servers, Count: count, Block: 4096, Outstanding: depth,
		Reads: 0.3, Replicas: replicas, Seed: 3}.Schedule()
	if err := Check(s.Messages, servers+1); err != nil {
		t.Fatal(err)
	}
	writers := map[int][]int{} // servers of each written block
	for i, m := range s.Messages {
		if m.Answer == 0 && !s.IsAnswer(i) {
			writers[s.first(i)] = append(writers[s.first(i)], m.To)
		}
	}
	for block, at := range writers {
		slices.Sort(at)
		if len(slices.Compact(at)) != replicas {
			t.Errorf("block %d goes to %v, want %d servers", block, at, replicas)
		}
	}
	all := players(t, servers+1, s)
	sent := playAll(t, all)
	for rank, p := range all {
		if wrong := p.Wrong(3); wrong != 0 {
			t.Errorf("rank %d got %d wrong bytes", rank, wrong)
		}
	}
	done := map[int]Sent{}
	for _, one := range sent {
		done[one.Message] = one
	}
	own := slices.DeleteFunc(sent, func(o Sent) bool { return s.IsAnswer(o.Message) })
	whole := s.Whole(own)
	if len(whole) != count {
		t.Errorf("%d blocks, want %d", len(whole), count)
	}
	for i, block := range whole {
		for k := range writers[block.Message] {
			if copied := done[block.Message+k]; copied.Done > block.Done || copied.Begun < block.Begun {
				t.Errorf("block %+v has the copy %+v", block, copied)
			}
		}
		before := 0
		for _, other := range whole[:i] {
			if other.Begun <= block.Begun && other.Done > block.Begun {
				before++
			}
		}
		if before > depth {
			t.Errorf("block %d was begun with %d others in transit", block.Message, before)
		}
	}
	for name, change := range map[string]func(m []Message){
		"the first message": func(m []Message) { m[0].Copy = true },
		"another length":    func(m []Message) { m[1].Bytes = 8 },
		"one server":        func(m []Message) { m[1].To = m[0].To },
		"another rank":      func(m []Message) { m[1].From = 1 },
	} {
		m := []Message{{From: 2, To: 0, Bytes: 9}, {From: 2, To: 1, Bytes: 9, Copy: true}}
		if Check(m, 3) != nil {
			t.Error("a copy is refused")
		}
		change(m)
		if Check(m, 3) == nil {
			t.Errorf("copy with %s: no error", name)
		}
	}
}
